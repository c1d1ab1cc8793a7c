"""Finds the conventions that give somebody's number: what people mean by one name of a metric.

Two papers print other numbers of the same vectors without an error in either: one keeps the query
in its own list, one averages over classes, one ranks by dot product. Every convention here is one
change of the plain evaluation; which of them was made nobody can see in a number.

>>> printed = PrintedValue.parse("69.0")
>>> printed.is_given_by(0.68960), printed.is_given_by(0.6894), printed.is_given_by(0.6906)
(True, False, False)
>>> PrintedValue.parse("0.6906").is_given_by(0.69063)
True
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import UsageError
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.engine.settings import Settings
from hbench.evaluation.examination import Examined, examine
from hbench.evaluation.submission.embedding import EmbeddingSubmission
from hbench.evaluation.variants.smaller import directions
from hbench.metrics.definitions import metrics
from hbench.metrics.functions import evaluate as values_of
from hbench.metrics.names import MetricName, factor_of
from hbench.records.queries import CLASS
from hbench.records.report import Report
from hbench.submissions.embeddings import align
from hbench.tree import levels_of_pairs

NUMBER = re.compile(r"[0-9]*\.?[0-9]+")
SIMILARITIES = ("cosine", "dot", "l2")
TIES = ("pessimistic", "optimistic")
HIT = "the query is kept in its own list as a hit"
MISS = "the query is kept in its own list as a miss"
NEAREST = 3
SAME = 1e-9  # values that differ by less are printed alike
PAIRS_AT_ONCE = 2**22  # scores held at once
# bases of metrics that go by each other's names: mean average precision, cut or not
RELATIVES = (("AP", "mAP@R", "mAP@10", "mAP@100", "P@R"), ("H-AP", "wAP"), ("ASI", "NDCG"))


class PrintedValue(NamedTuple):
    """A number as somebody prints it: `value`, and one unit of its last digit; `is_fraction`: it is
    no percentage."""

    value: float
    unit: float
    is_fraction: bool

    @classmethod
    def parse(cls, text: str) -> PrintedValue:
        """Read a number: up to 1 and with a point it is a fraction, else percent. Raises UsageError
        for what is none."""
        if not NUMBER.fullmatch(text):
            raise UsageError(
                f"{text!r} is no printed value", expected="digits and a point, such as 69.0"
            )
        decimal = Decimal(text)
        exponent = decimal.as_tuple().exponent
        unit = 10.0 ** (exponent if isinstance(exponent, int) else 0)
        return cls(float(decimal), unit, "." in text and decimal <= 1)

    def of(self, value: float, factor: int = 100) -> float:
        """A value of hbench in the unit of the print."""
        return value if self.is_fraction else factor * value

    def is_given_by(self, value: float, factor: int = 100) -> bool:
        """Whether a value is printed so, rounded."""
        return abs(self.of(value, factor) - self.value) <= self.unit / 2 * (1 + 1e-9)

    def is_cut_from(self, value: float, factor: int = 100) -> bool:
        """Whether a value is printed so, its further digits cut off."""
        return 0 <= self.of(value, factor) - self.value < self.unit * (1 - 1e-9)


class Convention(NamedTuple):
    """One reading of a metric: what it changes of the plain evaluation, the options of `hbench
    evaluate` that give it, "" where no options do, and the value."""

    changes: tuple[str, ...]
    options: str
    value: float

    @property
    def words(self) -> str:
        """The changes in a line."""
        return ", ".join(self.changes) or "as hbench evaluates it"

    def record(self) -> dict[str, str | float]:
        """The fields as JSON has them."""
        return {"convention": self.words, "options": self.options, "value": self.value}


def tried(
    given: EmbeddingSubmission,
    data: Dataset,
    metric: MetricName,
    report: Callable[[Examined], Report],
) -> Iterator[Convention]:
    """Yield every convention with its value, the plain one first.

    Args:
        given: the vectors.
        data: the dataset.
        metric: the metric, of one level.
        report: measures what was examined (hbench.evaluation.examination.Examined) and reports.

    Raises:
        UsageError: bytes that may be packed bits.
    """
    if data.protocol.similarity != "hamming":
        given.refuse_bits()  # every similarity below is named, and none would ask
    vectors = EmbeddingSubmission(*given.parts)  # evaluated many times: not moved in place
    yield from _by_settings(vectors, data, metric, report)
    if len(given.parts) == 1 and all(_among_themselves(test) for test in data.tests.values()):
        yield from _by_lists(vectors, data, metric)


def _by_settings(
    given: EmbeddingSubmission,
    data: Dataset,
    metric: MetricName,
    report: Callable[[Examined], Report],
) -> Iterator[Convention]:
    """The conventions that the evaluator has options for: similarities, ties, protocols, means, and
    other metrics of the same name."""
    names = _relatives(metric, data.levels)
    own = data.protocol.similarity
    for similarity in dict.fromkeys([own, *(SIMILARITIES if own in SIMILARITIES else ())]):
        for ties in TIES:
            for protocol in ("paper", "official"):
                settings = Settings(names, protocol, ties, similarity)
                try:
                    made = report(examine(given, data, settings, doubted=False))
                except UsageError:
                    if protocol == "paper":
                        raise
                    continue  # no released evaluator here, or one that lacks a metric
                options = []
                if similarity != own:
                    options.append(f"--similarity {similarity}")
                if ties != TIES[0]:
                    options.append(f"--ties {ties}")
                if protocol != "paper":
                    options.append(f"--protocol {protocol}")
                yield from _of_report(made, metric, data.levels, options)


def _of_report(
    report: Report, metric: MetricName, levels: Sequence[str], options: Sequence[str]
) -> Iterator[Convention]:
    """The values of one evaluation: the metric, its mean over classes, and its relatives."""
    changed = tuple(option.removeprefix("--") for option in options)
    for name, value in report.scores.items():
        is_asked = name == str(metric)
        other = () if is_asked else (f"{name} by the name of {metric}",)
        yield Convention((*other, *changed), " ".join([f"--metrics {name}", *options]), value)
        if not is_asked:
            continue
        for level in levels:
            mean = f"mean over the classes of level {level}"
            yield Convention((mean, *changed), "", _over_classes(report, name, level))


def _over_classes(report: Report, name: str, level: str) -> float:
    """The mean over classes of the means of their queries."""
    values = report.values[name]  # (Q,)
    asked = ~np.isnan(values)
    _, classes = np.unique(report.table[CLASS + level].to_pylist(), return_inverse=True)
    sums = np.bincount(classes[asked], values[asked])
    counts = np.bincount(classes[asked])
    return float((sums[counts > 0] / counts[counts > 0]).mean()) if asked.any() else math.nan


def _relatives(metric: MetricName, levels: Sequence[str]) -> list[str]:
    """The metric, itself at other levels, and others that go by its name."""
    names = [str(metric)]
    if "level" in metrics[metric.base].takes and not metric.base.endswith(("#", "/")):
        names += [str(replace(metric, level=level).at(levels)) for level in levels]
    for family in RELATIVES:
        if metric.base in family:
            for other in family:
                found = MetricName.parse(other)
                names.append(str(found.at(levels)))
    return list(dict.fromkeys(names))


def _among_themselves(test: Manifest) -> bool:
    """Whether the queries of a test are its gallery: then each is in its own list, or is not."""
    return np.array_equal(test.query, test.gallery)


def _by_lists(
    given: EmbeddingSubmission, data: Dataset, metric: MetricName
) -> Iterator[Convention]:
    """The conventions of what stands in a query's list: itself, or not even its first result; and
    of vectors from their mean."""
    kinds: dict[str, list[NDArray[np.float64]]] = {}
    for test in data.tests.values():
        items = np.flatnonzero(test.query)
        rows = align(given.queries, test.items[items])
        vectors = np.asarray(given.queries.vectors[rows], np.float64)  # (Q, D)
        labels = test.labels[items]
        for words, values in _of_test(vectors, labels, _numbered(metric, data.levels)):
            kinds.setdefault(words, []).append(values)
    for words, of_tests in kinds.items():
        yield Convention((words,), "", float(np.nanmean(np.concatenate(of_tests))))


def _numbered(metric: MetricName, levels: Sequence[str]) -> str:
    """The metric at the number of its level, 1 … L, as arrays without names have it."""
    if metric.level is None:
        return str(metric)
    return str(replace(metric, level=str(levels.index(metric.level) + 1)))


def _of_test(
    vectors: NDArray[np.float64], labels: NDArray[np.integer], metric: str
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """The values (Q,) of a test by every convention of lists, in blocks of queries."""
    depth = labels.shape[1]
    centred = directions(vectors - vectors.mean(axis=0))
    plain = directions(vectors)
    step = max(1, PAIRS_AT_ONCE // len(vectors))
    for start in range(0, len(vectors), step):
        own = np.arange(start, min(start + step, len(vectors)))
        levels = levels_of_pairs(labels[own], labels)  # (b, Q)
        for words, scores, of_items in (
            *_with_self(_cosines(plain, own), levels, own, depth),
            (
                "cosine of vectors from their mean",
                _without_self(_cosines(centred, own), own),
                levels,
            ),
        ):
            yield words, next(iter(values_of(metric, scores, of_items, depth=depth).values()))


Scores = NDArray[np.float32]
Listed = tuple[str, Scores, NDArray[np.uint8]]


def _cosines(directions: NDArray[np.float64], own: NDArray[np.int64]) -> Scores:
    """The scores (b, Q) of some queries; copies are equal in float32, whatever the last digits."""
    return (directions[own] @ directions.T).astype(np.float32)


def _without_self(scores: Scores, own: NDArray[np.int64]) -> Scores:
    """The scores (b, Q) with each query left out of its own list."""
    left = scores.copy()
    left[np.arange(len(own)), own] = -np.inf
    return left


def _with_self(
    scores: Scores, levels: NDArray[np.uint8], own: NDArray[np.int64], depth: int
) -> Iterator[Listed]:
    """The lists in which a query is a hit or a miss, and those without the first result: in words,
    their scores and levels (b, Q)."""
    rows = np.arange(len(own))
    found = scores.copy()
    found[rows, own] = 2  # above all cosines: a vector is nearest to itself
    for words, level in ((HIT, depth), (MISS, 0)):
        of_items = levels.copy()
        of_items[rows, own] = level
        yield words, found, of_items

    left = _without_self(scores, own)
    is_best = left == left.max(axis=1, keepdims=True)
    # of equal ones the least related is first, as in every list
    first = np.where(is_best, levels, depth + 1).argmin(axis=1)
    left[rows, first] = -np.inf
    yield "the first result beside the query is dropped too", left, levels


class Explained(NamedTuple):
    """What was found: the conventions that print the value, rounded or, if none does so, cut; and
    the nearest of the others."""

    fitting: list[Convention]
    is_cut: bool
    nearest: list[Convention]


def explained(printed: PrintedValue, conventions: Sequence[Convention], metric: str) -> Explained:
    """Part the conventions into those that print a value to its last digit, rounded or, if none
    does, cut off, the fewest changes first, and the nearest of the others."""
    factor = factor_of(metric)
    known = [each for each in conventions if not math.isnan(each.value)]
    # a further change that does not move the value explains nothing
    known = [each for each in known if not _changes_nothing_more(each, known)]
    known.sort(key=lambda each: len(each.changes))
    rounded = [each for each in known if printed.is_given_by(each.value, factor)]
    cut = [] if rounded else [each for each in known if printed.is_cut_from(each.value, factor)]
    fitting = rounded or cut
    others = [each for each in known if each not in fitting]
    others.sort(key=lambda each: abs(printed.of(each.value, factor) - printed.value))
    return Explained(fitting, bool(cut), others[:NEAREST])


def _changes_nothing_more(convention: Convention, others: Sequence[Convention]) -> bool:
    """Whether fewer of the same changes give the same value, such as ties where there are none."""
    own = set(convention.changes)
    return any(
        set(other.changes) < own and abs(other.value - convention.value) < SAME for other in others
    )
