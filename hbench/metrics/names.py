"""Parses the names of metrics, such as R@10/genus, into base, parameters, cut and level.

`H-AP`, `H-AP(alpha=3)`, `H-AP@R`, `wAP(weights=0.2:0.8)`, `ASI`, `ASI/genus`, `NDCG@100`, `AP`,
`AP/genus`, `AP#genus`, `R@10`, `R@1/family`, `TR@10`, `TR(norm=min)@10`, `P@5`, `mAP@R`, `mAP@100`,
`H-P@10`, `H-R@10`. Without a level, AP, R@k … are those of the finest level.

>>> str(MetricName.parse("R@1/family"))
'R@1/family'
>>> MetricName.parse("AP/genius").at(["genus", "species"])
Traceback (most recent call last):
hbench.core.errors.UnknownName: unknown level 'genius'
  expected: one of genus, species
  next:     did you mean 'genus'?
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from hbench.core.arguments import checked
from hbench.core.errors import ConfigError, UnknownName, UsageError
from hbench.metrics.aliases import meant_by
from hbench.metrics.definitions import LETTERS, Definition, metrics
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.relevance import Relevance, alpha, named_relevance, sum_wap

T = TypeVar("T")
Metric = Callable[[LevelSequence], float]
MOST_DIGITS = 18  # of a cut: a number of more digits may not fit into 64 bits
SPELLING = re.compile(
    rf"(?P<base>{LETTERS})(\((?P<parameters>[^()]*)\))?(@(?P<cut>R|[1-9]\d*))?"
    r"((?P<mark>[#/])(?P<level>.+))?"
)
NORMS: dict[str, Callable[[int, int], int]] = {"all": lambda cut, total: total, "min": min}


@dataclass(frozen=True)
class MetricName:
    """The parts of a metric's spelling, such as "R@10/genus".

    Attributes:
        base: the name of the registered function, such as "R@".
        parameters: (name, value) pairs, as spelled between brackets.
        cut: k of @k, or None.
        level: the name of a level; None for the finest.
    """

    base: str
    parameters: tuple[tuple[str, str], ...] = ()
    cut: int | None = None
    level: str | None = None

    @classmethod
    @checked
    def parse(cls, text: str) -> MetricName:
        """Parse a `text` such as "R@10/genus". Raises UnknownName, with suggestions, for an unknown
        metric, UsageError for wrong parameters."""
        # the groups of "H-AP(alpha=2)@10/genus" are base "H-AP", parameters "alpha=2", cut "10" (or
        # "R"), mark "/" (or "#", as in "AP#genus") and level "genus"; None for an absent part
        match = SPELLING.fullmatch(text.strip())
        if match is None:
            raise _unknown(text)

        level = match["level"]
        # a number of more digits may not fit into 64 bits
        if match["cut"] and len(match["cut"]) > MOST_DIGITS:
            raise UnknownName("metric", text, spellings(), meant="a cut that a list may have")

        # "@R" is part of the name rather than a cut: R is each query's number of positives
        cut = None if match["cut"] == "R" else match["cut"]
        base = match["base"] + ("@R" if match["cut"] == "R" else "")
        # Some metrics are registered with a mark at the end, which tells them from the metric of
        # the same letters without it: NDCG@ has a cut, AP# has positives of exactly one level, and
        # ASI/ is the ASI of one level.
        if match["mark"] == "#":
            base += "#"
        if base + "@" in metrics and cut:
            base += "@"
        if base + "/" in metrics and level:
            base += "/"
        if base not in metrics:
            raise _unknown(text)

        definition = metrics[base]
        # refuse a missing or superfluous cut, and a level for a metric of all levels
        if ("cut" in definition.takes) != (cut is not None) or (
            level and "level" not in definition.takes
        ):
            raise _unknown(text)
        # AP# and ASI/ are refused without a level: a user may have typed the registered name
        if base in ("AP#", "ASI/") and not level:
            raise _unknown(text)

        return cls(
            base,
            _parameters(text, match["parameters"], definition),
            int(cut) if cut else None,
            level,
        )

    def __str__(self) -> str:
        """Spell the metric: base, parameters, cut and level, such as "TR(norm=min)@10/genus". The
        mark at the end of a registered base (@, # or /) moves to its place in the spelling."""
        base = self.base.rstrip("@/#")
        mark = "#" if self.base.endswith("#") else "/"
        # the "@R" of mAP@R follows the parameters, where other metrics have their cut
        base, at_r = (base[: -len("@R")], "@R") if base.endswith("@R") else (base, "")
        parameters = (
            f"({','.join(f'{key}={value}' for key, value in self.parameters)})"
            if self.parameters
            else ""
        )
        cut = f"@{self.cut}" if self.cut else at_r
        return base + parameters + cut + (f"{mark}{self.level}" if self.level else "")

    @property
    def definition(self) -> Definition:
        """The definition that is registered under the base name."""
        return metrics[self.base]

    @property
    def needs_full_ranking(self) -> bool:
        """Whether the metric needs the whole ranking, so that it cannot be computed from a
        truncated one.
        """
        return self.definition.full

    @checked
    def at(self, levels: Sequence[str]) -> MetricName:
        """Check the level against `levels` (coarse to fine), and drop it if it is the finest.
        Raises UnknownName.
        """
        if self.level is None:
            return self
        # spaces around the name of a level are ignored on both sides
        level = next((level for level in levels if level.strip() == self.level.strip()), None)
        if level is None:
            raise UnknownName("level", self.level, levels)
        # "AP" means the finest level already, but AP# and ASI/ always need a level
        implied = level == levels[-1] and self.base not in ("AP#", "ASI/")
        return replace(self, level=None if implied else level)

    @checked
    def bind(self, levels: Sequence[str], relevance: Relevance | None = None) -> Metric:
        """Return the metric as a function of a level sequence.

        `levels`: the names of the levels, coarse to fine. `relevance`: that of H-AP if the name
        states none.
        """
        function = self.definition.function
        taken = self.arguments(levels, relevance)

        def metric(sequence: LevelSequence) -> float:
            """Compute the metric of one query. Raises UsageError if a user passes lists in place of
            arrays: the formulas would compute wrong values from them."""
            # the fourth part, `tied`, is no array
            if not all(isinstance(part, np.ndarray) for part in sequence[:3]):
                raise UsageError(
                    "a level sequence is not one of arrays",
                    expected="ranks (P,), levels (P,) and counts (L+1,)",
                    found=f"{sequence!r:.60}",
                )
            value = function(sequence, **taken)
            if type(value) is not float:  # only metrics of other packages may return anything else
                self._refuse_other_than_number(value)
            return value

        return metric

    def _refuse_other_than_number(self, value: object) -> None:
        """Raise ConfigError if a metric of another package returned a value that is no number."""
        found = np.asarray(value)
        if found.shape == () and found.dtype.kind in "fiub":  # one float, integer or boolean
            return
        package = metrics.package_of(self.base) or self.definition.function.__module__
        raise ConfigError(
            f"the metric {self.base!r} of the package {package} returned no number",
            expected="a float, NaN where it is not defined for the query",
            found=f"{type(value).__name__} {value!r:.60}",
            fix="mend the metric: docs/plugins.md",
        )

    @checked
    def arguments(
        self, levels: Sequence[str], relevance: Relevance | None = None
    ) -> dict[str, Any]:
        """Return the keyword arguments for the metric's function.

        `levels`: the names of the levels, coarse to fine. `relevance`: of H-AP, if the name states
        none; None: `alpha()`. Raises UsageError for arguments of other types (`checked`), a level
        that does not exist, or weights that are no numbers.
        """
        at = self.at(levels)  # this name, with the level None if it is the finest
        given = dict(self.parameters)
        # (L,) floats, from a text such as "0.2:0.8"
        weights = _numbers(str(self), given["weights"]) if "weights" in given else None
        arguments: dict[str, Any] = {
            "level": levels.index(at.level) + 1 if at.level else len(levels),
            "cut": self.cut,
            "weights": weights,
            "norm": NORMS[given.get("norm", "all")],
            # that of the name's parameters, if they state one
            "relevance": _relevance(str(self), given, weights) or relevance or alpha(),
        }
        # keep only the arguments that this metric's function takes
        return {key: arguments[key] for key in self.definition.takes}


def lower_is_better(metric: str) -> bool:
    """Whether lower values of a metric are better: true for distances such as HD@k; false for
    metrics that hbench does not know.
    """
    try:
        return MetricName.parse(metric).definition.lower_is_better
    except UnknownName:
        return False


def factor_of(metric: str) -> int:
    """Return the number by which values of a metric are multiplied for display: 100 for fractions,
    which are shown in percent, and for metrics that hbench does not know.

    >>> factor_of("R@1")
    100
    """
    try:
        return MetricName.parse(metric).definition.factor
    except UnknownName:
        return 100


def goodness(metric: str, values: T) -> T:
    """Return values of a metric with distances negated, so that higher is better. Best, worst,
    first and gain are decided by these.

    >>> goodness("R@1", 0.25), goodness("HD@1", 0.25)
    (0.25, -0.25)
    """
    better: T = -values if lower_is_better(metric) else values  # type: ignore[operator]
    return better


def parse_metrics(
    metrics: str | Iterable[str | MetricName], levels: Sequence[str]
) -> tuple[MetricName, ...]:
    """Parse the names of metrics, a list or a text with commas, and check their levels and
    parameters. Each metric is returned once. `levels`: the names of the levels, coarse to fine.

    Raises UsageError, with every name that cannot be computed.

    >>> [
    ...     str(name)
    ...     for name in parse_metrics(
    ...         "H-AP(alpha=3,relevance=alpha), AP/species", ("genus", "species")
    ...     )
    ... ]
    ['H-AP(alpha=3,relevance=alpha)', 'AP']
    """
    # split at commas that are not within brackets: "(?![^(]*\))" skips a comma after which a
    # bracket closes before another one opens
    texts = re.split(r",(?![^(]*\))", metrics) if isinstance(metrics, str) else metrics
    parsed: dict[MetricName, None] = {}  # in order, each once
    problems: dict[str, UsageError] = {}  # {message: error}, each message once
    for text in filter(None, texts):
        try:
            name = (text if isinstance(text, MetricName) else MetricName.parse(text)).at(levels)
            name.bind(levels)  # raises for parameters that do not fit these levels
            parsed[name] = None
        except UsageError as error:
            problems[error.problem] = error

    if len(problems) == 1:
        raise next(iter(problems.values()))
    if problems or not parsed:
        fixes = [error.fix for error in problems.values() if error.fix]
        raise UsageError(
            "; ".join(problems) or "no metric is named",
            expected=f"some of {', '.join(spellings())}",
            fix="; ".join(fixes) or None,
        )

    return tuple(parsed)


def default_metrics(
    levels: Sequence[str], cuts: Sequence[int] = (1, 10, 100, 1000)
) -> list[MetricName]:
    """Return the metrics that are computed by default: H-AP, wAP, ASI and NDCG, then AP, mAP@R and
    R@k for each k in `cuts` at every level, finest first. `levels`: names, coarse to fine."""
    names = [MetricName("H-AP"), MetricName("wAP"), MetricName("ASI"), MetricName("NDCG")]
    for level in [None, *reversed(levels[:-1])]:  # None: the finest
        names += [MetricName("AP", level=level), MetricName("mAP@R", level=level)]
        names += [MetricName("R", cut=cut, level=level) for cut in cuts]
    return names


def _parameters(
    text: str, given: str | None, definition: Definition
) -> tuple[tuple[str, str], ...]:
    """Parse the parameters of a metric's name into (name, value) pairs.

    `text`: the whole name, such as H-AP(alpha=2), for errors. `given`: the text between its
    brackets, such as "alpha=2" or "weights=0.2:0.8". Raises UnknownName for parameters that the
    metric does not take, UsageError if two of them imply different relevances.
    """
    parts = [part.strip().partition("=") for part in given.split(",")] if given else []
    pairs = [(key, value) for key, _, value in parts]
    # {argument of the metric's function: the parameters that set it}
    allowed = {
        "relevance": ("alpha", "relevance", "weights"),
        "weights": ("weights",),
        "norm": ("norm",),
    }
    known = [name for taken in definition.takes for name in allowed.get(taken, ())]

    for key, value in pairs:
        if key not in known:
            raise UnknownName(f"parameter of {text!r}", key, known)
        if key == "norm" and value not in NORMS:
            raise UnknownName("norm", value, NORMS)
        if key == "relevance":
            named_relevance(value)  # raises UnknownName for an unknown relevance
        if key in ("alpha", "weights"):
            _numbers(text, value)  # raises UsageError for texts that are no numbers

    by_name = dict(pairs)
    # {parameter: the relevance that it implies}; all that are given must imply the same one
    implied = {
        "alpha": "alpha",
        "weights": "sum_wap",
        "relevance": by_name.get("relevance"),
    }
    implying = {implied[key] for key in by_name if key in implied}
    # fewer names than pairs: a parameter is given twice
    if len(by_name) < len(pairs) or len(implying) > 1:
        raise UsageError(
            f"the parameters of {text!r} contradict each other",
            expected="each once; alpha goes with relevance=alpha, weights with relevance=sum_wap",
        )

    return tuple(pairs)


def _relevance(text: str, given: dict[str, str], weights: list[float] | None) -> Relevance | None:
    """Return the relevance that a metric's parameters state, or None if they state none.

    `text`: the metric's name, for errors. `given`: {parameter: value}. `weights`: the parsed
    weights, if given; they imply sum_wap, with which H-AP equals wAP with these weights.
    """
    if "alpha" in given:
        return alpha(_numbers(text, given["alpha"])[0])
    if weights is not None:
        return sum_wap(weights)
    return named_relevance(given["relevance"]) if "relevance" in given else None


def _numbers(text: str, value: str) -> list[float]:
    """Parse the numbers of a parameter such as "0.2:0.8". Raises UsageError, which names the metric
    `text`, if a part is no number."""
    try:
        return [float(number) for number in value.split(":")]
    except ValueError:
        raise UsageError(
            f"a parameter of {text!r} is not a number",
            expected="numbers separated by ':'",
            found=repr(value),
        ) from None


def _unknown(text: str) -> UnknownName:
    """Make the error for a text that spells no metric. The listed metrics have the cut of the text,
    so that they can be copied.
    """
    if re.search(r"@0+(?!\d)", text):  # a cut of 0
        return UnknownName(
            "metric", text, spellings(), meant=f"{text.partition('@')[0]}@1, for k is 1 or more"
        )
    # the spelling of another library, such as ndcg_at_10
    if (meant := meant_by(text)) is not None:
        return UnknownName("metric", text, spellings(), meant=meant)
    cut = re.search(r"@([1-9]\d*)(?=[/#]|$)", text)  # a number alone, and not that of R@1e3
    return UnknownName("metric", text, spellings(cut[1] if cut else "k"))


def spellings(cut: str = "k") -> list[str]:
    """Return the spellings of the registered metrics, with this `cut`, a number or "k".

    >>> "R@5" in spellings("5"), "AP#level" in spellings()
    (True, True)
    """
    shapes = set()
    for base in metrics:
        # A registered name may end in the mark of a cut (@) or of a level (# or /). ASI/, the ASI
        # of one level, is listed as ASI; AP# keeps its mark, as it is another metric than AP.
        shape = base.rstrip("/@")
        if "cut" in metrics[base].takes:
            shape += f"@{cut}"
        shapes.add(f"{shape}level" if shape.endswith("#") else shape)
    return sorted(shapes)
