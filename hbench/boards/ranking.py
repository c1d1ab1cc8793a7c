"""Ranks the rows of a leaderboard, and finds the place of a new score among them. A row has the
scores of a method and their source, the table of a paper or a run.

Scores are in percent, with the digits that the paper printed or the run gave, and all under the
leaderboard's one protocol.

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
    """The full text of a source."""

    model_config = STRICT
    text: Text
    # whether scores were transcribed from public pages and not checked in the paper's text
    later: bool = False


class Leaderboard(BoardHead):
    """The rows of a dataset, all scored under one protocol.

    Attributes:
        dataset: its name.
        version: of the dataset.
        protocol: "paper" for the papers' equations, or "official" for the evaluator that was
            released with the dataset (see its SPEC).
        ties: the order of equal scores in all rows, as in a signature.
        relevance: of all rows, as in a signature.
        levels: the names of levels, coarse to fine, that metrics may contain.
        averaged: the tests over which a score is averaged, if there are several.
        metric: the metric by which rows are ranked by default.
        notes: notes for readers, as Markdown.
        foreign_metrics: metrics of published tables that hbench does not compute, each with an
            explanation.
        citations: the sources of rows, by short name.
        rows: published rows and the user's own.
    """

    model_config = ConfigDict(**STRICT, validate_by_name=True, validate_by_alias=True)
    metric: str
    notes: Text = ""
    foreign_metrics: dict[Name, Text] = Field(default={})
    citations: dict[Line, Citation] = Field(default={})
    rows: tuple[Row, ...] = Field((), alias="row")

    @model_validator(mode="after")
    def _consistent(self) -> Leaderboard:
        """Raise ValueError for problems that types cannot express, such as two rows of one run.
        pydantic calls this."""
        problems = list(_problems(self))
        if problems:
            raise ValueError("; ".join(problems[: schema.SHOWN_PROBLEMS]))
        return self

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Every metric that some row has: the leaderboard's own first, then in order of the number
        of rows that have it; equal numbers in order of first appearance."""
        counts: dict[str, int] = {}
        for key in (key for row in self.rows for key in row.scores):
            counts[key] = counts.get(key, 0) + 1
        return tuple(sorted(counts, key=lambda key: (key != self.metric, -counts[key])))

    @property
    def levels_of_one_test(self) -> tuple[str, ...]:
        """The levels if all are scored on one test, so that their scores can be compared; else
        empty."""
        return () if self.averaged else self.levels

    def __repr__(self) -> str:
        about = f"{len(self.rows)} rows, ranked by {self.metric}, {self.protocol} protocol"
        return f"<Leaderboard {self.dataset}@{self.version}: {about}>"

    def __str__(self) -> str:  # by default, pydantic would print every row
        return repr(self)

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with the rows of the leaderboard, best first: place, method, year,
        backbone, dim, every metric in percent, and the source.
        """
        import pandas as pd

        about = ("method", "year", "backbone", "dim")
        rows = []
        for standing in rank(self, self.metric):
            for row in standing.rows:
                described = {name: getattr(row, name) for name in about}
                placed = {"place": standing.place} | described
                rows.append(placed | row.scores | {"source": row.source})
        return pd.DataFrame(rows, columns=["place", *about, *self.metrics, "source"]).astype(
            dict.fromkeys(self.metrics, float)
        )

    def place(self, report: Report | str | Path) -> BoardPlace:
        """Find the place that a report, or a report's file, would have by this leaderboard's metric
        and under its protocol.

        Raises SubmissionError for a report of another dataset, or with other ties or relevance than
        the rows.
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
        """Whether a row was made under the leaderboard's conditions, so that it can be ranked among
        the rows whose queries are items, or, if `by_name`, among those whose queries are names.
        """
        # a row's `queries` is None if its queries are items
        if (row.setup.queries is not None) != by_name:
            return False
        if row.run is None:  # a paper's row: `unranked` names the scores that do not compare
            return True

        found = row.run.conditions  # None if no evaluation of hbench wrote the signature
        # a row of another program, such as object detection, may only have metrics that hbench does
        # not compute, so that its scores are not ranked among hbench's own
        if found is None:
            return row.scores.keys() <= self.foreign_metrics.keys()

        words = found.words
        # a protocol is the paper's or the official one, which has several names
        same_protocol = (words.protocol == "paper") == (self.protocol == "paper")
        # the row's relevance has its canonical spelling already
        scale = (self.ties, canonical_relevance(self.relevance))
        same_scale = (words.ties, words.relevance) == scale
        of_this = (
            found.dataset == f"{self.dataset}@{self.version}"
            and not words.left_out  # leaving out difficult items would raise the scores
            and not found.tree  # set only if the tree is not the dataset's own
            and found.asks_by_name == by_name
        )

        return same_protocol and same_scale and of_this

    @checked
    def computes(self, metric: str) -> bool:
        """Whether hbench computes a metric, with any case and dashes in its name, at one of the
        leaderboard's levels. The leaderboard's `foreign_metrics` are not considered.
        """
        # `meant_by` suggests hbench's name of a metric. The suggestion counts if it only differs in
        # spelling: "h-ap" is H-AP. It does not count if it is another name: for "recall" it is R@1,
        # but "recall" may be a paper's own metric.
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
        """The canonical name of a metric in rows: AP of the finest level is AP. `foreign_metrics`,
        and metrics of packages that are not installed (`lacks`), keep their name. Raises
        UnknownName for any other unknown metric."""
        if metric in self.foreign_metrics or self.lacks(metric):
            return metric
        return str(MetricName.parse(metric).at(self.levels))

    @checked
    def lacks(self, metric: str) -> bool:
        """Whether a run has a metric of a package that is not installed. Its scores are shown as
        they are, so that the leaderboard can be read all the same.
        """
        return not _is_known(metric) and any(
            row.run is not None and metric in row.scores for row in self.rows
        )


class Standing(NamedTuple):
    """A result of a method in the ranking."""

    place: int | None  # from 1; None without a comparable score
    score: Decimal | None
    rows: tuple[Row, ...]  # the rows that print this result


class BoardPlace(NamedTuple):
    """The place of a new score among the ranked results of a leaderboard."""

    place: int  # equal scores share a place
    of: int  # the number of ranked results
    better: Standing | None  # the nearest result above, and the nearest below
    worse: Standing | None


def rank(
    board: Leaderboard, metric: str, rows: Iterable[Row] | None = None, *, by_name: bool = False
) -> list[Standing]:
    """Rank rows, by default all, by a metric, best first. Equal scores share a place, and the next
    score comes after all of them, as in 1, 1, 3.

    Rows of papers that print the same result (`joined`) are one standing. Results without a
    comparable score come last and have no place: their row lacks the metric, calls it not
    comparable, or was made under other conditions than the leaderboard's. With `by_name`, only
    rows whose queries are names have a place; without it, only the other rows. Raises UnknownName
    for an unknown metric.
    """
    key = board.key(metric)
    ranked: dict[Decimal, list[Standing]] = {}  # by score, without a place
    unranked = []
    for result in joined(board.rows if rows is None else rows):
        row = as_one(result)
        is_compared = key not in row.unranked and board.compares(row, by_name=by_name)
        if key in row.scores and is_compared:
            ranked.setdefault(row.scores[key], []).append(
                Standing(place=None, score=row.scores[key], rows=result)
            )
        else:
            unranked.append(Standing(place=None, score=row.scores.get(key), rows=result))
    standings: list[Standing] = []
    for score in sorted(ranked, key=lambda score: goodness(key, score), reverse=True):
        shared = len(standings) + 1
        standings += [standing._replace(place=shared) for standing in ranked[score]]
    return standings + unranked


def joined(rows: Iterable[Row]) -> list[tuple[Row, ...]]:
    """Group the rows of papers that print the same result: the same method, backbone and dimension,
    a metric in common with some row of the group, and equal scores of all metrics in common with
    any of them. A row of a run forms a group of its own."""
    results: list[list[Row]] = []
    for row in rows:
        same = next((result for result in results if _reprints(row, result)), None)
        if same is None:
            results.append([row])
        else:
            same.append(row)
    return [tuple(result) for result in results]


def as_one(result: Sequence[Row]) -> Row:
    """Merge the rows that print one result into a row: the first of them, with the scores of all
    and the earliest year. Such rows (from `joined`) have equal scores of their common metrics, so
    it does not matter from which row a score is taken."""
    if len(result) == 1:
        return result[0]
    years = [row.year for row in result if row.year is not None]
    scores = {metric: score for row in result for metric, score in row.scores.items()}
    unranked = {metric: reason for row in result for metric, reason in row.unranked.items()}
    return result[0].model_copy(
        update={"scores": scores, "unranked": unranked, "year": min(years, default=None)}
    )


def place(board: Leaderboard, metric: str, score: float, *, by_name: bool = False) -> BoardPlace:
    """Find the place that a score would have on a leaderboard.

    The score is compared with each row at the precision that the row prints, and shares a place
    with equal rows. Rows without a comparable score are not counted.

    Args:
        metric: its name; raises UnknownName if it is not known.
        score: a fraction, as in a report, under the leaderboard's protocol.
        by_name: whether to compare with the rows whose queries are names.
    """
    printed = Decimal(factor_of(board.key(metric)) * score)  # in the unit of rows, usually percent
    ranked = [  # best first
        standing
        for standing in rank(board, metric, by_name=by_name)
        if standing.score is not None and standing.place
    ]

    better: list[Standing] = []
    worse: list[Standing] = []
    for standing in ranked:
        assert standing.score is not None
        # positive if the row is better than the new score, rounded to as many digits
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
    """The best method by the leaderboard's own metric, and its score; dashes if no row has one."""
    best = next(
        (standing for standing in rank(board, board.metric) if standing.place is not None), None
    )
    return (best.rows[0].method, str(best.score)) if best else ("–", "–")


def _reprints(row: Row, result: list[Row]) -> bool:
    """Whether a row prints the same result as the rows `result`, by the rules of `joined`."""
    first = result[0]
    if row.run or first.run:  # runs with equal scores are still two results
        return False
    if (row.method, row.backbone, row.dim) != (first.method, first.backbone, first.dim):
        return False
    shared = [(key, other) for other in result for key in row.scores.keys() & other.scores.keys()]
    # rows that disagree on whether a score is comparable do not print the same result
    return bool(shared) and all(
        row.scores[key] == other.scores[key] and (key in row.unranked) == (key in other.unranked)
        for key, other in shared
    )


def _problems(board: Leaderboard) -> Iterator[str]:
    """Yield a sentence for each problem of a leaderboard that types cannot express: names of
    metrics, missing citations, duplicate rows. `_spelling` yields one if a metric's name is unknown
    or not spelled as hbench does."""
    yield from _spelling(board, board.metric, "metric")
    if len(set(board.levels)) < len(board.levels):
        yield f"levels: {', '.join(board.levels)} are not different"
    # a foreign metric must not have the name of one of hbench's own
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

    # groupby needs equal identities to be adjacent; they are sorted as texts, since an identity of
    # a paper cannot be compared with one of a run
    numbered = sorted(enumerate(board.rows, start=1), key=lambda pair: repr(pair[1].identity))
    for _, group in groupby(numbered, key=lambda pair: pair[1].identity):
        same = list(group)
        if len(same) > 1:
            yield (
                f"rows {' and '.join(str(number) for number, _ in same)} ({same[0][1].method!r}) "
                "are duplicates"
            )


def _is_known(metric: str) -> bool:
    """Whether hbench, or an installed package, has a metric of this name, at any level and with any
    parameters."""
    try:
        MetricName.parse(metric)
    except UnknownName:
        return False
    except HBenchError:
        return True  # a known metric with wrong parameters, which `_spelling` reports
    return True


def _letters(metric: str) -> str:
    """A metric's name in lower case and without dashes, blanks and the like, so that "H-AP" and
    "h ap" are equal."""
    folded = unicodedata.normalize("NFKC", metric).casefold()
    return "".join(char for char in folded if char.isalnum() or char in "@/")


def _spelling(board: Leaderboard, metric: str, where: str) -> Iterator[str]:
    """Yield a sentence if the name of a metric is unknown, or not its canonical name. `where` is
    the place in the file, such as "row 3 ('mine')"."""
    try:
        key = board.key(metric)
    except HBenchError as error:
        fix = f", {error.fix}" if error.fix else ""
        yield f"{where}: {error.problem}{fix}"
    else:
        if key != metric:
            yield f"{where}: metric {metric!r} is to be written {key!r}"
