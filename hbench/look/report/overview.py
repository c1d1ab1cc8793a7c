"""Prepares the overview page: scores with intervals, bars by level, precision–recall curves, the
severity of mistakes, and advice."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hbench.evaluation.findings import (
    WITH_INVERSION,
    WITH_TIES,
    WITHOUT_KNOWN,
    WITHOUT_POSITIVES,
)
from hbench.look.plots.h_pr import BINS, Curve
from hbench.look.report.classes import levels_within
from hbench.look.report.runs import CURVE_QUERIES, Reported, ReportedRun
from hbench.metrics.names import MetricName, factor_of
from hbench.records.document import Document, Score
from hbench.records.shown import percent_note, values_of, worth_showing

RANKS = (1, 5, 10)
ADVICE = {
    WITH_TIES: (
        "Equal scores are ordered by the ties policy, against the model (pessimistic) or for it "
        "(optimistic); any other order is between the two, but for H-AP under a relevance "
        "inversion. Evaluate again with the other --ties: if "
        "the scores hardly change, ignore this remark. If they do, many items have the same "
        "vector: look for duplicate images, embeddings rounded to few bits, or a collapsed model."
    ),
    WITHOUT_POSITIVES: (
        "Nothing in the gallery shares even the coarsest level, so there is nothing to find. These "
        "are not mistakes of the model; if there are many, check the labels and the split."
    ),
    WITHOUT_KNOWN: (
        "Their own label ends early, or those of all that might be positives do: how much such a "
        "pair shares is not known, so it is left out of these metrics. It counts in AP and R@k of "
        "the levels that are known of both."
    ),
    WITH_INVERSION: (
        "In their galleries a coarser level has so few items that each is worth no less than an "
        "item of the finer level, and H-AP does not reward ranking fine before coarse. If you "
        "optimise for the fine classes, read AP next to H-AP; another --protocol or relevance "
        "changes the worth of items."
    ),
}
GENERAL = (
    "This is a property of the data or the file, not of a single query: mention it when you "
    "quote the scores."
)


Cell = tuple[
    int, str, Score | None
]  # the number of a run, the metric, and its score, if the run has one
ScoreRow = tuple[str, list[Cell]]  # the label of a line in a table of scores, and a cell per run
Family = tuple[str, list[ScoreRow]]  # a metric of all levels, and its lines, coarse to fine


def overview_of(reported: Reported) -> dict[str, Any]:
    """Collect the variables of the overview's template.

    They include the scores of the most informative metrics (`headline`), of the whole tree
    (`rest`), by level (`families`) and of the released evaluator (`official`), the precision–recall
    curves (`sampled` tells that they are computed from some of the queries only), the levels of the
    first results (`severity`), and advice. `by_test` are the scores on each test, {test: {metric:
    score}}, of a dataset with several tests. `percent_note` and `scale_of` are functions that the
    template calls.
    """
    documents = [run.document for run in reported.runs]
    names = worth_showing(
        list(documents[0].scores), [values_of(document.scores) for document in documents]
    )
    rest, families = score_tables(documents, names)

    return {
        "names": names,
        "percent_note": percent_note,
        "left_out": len(names) < len(documents[0].scores),
        "scale_of": scale_of,
        # a row is labelled by the name of its metric
        "headline": [_row(documents, name, name) for name in headline(reported)],
        "rest": rest,
        "families": families,
        "official": official_rows(documents),
        "by_test": reported.document.by_test,
        "partial": "|labels:partial" in reported.document.signature,
        "curves": [
            (number, run.name, points(run.curve))
            for number, run in enumerate(reported.runs)
            if run.curve
        ],
        # curves of more than CURVE_QUERIES queries are computed from a sample of that size
        "sampled": reported.manifest is not None
        and int(reported.manifest.query.sum()) > CURVE_QUERIES,
        "severity": _severities(reported),
        "advice": [(run.name, advice(run)) for run in reported.runs],
    }


def headline(reported: Reported) -> list[str]:
    """List the most informative metrics: the one that ranks, ASI and NDCG, which use the whole
    tree, and AP and R@1, which everybody knows. If the reports have none of them, list the first
    four."""
    names = list(reported.document.scores)
    shown = dict.fromkeys([reported.by, "ASI", "NDCG", _of(reported, "AP"), _of(reported, "R@1")])
    return [name for name in shown if name in names] or names[:4]


def scale_of(cells: Sequence[Cell]) -> tuple[int, int]:
    """Return the ends of the scale on which the bars of a row of scores are drawn, in the unit in
    which scores are printed (percent for fractions).

    The ends are 0 and 100 if there is only one run and the metric is a fraction. Otherwise they are
    the whole numbers that enclose all scores and intervals, so that small differences between runs
    can be seen.

    `cells` are (number of the run, metric, score or None), one for each run.

    >>> score = Score(value=0.612, low=0.603, high=0.62, queries=9, skipped=0)
    >>> scale_of([(0, "AP", score), (1, "AP", None)])
    (60, 62)
    """
    factor = factor_of(cells[0][1])
    if len(cells) < 2 and factor == 100:
        return 0, 100
    scores = [score for *_, score in cells if score and score.value is not None]
    ends = [
        end for score in scores for end in (score.value, score.low, score.high) if end is not None
    ]
    low = math.floor(factor * min(ends, default=0))
    high = math.ceil(factor * max(ends, default=1))
    return low, max(high, low + 1)


def _of(reported: Reported, name: str) -> str:
    """Return a metric's name as the report spells it, which depends on its levels."""
    return str(MetricName.parse(name).at(reported.document.levels))


def score_tables(
    documents: Sequence[Document], shown: Sequence[str]
) -> tuple[list[ScoreRow], list[Family]]:
    """Separate the scores for the whole tree from the scores by level, and group the latter by
    metric.

    Args:
        documents: the reports, one for each run.
        shown: the metrics that are worth showing. A family of metrics is left out if none of its
            levels is among them.

    Returns the rows of single metrics, and the families. A row is its label and a cell (number of
    the run, metric, score or None) for each run; a family is its name and a row for each level.
    """
    levels = documents[0].levels
    # for each family, such as "AP", the name of its metric at each level
    by_family: dict[str, dict[str, str]] = {}
    for name in documents[0].scores:
        parsed = MetricName.parse(name)
        if "level" in parsed.definition.takes:
            family = str(replace(parsed, level=None))
            # a name without a level is of the finest
            by_family.setdefault(family, {})[parsed.level or levels[-1]] = name

    # show a family by level only if there are several levels and the reports have the metric at all
    # of them; else its metrics are rows of their own
    complete = {
        family: names for family, names in by_family.items() if len(names) == len(levels) > 1
    }
    spread = {name for names in complete.values() for name in names.values()}
    families = []
    for family, names in complete.items():
        if any(name in shown for name in names.values()):
            families.append((family, [_row(documents, level, names[level]) for level in levels]))

    return [_row(documents, name, name) for name in shown if name not in spread], families


def _row(documents: Sequence[Document], label: str, name: str) -> ScoreRow:
    """Make a row of a table: its label, and a cell for each run with the run's number, the metric,
    and the score, None if the run has none."""
    return label, [(run, name, document.scores.get(name)) for run, document in enumerate(documents)]


def official_rows(documents: Sequence[Document]) -> list[ScoreRow]:
    """Make a row for each metric whose score by the released evaluator differs from the score by
    the equations in at least one run. A row is the metric's name and a cell (number of the run,
    metric, official score or None) for every run."""
    rows = []
    # metrics of the first run, and then those that only others have
    names = dict.fromkeys(name for document in documents for name in document.official)
    for name in names:
        # None for a run without an official score of this metric
        official = [document.official.get(name) for document in documents]
        pairs = zip(official, documents, strict=True)
        if any(score and score.value != document.scores[name].value for score, document in pairs):
            rows.append((name, [(run, name, score) for run, score in enumerate(official)]))
    return rows


def points(curve: Curve) -> dict[str, Any]:
    """Return a precision–recall curve as steps: the corners (recall, precision) of its line, and
    those of the outline of its band of intervals, in percent. `area` remains a fraction."""
    # each bin is a step with two corners, at its left and its right edge, at the same height
    edges = np.repeat(np.linspace(0, 100, BINS + 1), 2)[1:-1].round(2)
    # the interval (BINS, 2) has the low and the high end in each bin
    heights, low, high = (
        100 * np.repeat(side, 2).round(5) for side in (curve.precision, *curve.interval.T)
    )
    # along the upper edge and back along the lower one
    band = [*zip(edges, high, strict=True), *reversed(list(zip(edges, low, strict=True)))]
    return {
        "line": list(zip(edges, heights, strict=True)),
        "band": band,
        "area": curve.area,
        "queries": curve.queries,
    }


def _severities(reported: Reported) -> list[dict[str, Any]]:
    """Collect the levels of the first results of every run; none for names, whose depths differ."""
    if reported.is_by_name:
        return []
    return [_severity(number, run, reported.test) for number, run in enumerate(reported.runs)]


def _severity(number: int, run: ReportedRun, test: str) -> dict[str, Any]:
    """Collect the levels of a run's first results.

    In the result, `first` has (level, queries, share) for the queries whose first result is of
    each level, finest level first; `within` has, for each k of RANKS that the kept results reach,
    (k, the shares of the levels 0 … L among the first k results).

    Args:
        number: the number of the run.
        run: the run.
        test: the test whose queries are counted.
    """
    # {name of the level: number of queries}, finest first; the last level is "unrelated"
    counts = run.document.mistakes.get(test, {})
    total = max(1, sum(counts.values()))
    first = [(level, count, count / total) for level, count in counts.items()]
    within = []
    if run.top is not None:
        depth = len(run.document.levels)
        listed = run.top.items.shape[1]
        within = [(k, levels_within(run.top, depth, k)) for k in RANKS if k <= listed]
    return {"run": number, "name": run.name, "first": first, "within": within}


def advice(run: ReportedRun) -> list[tuple[str, str]]:
    """List the remarks of a run's report, each with an explanation."""
    return [(remark, _explained(remark)) for remark in run.document.warnings]


def _explained(remark: str) -> str:
    """Return the explanation of a remark, which is found by a phrase in the remark."""
    return next((words for key, words in ADVICE.items() if key in remark), GENERAL)
