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
ALPHAS = (2, 3, 5)  # exponents of the relevance that are trained with; metrics have 1
QUERIES_ALONE = "the queries are ranked among themselves, without the gallery"
EVERYTHING = "all items of the test are asked, and ranked among themselves"
NEAREST = 3
SAME = 1e-9  # values that differ by less are printed alike
# whether one of k results is right, or which share of all right items is among them
RECALLS = ("R", "TR")
PRECISIONS = ("AP", "H-AP", "wAP")  # of full lists
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
        # always an int here: only NaN and infinity, which NUMBER refuses, have other exponents
        unit = 10.0 ** (exponent if isinstance(exponent, int) else 0)
        return cls(float(decimal), unit, "." in text and decimal <= 1)

    def of(self, value: float, factor: int = 100) -> float:
        """A value of hbench in the unit of the print: times `factor`, 100 for percent, unless a
        fraction was printed."""
        return value if self.is_fraction else factor * value

    def is_given_by(self, value: float, factor: int = 100) -> bool:
        """Whether a value is printed so, rounded to the last digit; `factor`: see `of`."""
        # a billionth more, for half a unit itself may come out larger by the rounding of floats
        return abs(self.of(value, factor) - self.value) <= self.unit / 2 * (1 + 1e-9)

    def is_cut_from(self, value: float, factor: int = 100) -> bool:
        """Whether a value is printed so, its further digits cut off; `factor`: see `of`."""
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
    if "relevance" in metrics[metric.base].takes:
        yield from _by_exponents(vectors, data, metric, report)
    if len(given.parts) > 1:
        return  # the sides may be of unlike models, which nobody ranks together
    # whether a query's own item is in its list can only be changed where the gallery has it; where
    # some tests are of this kind and some of the other, no one change applies to all
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
    """The values of the metric under conventions that the evaluator has options for: similarities,
    ties, protocols, means, and other metrics of the same name. `report` measures."""
    names = _relatives(metric, data.levels)
    own = data.protocol.similarity
    # other similarities only where all of them mean something for these vectors
    for similarity in dict.fromkeys([own, *(SIMILARITIES if own in SIMILARITIES else ())]):
        for ties in TIES:
            for protocol in ("paper", "official"):
                settings = Settings(names, protocol, ties, similarity)
                try:
                    # the vectors were doubted once, in the report that is explained
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
                # a convention for each mean, and for each metric of the same name, of this report
                yield from _of_report(made, metric, data.levels, options)


def _by_exponents(
    given: EmbeddingSubmission,
    data: Dataset,
    metric: MetricName,
    report: Callable[[Examined], Report],
) -> Iterator[Convention]:
    """The metric by other exponents of the relevance, such as that of the loss: two H-AP of SupRank
    Tab. V fit α = 3. `report` measures."""
    for alpha in ALPHAS:
        settings = Settings([str(metric)], similarity=data.protocol.similarity, alpha=alpha)
        value = report(examine(given, data, settings, doubted=False)).scores[str(metric)]
        words = f"the relevance has the exponent α = {alpha}"
        yield Convention((words,), options="", value=value)


def _of_report(
    report: Report, metric: MetricName, levels: Sequence[str], options: Sequence[str]
) -> Iterator[Convention]:
    """Yield the values of one evaluation: the metric, its means over classes, and its relatives,
    metrics that go by the same name. `levels`: coarse to fine; `options`: those of `hbench
    evaluate` that the evaluation had beside the metric."""
    changed = tuple(option.removeprefix("--") for option in options)
    for name, value in report.scores.items():
        is_asked = name == str(metric)
        other = () if is_asked else _by_other_name(name, metric)
        yield Convention((*other, *changed), " ".join([f"--metrics {name}", *options]), value)
        if not is_asked:
            continue
        for level in levels:
            mean = f"mean over the classes of level {level}"
            value_of_means = _over_classes(report, name, level)
            yield Convention((mean, *changed), options="", value=value_of_means)


def _by_other_name(name: str, metric: MetricName) -> Changes:
    """The change, in words, of taking the metric called `name` for the one that was asked for."""
    return (f"{name} by the name of {metric}",)


def _over_classes(report: Report, name: str, level: str) -> float:
    """The mean of a metric over the classes of a level, each the mean of its queries: large classes
    count no more than small ones. NaN where no query has a value. `name`: of the metric."""
    values = report.values[name]  # (Q,)
    asked = ~np.isnan(values)
    _, classes = np.unique(report.table[CLASS + level].to_pylist(), return_inverse=True)
    sums = np.bincount(classes[asked], values[asked])
    counts = np.bincount(classes[asked])
    return float((sums[counts > 0] / counts[counts > 0]).mean()) if asked.any() else math.nan


def _relatives(metric: MetricName, levels: Sequence[str]) -> list[str]:
    """The metric, itself at other levels, and others that go by its name."""
    names = [str(metric)]
    # AP# and ASI/ are other metrics than AP and ASI, and stay at their level
    if "level" in metrics[metric.base].takes and not metric.base.endswith(("#", "/")):
        names += [str(replace(metric, level=level).at(levels)) for level in levels]
    if metric.base in RECALLS:
        names += [str(replace(metric, base=base).at(levels)) for base in RECALLS]
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
    """Yield the values of the metric when lists are made in another way, each with what was changed
    in words (Convention): somebody's number may be one of them.

    The query may stand in its own list, or its first result may be missing there, or the list may
    end after 1,000 results. The vectors may have been centred, too. `tried` calls this only where
    the queries of every test are its gallery.
    """
    # by what is changed, in words: the values (Q,) of each test
    found: dict[Changes, list[Values]] = {}
    # the metric itself, and others that go by its name
    formulas = _formulas(metric, data.levels)
    for test in data.tests.values():
        # means of precisions count what is cut off as 0; other metrics are not tried on cut lists
        of_test = by_other_lists(
            test, given.queries, formulas, is_precision=metric.base in PRECISIONS
        )
        for changes, values in of_test.items():
            found.setdefault(changes, []).append(values)
    # means over all queries; no option of `hbench evaluate` gives any of them
    yield from _without_options(found)


def _by_splits(
    given: EmbeddingSubmission, data: Dataset, metric: MetricName
) -> Iterator[Convention]:
    """Yield the conventions of who is ranked, for tests whose queries have a gallery of their own:
    the queries, or all items of the test, among themselves."""
    found: dict[Changes, list[Values]] = {}
    formula = _formulas(metric, data.levels)[()]  # the metric itself, with nothing changed
    for test in data.tests.values():
        everything = test.query | test.gallery
        for words, chosen in ((QUERIES_ALONE, test.query), (EVERYTHING, everything)):
            values = among_themselves(chosen, test, given.queries, {(words,): formula})
            found.setdefault((words,), []).append(values[words,])
    yield from _without_options(found)


def _without_options(found: Mapping[Changes, Sequence[Values]]) -> Iterator[Convention]:
    """Yield conventions that no option of the evaluation gives, by what they change: their value is
    the mean over the queries of all tests. `found`: the values (Q,) of each test."""
    for changes, values in found.items():
        yield Convention(changes, options="", value=float(np.nanmean(np.concatenate(values))))


def _formulas(metric: MetricName, levels: Sequence[str]) -> dict[Changes, Formula]:
    """Functions of a level sequence, by what they change: () the metric's own, and those of other
    metrics that go by its name, at its level. `levels`: coarse to fine."""
    formulas: dict[Changes, Formula] = {(): metric.bind(levels, named_relevance("alpha"))}
    for text in _relatives(metric, levels):
        # metrics at another level are left out: that is one more change, which options give already
        other = MetricName.parse(text).at(levels)
        if other.base != metric.base and other.level == metric.at(levels).level:
            formulas[_by_other_name(text, metric)] = other.bind(levels, named_relevance("alpha"))
    return formulas


class Explained(NamedTuple):
    """What was found: the conventions that print the value, rounded or, if none does so, cut; and
    the nearest of the others."""

    fitting: list[Convention]
    is_cut: bool
    nearest: list[Convention]


def explained(printed: PrintedValue, conventions: Sequence[Convention], metric: str) -> Explained:
    """Part the conventions into those that print a value to its last digit, rounded or, if none
    does, cut off, the fewest changes first, and the nearest of the others. `metric`: its name,
    which says whether values are printed in percent."""
    factor = factor_of(metric)
    known = [each for each in conventions if not math.isnan(each.value)]
    # a further change that does not move the value explains nothing
    known = [each for each in known if not _changes_nothing_more(each, known)]
    known.sort(key=lambda each: len(each.changes))
    rounded = [each for each in known if printed.is_given_by(each.value, factor)]
    cut = [] if rounded else [each for each in known if printed.is_cut_from(each.value, factor)]
    fitting = rounded or cut
    # the others by how far they are from the print
    others = [each for each in known if each not in fitting]
    others.sort(key=lambda each: abs(printed.of(each.value, factor) - printed.value))
    return Explained(fitting, bool(cut), others[:NEAREST])


def _changes_nothing_more(convention: Convention, others: Sequence[Convention]) -> bool:
    """Whether one of the `others` gives the same value with fewer of the convention's changes: so
    the rest of them changes nothing, such as the order of ties where there are none."""
    own = set(convention.changes)
    return any(
        set(other.changes) < own and abs(other.value - convention.value) < SAME for other in others
    )
