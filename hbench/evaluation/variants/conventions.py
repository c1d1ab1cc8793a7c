"""Finds the conventions under which an evaluation gives a number that somebody printed.

Two papers can print different numbers for the same vectors although neither has an error: one keeps
the query in its own list, another averages over classes, or ranks by dot product. A convention here
is a change of hbench's plain evaluation. A number alone does not show which of them was made.

>>> printed = PrintedValue.parse("69.0")
>>> printed.is_given_by(0.68960), printed.is_given_by(0.6894), printed.is_given_by(0.6906)
(True, False, False)
>>> PrintedValue.parse("0.6906").is_given_by(0.69063)
True
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple

import numpy as np

from hbench.core.errors import UsageError
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.engine.settings import Settings
from hbench.evaluation.examination import Examined, examine
from hbench.evaluation.submission.embedding import EmbeddingSubmission
from hbench.evaluation.variants.other_lists import (
    Changes,
    Formula,
    Values,
    among_themselves,
    by_other_lists,
)
from hbench.metrics.definitions import metrics
from hbench.metrics.names import MetricName, factor_of
from hbench.metrics.relevance import named_relevance
from hbench.records.queries import CLASS
from hbench.records.report import Report

NUMBER = re.compile(r"[0-9]*\.?[0-9]+")
SIMILARITIES = ("cosine", "dot", "l2")
TIES = ("pessimistic", "optimistic")
ALPHAS = (2, 3, 5)  # exponents of the relevance that losses use; metrics have 1
QUERIES_ALONE = "the queries are ranked among themselves, without the gallery"
EVERYTHING = "all items of the test are asked, and ranked among themselves"
NEAREST = 3
SAME = 1e-9  # values that differ by less count as equal
# two metrics called recall: whether one of k results is right; the share of right items among them
RECALLS = ("R", "TR")
PRECISIONS = ("AP", "H-AP", "wAP")  # of full lists
# metrics that are often called by each other's names, such as the variants of mAP
RELATIVES = (("AP", "mAP@R", "mAP@10", "mAP@100", "P@R"), ("H-AP", "wAP"), ("ASI", "NDCG"))


class PrintedValue(NamedTuple):
    """A number that somebody printed. `value`: the number. `unit`: one unit of its last digit.
    `is_fraction`: whether it is a fraction rather than a percentage."""

    value: float
    unit: float
    is_fraction: bool

    @classmethod
    def parse(cls, text: str) -> PrintedValue:
        """Parse a printed number. It is a fraction if it has a decimal point and is at most 1, else
        a percentage. Raises UsageError for other texts."""
        if not NUMBER.fullmatch(text):
            raise UsageError(
                f"{text!r} is no printed value", expected="digits and a point, such as 69.0"
            )
        decimal = Decimal(text)
        exponent = decimal.as_tuple().exponent
        # the exponent of the last digit, −1 for 69.0: an int except for NaN and infinity, which the
        # pattern NUMBER refuses
        unit = 10.0 ** (exponent if isinstance(exponent, int) else 0)
        return cls(float(decimal), unit, is_fraction="." in text and decimal <= 1)

    def of(self, value: float, factor: int = 100) -> float:
        """Convert a value of hbench to the unit of the printed number: multiply it by `factor`, 100
        for percent, unless a fraction was printed."""
        return value if self.is_fraction else factor * value

    def is_given_by(self, value: float, factor: int = 100) -> bool:
        """Whether a value, rounded to the last digit, prints this number. `factor`: by
        which the value is multiplied, 100 for percent, unless a fraction was printed."""
        # the tolerance covers rounding errors in the difference
        return abs(self.of(value, factor) - self.value) <= self.unit / 2 * (1 + 1e-9)

    def is_cut_from(self, value: float, factor: int = 100) -> bool:
        """Whether a value, truncated after the last digit, prints this number. `factor`: by
        which the value is multiplied, 100 for percent, unless a fraction was printed."""
        return 0 <= self.of(value, factor) - self.value < self.unit * (1 - 1e-9)


class Convention(NamedTuple):
    """A convention. `changes`: what it changes in the plain evaluation. `options`: the options of
    `hbench evaluate` that give it, "" if there are none. `value`: of the metric."""

    changes: tuple[str, ...]
    options: str
    value: float

    @property
    def words(self) -> str:
        """The changes as one line of text."""
        return ", ".join(self.changes) or "as hbench evaluates it"

    def record(self) -> dict[str, str | float]:
        """Return the fields for JSON."""
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
        report: measures an examined submission (hbench.evaluation.examination.Examined), and
            returns its report.

    Raises:
        UsageError: bytes that may be packed bits.
    """
    if data.protocol.similarity != "hamming":
        # Bytes may be packed bits, unless the user names a similarity. The evaluations below name
        # the dataset's and would take all bytes for numbers, so doubtful ones are refused here.
        given.refuse_bits()
    # not movable: an evaluation may reorder and scale movable vectors in place, and these are
    # evaluated many times
    vectors = EmbeddingSubmission(*given.parts)
    yield from _by_settings(vectors, data, metric, report)
    # `takes`: the arguments of the metric's function
    if "relevance" in metrics[metric.base].takes:
        yield from _by_exponents(vectors, data, metric, report)
    if len(given.parts) > 1:
        return  # queries and gallery may come from different models: do not rank them together
    # for each test whether its queries are its gallery. Only then can a query be put into its own
    # list, and only otherwise can other items be ranked. If tests differ, neither applies to all
    among = [_among_themselves(test) for test in data.tests.values()]
    if all(among):
        yield from _by_lists(vectors, data, metric)
    elif not any(among):
        yield from _by_splits(vectors, data, metric)


def _by_settings(
    given: EmbeddingSubmission,
    data: Dataset,
    metric: MetricName,
    report: Callable[[Examined], Report],
) -> Iterator[Convention]:
    """Yield the conventions that differ in similarity, ties, protocol or mean, or in the metric, if
    several have the same name. All but the mean are options of `hbench evaluate`.

    `report`: measures an examined submission and returns its report."""
    names = _relatives(metric, data.levels)
    own = data.protocol.similarity
    # the dataset's own similarity comes first. The others, SIMILARITIES, are of vectors of numbers,
    # so they are tried only if the own is one of them, and not for packed bits, for example
    for similarity in dict.fromkeys([own, *(SIMILARITIES if own in SIMILARITIES else ())]):
        for ties in TIES:
            for protocol in ("paper", "official"):
                settings = Settings(names, protocol, ties, similarity)
                try:
                    # doubts about the vectors are in the report that is to be explained
                    made = report(examine(given, data, settings, doubted=False))
                except UsageError:
                    if protocol == "paper":
                        raise
                    continue  # there is no released evaluator, or it does not have a metric
                options = []
                if similarity != own:
                    options.append(f"--similarity {similarity}")
                if ties != TIES[0]:  # the default
                    options.append(f"--ties {ties}")
                if protocol != "paper":
                    options.append(f"--protocol {protocol}")
                # several conventions: one for each mean, and for each metric of the same name
                yield from _of_report(made, metric, data.levels, options)


def _by_exponents(
    given: EmbeddingSubmission,
    data: Dataset,
    metric: MetricName,
    report: Callable[[Examined], Report],
) -> Iterator[Convention]:
    """Yield the metric with other exponents of the relevance, such as that of a loss: two values of
    H-AP in SupRank's Tab. V fit α = 3. `report`: measures an examined submission and returns its
    report."""
    for alpha in ALPHAS:
        parameters = {**dict(metric.parameters), "alpha": str(alpha)}
        name = str(replace(metric, parameters=tuple(parameters.items())))
        settings = Settings([name], similarity=data.protocol.similarity)
        # `doubted=False`: no search for doubtful vectors
        value = report(examine(given, data, settings, doubted=False)).scores[name]
        words = f"the relevance has the exponent α = {alpha}"
        yield Convention((words,), options=f"--metrics {shlex.quote(name)}", value=value)


def _of_report(
    report: Report, metric: MetricName, levels: Sequence[str], options: Sequence[str]
) -> Iterator[Convention]:
    """Yield the conventions of one evaluation: the metric, its means over classes, and the metrics
    that are called by the same name. `levels`: coarse to fine. `options`: the options of `hbench
    evaluate` for this evaluation, without --metrics."""
    # the options as changes in words, such as "ties optimistic"
    changed = tuple(option.removeprefix("--") for option in options)
    for name, value in report.scores.items():
        is_asked = name == str(metric)
        # the change in words that another metric was meant
        other = () if is_asked else _by_other_name(name, metric)
        yield Convention(
            changes=(*other, *changed),
            options=" ".join([f"--metrics {name}", *options]),
            value=value,
        )
        if not is_asked:
            continue
        for level in levels:
            mean = f"mean over the classes of level {level}"
            value_of_means = _over_classes(report, name, level)
            yield Convention((mean, *changed), options="", value=value_of_means)


def _by_other_name(name: str, metric: MetricName) -> Changes:
    """The change, in words, of computing the metric `name` in place of the requested one."""
    return (f"{name} by the name of {metric}",)


def _over_classes(report: Report, name: str, level: str) -> float:
    """Return the mean over the classes of a level of each class's mean over its queries, so that
    large classes have no larger weight. NaN if no query has a value. `name`: of the metric."""
    values = report.values[name]  # (Q,), NaN where undefined
    asked = ~np.isnan(values)
    # (Q,): the number of each query's class; the column CLASS + level has the names
    _, classes = np.unique(report.table[CLASS + level].to_pylist(), return_inverse=True)
    sums = np.bincount(classes[asked], values[asked])
    counts = np.bincount(classes[asked])
    return float((sums[counts > 0] / counts[counts > 0]).mean()) if asked.any() else math.nan


def _relatives(metric: MetricName, levels: Sequence[str]) -> list[str]:
    """Return the names of metrics that the metric's name may mean: of itself, of the same metric at
    other levels, and of metrics that are called by the same name. `levels`: coarse to fine. `at`
    drops the level from a name if it is the finest, so that each metric has one name."""
    names = [str(metric)]
    # AP# and ASI/ are not AP and ASI at a level, but metrics of their own, which always state one:
    # nobody who writes them means another level
    if "level" in metrics[metric.base].takes and not metric.base.endswith(("#", "/")):
        names += [str(replace(metric, level=level).at(levels)) for level in levels]
    # RECALLS: the bases of two metrics called recall; the other one keeps the level and the cut
    if metric.base in RECALLS:
        names += [str(replace(metric, base=base).at(levels)) for base in RECALLS]
    # RELATIVES: groups of whole names of metrics that are called by each other's names
    for family in RELATIVES:
        if metric.base in family:
            for other in family:
                found = MetricName.parse(other)
                names.append(str(found.at(levels)))
    return list(dict.fromkeys(names))


def _among_themselves(test: Manifest) -> bool:
    """Whether the queries of a test are its gallery, so that a query could be in its own list."""
    return np.array_equal(test.query, test.gallery)


def _by_lists(
    given: EmbeddingSubmission, data: Dataset, metric: MetricName
) -> Iterator[Convention]:
    """Yield the conventions of `by_other_lists`: the query is in its own list, the first result is
    missing, the list ends after 1,000 results, or the vectors are centred.

    The queries of every test have to be its gallery.
    """
    # {changes in words: for each test the values (Q,)}
    found: dict[Changes, list[Values]] = {}
    # {changes in words: function of a level sequence}: without changes the metric itself, and other
    # metrics that are called by the same name
    formulas = _formulas(metric, data.levels)
    for test in data.tests.values():
        # only means of precisions, such as AP, are tried on truncated lists, where missing
        # positives add 0
        of_test = by_other_lists(
            test, given.queries, formulas, is_precision=metric.base in PRECISIONS
        )
        for changes, values in of_test.items():
            found.setdefault(changes, []).append(values)
    # no option of `hbench evaluate` gives any of these
    yield from _without_options(found)


def _by_splits(
    given: EmbeddingSubmission, data: Dataset, metric: MetricName
) -> Iterator[Convention]:
    """Yield the conventions that rank other items: the queries among themselves, or all items of
    the test among themselves. The caller makes sure that the tests have a separate gallery. One
    file holds the vectors of both sides, so `given.queries` has those of all items."""
    # {changes in words: for each test the values of the items that are ranked}
    found: dict[Changes, list[Values]] = {}
    formula = _formulas(metric, data.levels)[()]  # the metric itself, with nothing changed
    for test in data.tests.values():
        everything = test.query | test.gallery
        # the change in words, and the mask (N,) of the items that are ranked among themselves
        for change, chosen in ((QUERIES_ALONE, test.query), (EVERYTHING, everything)):
            changes = (change,)
            values = among_themselves(chosen, test, given.queries, {changes: formula})
            found.setdefault(changes, []).append(values[changes])
    # `hbench evaluate` has no options for these changes
    yield from _without_options(found)


def _without_options(found: Mapping[Changes, Sequence[Values]]) -> Iterator[Convention]:
    """Yield conventions for which `hbench evaluate` has no options. Their value is the mean over
    the queries of all tests. `found`: {changes: the values (Q,) of each test}."""
    for changes, values in found.items():
        yield Convention(changes, options="", value=float(np.nanmean(np.concatenate(values))))


def _formulas(metric: MetricName, levels: Sequence[str]) -> dict[Changes, Formula]:
    """Return {changes in words: function of a level sequence}. The key () has the metric itself;
    the others are metrics that papers call by the same name, at the same level. All have the usual
    relevance, (l/L)/|Ω^(l)|: other exponents are conventions of their own. `levels`: coarse to
    fine."""
    formulas: dict[Changes, Formula] = {(): metric.bind(levels, named_relevance("alpha"))}
    for text in _relatives(metric, levels):
        # metrics at other levels are left out here, since options of `hbench evaluate` give them
        other = MetricName.parse(text).at(levels)
        if other.base != metric.base and other.level == metric.at(levels).level:
            formulas[_by_other_name(text, metric)] = other.bind(levels, named_relevance("alpha"))
    return formulas


class Explained(NamedTuple):
    """The result of the search. `fitting`: the conventions that print the value. `is_cut`: whether
    they print it truncated rather than rounded. `nearest`: the nearest of the others."""

    fitting: list[Convention]
    is_cut: bool
    nearest: list[Convention]


def explained(printed: PrintedValue, conventions: Sequence[Convention], metric: str) -> Explained:
    """Find the conventions whose values print a number to its last digit, the fewest changes first,
    and the NEAREST of the others. Values are rounded or, if no rounded value fits, truncated.
    `metric`: the name of the metric, which tells whether its values are printed in percent."""
    factor = factor_of(metric)
    known = [each for each in conventions if not math.isnan(each.value)]
    # leave out conventions with a change that does not affect the value
    known = [each for each in known if not _changes_nothing_more(each, known)]
    known.sort(key=lambda each: len(each.changes))
    rounded = [each for each in known if printed.is_given_by(each.value, factor)]
    cut = [] if rounded else [each for each in known if printed.is_cut_from(each.value, factor)]
    fitting = rounded or cut
    # sort the others by their distance from the printed number
    others = [each for each in known if each not in fitting]
    others.sort(key=lambda each: abs(printed.of(each.value, factor) - printed.value))
    return Explained(fitting=fitting, is_cut=bool(cut), nearest=others[:NEAREST])


def _changes_nothing_more(convention: Convention, others: Sequence[Convention]) -> bool:
    """Whether one of the `others` gives the same value with a subset of the convention's changes,
    so that the remaining changes have no effect, such as the order of ties without any ties."""
    own = set(convention.changes)
    return any(
        set(other.changes) < own and abs(other.value - convention.value) < SAME for other in others
    )
