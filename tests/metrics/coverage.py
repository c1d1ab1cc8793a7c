"""How often a 95 % interval holds the truth, and how often two equal models are told apart, in
simulated test sets.

`python -m tests.metrics.coverage` prints the tables of docs/intervals.md, the same every time. A
test set is drawn anew in each repetition: classes at random, queries at random inside each; the
truth is the mean over all classes that there might be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hbench.metrics.significance import UnitSums, difference_intervals, mean_intervals, sign_flip_p

REPETITIONS = 4000
AT_ONCE = 50
Floats = NDArray[np.float64]
RNG = np.random.default_rng(7)
DESIGNS: dict[str, NDArray[np.int64]] = {
    "25 classes × 40": np.full(25, 40),
    "50 × 20": np.full(50, 20),
    "100 × 5": np.full(100, 5),
    "300, uneven": np.maximum(1, np.exp(RNG.normal(np.log(4), 1, 300)).round()).astype(
        int
    ),  # lognormal
}

UNEVEN: dict[str, NDArray[np.int64]] = {
    "25 × 20": np.full(25, 20),
    "50, lognormal (24 effective)": np.maximum(
        1, np.exp(np.random.default_rng(5).normal(np.log(8), 1, 50)).round()
    ).astype(int),
    "100, Pareto (45 effective)": np.maximum(
        2, ((np.random.default_rng(5).pareto(1.2, 100) + 1) * 6)
    ).astype(int),
}


def even_values(units: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Values around .5: a class's mean varies by .12, its queries by .15."""
    means = rng.normal(0.5, 0.12, (REPETITIONS, units.max() + 1))
    return np.clip(means[:, units] + rng.normal(0, 0.15, (REPETITIONS, len(units))), 0, 1)


def skewed_ap(units: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Values as of AP on a hard set: mean .2, most classes near 0, a few near 1, their queries
    spread as far as 0 or 1 is.
    """
    means = rng.beta(0.4, 1.6, (REPETITIONS, units.max() + 1))[:, units]
    return means + np.minimum(means, 1 - means) * rng.uniform(-1, 1, means.shape)


def right_or_wrong(units: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """R@1: .7 on average, and by class from .1 to 1."""
    rates = rng.beta(0.7 * 2.3, 0.3 * 2.3, (REPETITIONS, units.max() + 1))[:, units]
    return (rng.random(rates.shape) < rates).astype(float)


KINDS: dict[str, tuple[Callable[[NDArray[np.int64], np.random.Generator], Floats], float]] = {
    "even": (even_values, 0.5),
    "skewed AP": (skewed_ap, 0.2),
    "R@1 of .7": (right_or_wrong, 0.7),
}


def held(values: Floats, units: NDArray[np.int64], truth: float) -> float:
    """The share of repetitions (R, Q) whose interval holds the truth; some at a time, which is
    quicker.
    """
    parts = np.array_split(values, REPETITIONS // 50)
    intervals = np.concatenate([mean_intervals(UnitSums.of(part, units)) for part in parts])
    return share_that_holds(intervals, truth)


def share_that_holds(intervals: Floats, truth: float) -> float:
    return float(((intervals[:, 0] <= truth) & (truth <= intervals[:, 1])).mean())


def coverage_of_classes() -> dict[tuple[str, str], tuple[float, float]]:
    """Count, by design and kind of values, how often the interval over classes, and one over
    queries, holds the truth.
    """
    found = {}
    for design, sizes in DESIGNS.items():
        units = np.repeat(np.arange(len(sizes)), sizes)
        for kind, (draw, truth) in KINDS.items():
            values = draw(units, np.random.default_rng(11))
            found[design, kind] = (
                held(values, units, truth),
                held(values, np.arange(len(units)), truth),
            )
    return found


def coverage_of_rates() -> dict[tuple[float, int], float]:
    """By true R@1 and number of independent queries, how often the interval holds the truth."""
    found = {}
    for rate in (0.99, 0.95, 0.5):
        for queries in (30, 100):
            right = np.random.default_rng(13).random((REPETITIONS, queries)) < rate
            found[rate, queries] = held(right.astype(float), np.arange(queries), rate)
    return found


def coverage_near_one() -> dict[tuple[str, float], float]:
    """By design and true R@1, how often the interval over classes holds it, where a few classes
    make most mistakes.
    """
    found = {}
    for design, sizes in UNEVEN.items():
        units = np.repeat(np.arange(len(sizes)), sizes)
        for rate in (0.9, 0.95, 0.98, 0.99):
            rng = np.random.default_rng(19)
            rates = rng.beta(rate * 2.3, (1 - rate) * 2.3, (REPETITIONS, len(sizes)))[:, units]
            found[design, rate] = held((rng.random(rates.shape) < rates).astype(float), units, rate)
    return found


def long_tails() -> dict[str, NDArray[np.int64]]:
    """Sizes of classes by Pareto's law with the exponent 1.1, whose effective classes are few."""
    found = {}
    for seed, number in ((11, 100), (3, 200), (10, 300), (7, 800), (8, 1000)):
        drawn = (np.random.default_rng(seed).pareto(1.1, number) + 1) * 4
        sizes = np.maximum(2, drawn).astype(int)
        effective = sizes.sum() ** 2 / (sizes.astype(float) ** 2).sum()
        found[f"{number}, Pareto 1.1 ({effective:.0f} effective)"] = sizes
    return found


def coverage_on_long_tails(
    designs: dict[str, NDArray[np.int64]], rates: Sequence[float], repetitions: int
) -> dict[tuple[str, float], float]:
    """The same where most of the weight is in a few large classes, some test sets at a time."""
    found = {}
    for design, sizes in designs.items():
        units = np.repeat(np.arange(len(sizes)), sizes)
        for rate in rates:
            rng = np.random.default_rng(23)
            holding = []
            for _ in range(repetitions // AT_ONCE):
                by_class = rng.beta(rate * 2.3, (1 - rate) * 2.3, (AT_ONCE, len(sizes)))
                right = (rng.random((AT_ONCE, len(units))) < by_class[:, units]).astype(float)
                holding.append(share_that_holds(mean_intervals(UnitSums.of(right, units)), rate))
            found[design, rate] = float(np.mean(holding))
    return found


def levels_of_the_test() -> dict[tuple[str, str], tuple[float, float]]:
    """By design and kind, how often two models of equal merit are told apart at .05, by classes and
    by queries; and how often the interval of their difference over classes holds 0."""
    found = {}
    for design, sizes in DESIGNS.items():
        units = np.repeat(np.arange(len(sizes)), sizes)
        for kind, (draw, _) in KINDS.items():
            rng = np.random.default_rng(17)
            sums = UnitSums.of(draw(units, rng) - draw(units, rng), units)
            found[design, kind] = (
                float((sign_flip_p(sums) <= 0.05).mean()),
                share_that_holds(difference_intervals(sums), 0),
            )
    return found


def main() -> None:
    print("| test set | values | holds the truth, over classes | over queries |\n|---|---|---|---|")
    for (design, kind), (by_class, by_query) in coverage_of_classes().items():
        print(f"| {design} | {kind} | {100 * by_class:.1f} % | {100 * by_query:.0f} % |")
    print("\n| true R@1 | queries | holds the truth |\n|---|---|---|")
    for (rate, queries), share in coverage_of_rates().items():
        print(f"| {rate} | {queries} | {100 * share:.1f} % |")
    print("\n| test set | true R@1 | holds the truth |\n|---|---|---|")
    for (design, rate), share in coverage_near_one().items():
        print(f"| {design} | {rate} | {100 * share:.1f} % |")
    print("\n| test set | true R@1 | holds the truth |\n|---|---|---|")
    on_tails = coverage_on_long_tails(long_tails(), (0.9, 0.95, 0.98, 0.99), REPETITIONS // 4)
    for (design, rate), share in on_tails.items():
        print(f"| {design} | {rate} | {100 * share:.1f} % |")
    print(
        "\n| test set | values | told apart at .05 | interval of the difference holds 0 "
        "|\n|---|---|---|---|"
    )
    for (design, kind), (level, share) in levels_of_the_test().items():
        print(f"| {design} | {kind} | {100 * level:.1f} % | {100 * share:.1f} % |")


if __name__ == "__main__":
    main()
