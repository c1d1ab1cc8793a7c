"""Ranks and places the rows of a leaderboard: a method's scores with where they come from, the
table of a paper or a run.

Scores are percent, digit for digit as printed or as a run gave them, all under the leaderboard's
one protocol.

>>> from hbench.boards import Paper, read_board
>>> row = Row(method="mine", scores={"R@1": 81}, paper=Paper(citation="Me, 2026", table="Tab. 1"))
>>> row.source
'Me, 2026, Tab. 1'
>>> board = read_board("sop")
>>> first = rank(board, "H-AP")[0]
>>> first.place, str(first.score), first.rows[0].method
(1, '59.4', 'HAPPIER')
>>> place(board, "H-AP", 0.585).place
2
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hbench.boards.reported import BoardHead
from hbench.boards.rows import Line, Name, Row, Text, canonical_relevance
from hbench.core import schema
from hbench.core.arguments import checked
from hbench.core.errors import HBenchError, SubmissionError, UnknownName
from hbench.core.schema import STRICT
from hbench.metrics.aliases import meant_by
from hbench.metrics.names import MetricName, factor_of, goodness

if TYPE_CHECKING:
    import pandas as pd

    from hbench.records.report import Report


class Citation(BaseModel):
    """A source in full; `later`: beyond the four papers, transcribed from public pages, not checked
    in their texts.
    """

    model_config = STRICT
    text: Text
    later: bool = False


class Leaderboard(BoardHead):
    """The rows of a dataset, all scored under one protocol.

    Attributes:
        dataset: its name.
        version: that of the dataset.
        protocol: "paper", the papers' equations, or "official", the evaluator released for the
            dataset (see its SPEC).
        ties: the order of equal scores of all rows, as a signature names it.
        relevance: of all rows, as a signature names it.
        levels: the level names, coarse to fine, that metrics may name.
        averaged: the tests a score is the mean of, where there are several.
        metric: the one that rows are ranked by at first.
        notes: what readers must know, as Markdown.
        foreign_metrics: those of published tables that hbench does not compute, and what they are.
        citations: the sources of rows, by short name.
        rows: published and own.
    """

    model_config = ConfigDict(**STRICT, validate_by_name=True, validate_by_alias=True)
    metric: str
    notes: Text = ""
    foreign_metrics: dict[Name, Text] = Field(default={})
    citations: dict[Line, Citation] = Field(default={})
    rows: tuple[Row, ...] = Field((), alias="row")

    @model_validator(mode="after")
    def _consistent(self) -> Leaderboard:
        """Raise ValueError for what types cannot say, such as two rows of one run; pydantic calls
        this, and makes an error of the file of it."""
        problems = list(_problems(self))
        if problems:
            raise ValueError("; ".join(problems[: schema.SHOWN_PROBLEMS]))
        return self

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Every metric that some row has, the leaderboard's own first, then by the number of rows
        that have it. Metrics of as many rows stay in the order in which they come first."""
        counts: dict[str, int] = {}
        for key in (key for row in self.rows for key in row.scores):
            counts[key] = counts.get(key, 0) + 1
        return tuple(sorted(counts, key=lambda key: (key != self.metric, -counts[key])))

    @property
    def levels_of_one_test(self) -> tuple[str, ...]:
        """The levels, where all are scored on one test, so that their scores compare."""
        return () if self.averaged else self.levels

    def __repr__(self) -> str:
        about = f"{len(self.rows)} rows, ranked by {self.metric}, {self.protocol} protocol"
        return f"<Leaderboard {self.dataset}@{self.version}: {about}>"

    def __str__(self) -> str:  # pydantic would print every row
        return repr(self)

    def to_pandas(self) -> pd.DataFrame:
        """A row per method, best first: place, method, year, backbone, dim, every metric in
        percent, and the source.
        """
        import pandas as pd

        about = ("method", "year", "backbone", "dim")
        rows = []
        for standing in rank(self, self.metric):
            for row in standing.rows:
                known = {name: getattr(row, name) for name in about}
                known = {"place": standing.place} | known | row.scores | {"source": row.source}
                rows.append(known)
        return pd.DataFrame(rows, columns=["place", *about, *self.metrics, "source"]).astype(
            dict.fromkeys(self.metrics, float)
        )

    def place(self, report: Report | str | Path) -> BoardPlace:
        """Find where a `report`, or that in a file, would stand by this leaderboard's metric, under
        its protocol.

        Raises SubmissionError for a report of another dataset, or under other ties or relevance
        than the rows.
        """
        from hbench.boards.reported import rankable_scores
        from hbench.records.report import document_of

        score = rankable_scores(self, document_of(report))[self.metric].value
        if score is None:
            raise SubmissionError(
                f"the report has no {self.metric}", fix=f"evaluate with --metrics {self.metric}"
            )
        return place(self, self.metric, score)

    @checked
    def compares(self, row: Row, *, by_name: bool = False) -> bool:
        """Whether a row was made under the leaderboard's conditions, so that its scores can be
        ranked among the others: those whose queries are items, or, `by_name`, names.
        """
        if (row.setup.queries is not None) != by_name:
            return False
        if row.run is None:
            return True

        found = row.run.conditions
        # another program's, as that of object detection: it may have scores that hbench does not
        # compute, but none that would stand among hbench's own
        if found is None:
            return row.scores.keys() <= self.foreign_metrics.keys()

        words = found.words
        # there are two kinds of protocol: the paper's, and any other name for the official one
        same_protocol = (words.protocol == "paper") == (self.protocol == "paper")
        scale = (self.ties, canonical_relevance(self.relevance))
        same_scale = (words.ties, words.relevance) == scale
        of_this = (
            found.dataset == f"{self.dataset}@{self.version}"
            and not words.left_out  # without items that were hard to read scores are higher
            and not found.tree  # by another tree than the dataset's own
            and found.asks_by_name == by_name
        )

        return same_protocol and same_scale and of_this

    @checked
    def computes(self, metric: str) -> bool:
        """Whether hbench knows a metric, whatever the head says, and whatever case and dashes it is
        written with.
        """
        # "h-ap" is a spelling of H-AP; "recall", an alias of R@1, may be a paper's own metric
        meant = meant_by(metric)
        if meant is not None and _letters(meant) == _letters(metric):
            return True
        try:
            MetricName.parse(metric).at(self.levels)
        except HBenchError:
            return False
        return True

    @checked
    def key(self, metric: str) -> str:
        """The spelling under which rows keep a metric (AP of the finest level is AP); raises
        UnknownName. `foreign_metrics`, and what it `lacks`, metrics of packages that are not here,
        stay as they are written."""
        if metric in self.foreign_metrics or self.lacks(metric):
            return metric
        return str(MetricName.parse(metric).at(self.levels))

    @checked
    def lacks(self, metric: str) -> bool:
        """Whether a run has a metric that no package here brings: its scores are shown as they
        are, and nothing else of the leaderboard waits for it.
        """
        return not _is_known(metric) and any(
            row.run is not None and metric in row.scores for row in self.rows
        )


class Standing(NamedTuple):
    """A place of the ranking, 1 … or None for no comparable score, and the rows that print this
    result of a method.
    """

    place: int | None
    score: Decimal | None
    rows: tuple[Row, ...]


class BoardPlace(NamedTuple):
    """The place of a score among `of` ranked results: its place (ties share one) and its
    neighbours.
    """

    place: int
    of: int
    better: Standing | None
    worse: Standing | None


def rank(
    board: Leaderboard, metric: str, rows: Iterable[Row] | None = None, *, by_name: bool = False
) -> list[Standing]:
    """The rows (all by default) by `metric`, best first; equal scores share a place, rows without
    one come last. Rows whose queries are names have places `by_name` alone.

    A score that its row calls not comparable, or that was made under other conditions than the
    leaderboard's, counts as none. Rows that print the same result are one standing (`joined`).
    Raises UnknownName for the metric.
    """
    key = board.key(metric)
    ranked: dict[Decimal, list[Standing]] = {}
    unranked = []
    for result in joined(board.rows if rows is None else rows):
        row = as_one(result)
        is_compared = key not in row.unranked and board.compares(row, by_name=by_name)
        if key in row.scores and is_compared:
            ranked.setdefault(row.scores[key], []).append(Standing(None, row.scores[key], result))
        else:
            unranked.append(Standing(None, row.scores.get(key), result))
    standings: list[Standing] = []
    # equal scores share the first of their places, and the next one comes after all of them
    for score in sorted(ranked, key=lambda score: goodness(key, score), reverse=True):
        shared = len(standings) + 1
        standings += [standing._replace(place=shared) for standing in ranked[score]]
    return standings + unranked


def joined(rows: Iterable[Row]) -> list[tuple[Row, ...]]:
    """Join the rows that print the same result: those of papers, of one method, backbone and
    dimension, that share a metric and agree in all that they share."""
    results: list[list[Row]] = []
    for row in rows:
        same = next((result for result in results if _reprints(row, result)), None)
        if same is None:
            results.append([row])
        else:
            same.append(row)
    return [tuple(result) for result in results]


def as_one(result: Sequence[Row]) -> Row:
    """The first row of a result with the scores of all, as of the year when the first of them was
    printed. The rows agree in all scores that they share (`joined` sees to it), so which of them a
    score is taken from does not matter.
    """
    if len(result) == 1:
        return result[0]
    years = [row.year for row in result if row.year is not None]
    scores = {metric: score for row in result for metric, score in row.scores.items()}
    unranked = {metric: reason for row in result for metric, reason in row.unranked.items()}
    return result[0].model_copy(
        update={"scores": scores, "unranked": unranked, "year": min(years, default=None)}
    )


def place(board: Leaderboard, metric: str, score: float, *, by_name: bool = False) -> BoardPlace:
    """Find where a score would stand by `metric`: a fraction, as in a report, under the
    leaderboard's protocol; `by_name`: among the rows whose queries are names.

    It is compared to each row at the precision that the row prints, and shares a place with rows
    that it equals. Rows without a score that is comparable are not counted.

    Raises UnknownName for the metric.
    """
    printed = Decimal(factor_of(board.key(metric)) * score)  # as rows have it, most often percent
    ranked = [
        standing
        for standing in rank(board, metric, by_name=by_name)
        if standing.score is not None and standing.place
    ]

    better: list[Standing] = []
    worse: list[Standing] = []
    for standing in ranked:
        assert standing.score is not None
        ahead = goodness(board.key(metric), standing.score - printed.quantize(standing.score))
        if ahead > 0:
            better.append(standing)
        elif ahead < 0:
            worse.append(standing)

    return BoardPlace(
        place=len(better) + 1,
        of=len(ranked),
        better=better[-1] if better else None,
        worse=worse[0] if worse else None,
    )


def leader(board: Leaderboard) -> tuple[str, str]:
    """The best method by the leaderboard's own metric, and its score; dashes where no row has
    one."""
    best = next(
        (standing for standing in rank(board, board.metric) if standing.place is not None), None
    )
    return (best.rows[0].method, str(best.score)) if best else ("–", "–")


def _reprints(row: Row, result: list[Row]) -> bool:
    """Whether a published row repeats a result of other papers' rows: the same method, backbone and
    dimension, at least one metric that both have, and equal scores of all such metrics."""
    first = result[0]
    if row.run or first.run:  # two runs of equal scores are two results
        return False
    if (row.method, row.backbone, row.dim) != (first.method, first.backbone, first.dim):
        return False
    shared = [(key, other) for other in result for key in row.scores.keys() & other.scores.keys()]
    # a score that one of them calls not comparable is not the same result
    return bool(shared) and all(
        row.scores[key] == other.scores[key] and (key in row.unranked) == (key in other.unranked)
        for key, other in shared
    )


def _problems(board: Leaderboard) -> Iterator[str]:
    """Yield what is wrong with a leaderboard beyond its types, in a sentence each: names of
    metrics, citations, rows that stand there twice."""
    yield from _spelling(board, board.metric, "metric")
    if len(set(board.levels)) < len(board.levels):
        yield f"levels: {', '.join(board.levels)} are not different"
    # else a score of that name could be either
    for key in filter(board.computes, board.foreign_metrics):
        yield f"foreign_metrics: hbench computes {key!r} itself"
    for number, row in enumerate(board.rows, start=1):
        where = f"row {number} ({row.method!r})"
        for key in (*row.scores, *row.unranked):
            yield from _spelling(board, key, where)
        for key in row.unranked.keys() - row.scores.keys():
            yield f"{where}: unranked {key!r} has no score"
        if row.paper and row.paper.citation not in board.citations:
            yield f"{where}: citation {row.paper.citation!r} is not in [citations]"

    # sorted, so that equal ones are neighbours; as texts, since identities of papers and of runs
    # cannot be compared
    numbered = sorted(enumerate(board.rows, start=1), key=lambda pair: repr(pair[1].identity))
    for _, group in groupby(numbered, key=lambda pair: pair[1].identity):
        same = list(group)
        if len(same) > 1:
            yield (
                f"rows {' and '.join(str(number) for number, _ in same)} ({same[0][1].method!r}) "
                "are duplicates"
            )


def _is_known(metric: str) -> bool:
    """Whether hbench, or a package with it, has a metric of this name, whatever its level."""
    try:
        MetricName.parse(metric)
    except UnknownName:
        return False
    except HBenchError:
        return True  # misspelt, which is said elsewhere
    return True


def _letters(metric: str) -> str:
    """A metric's name in small letters, without what is easily overlooked, such as dashes: "H-AP"
    and "h ap" are one."""
    folded = unicodedata.normalize("NFKC", metric).casefold()
    return "".join(char for char in folded if char.isalnum() or char in "@/")


def _spelling(board: Leaderboard, metric: str, where: str) -> Iterator[str]:
    """Yield what is wrong with the name of a metric, if anything: nobody knows it, or rows keep it
    under another spelling. `where`: the place in the file, such as "row 3 ('mine')"."""
    try:
        key = board.key(metric)
    except HBenchError as error:
        fix = f", {error.fix}" if error.fix else ""
        yield f"{where}: {error.problem}{fix}"
    else:
        if key != metric:
            yield f"{where}: metric {metric!r} is to be written {key!r}"
