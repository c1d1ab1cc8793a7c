"""Steps from rows of scores to sums: compiled by numba, or in numpy alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hbench.core.compiled import is_kept, pays
from hbench.engine.kernels import numpy_twins, rank_full_rows, rank_positives, rank_sums, sort_keys


class Kernels(NamedTuple):
    """Functions with the arguments of hbench/engine/kernels/numpy_twins.py. `how`: how ranks are found."""

    sort: Callable[..., None]
    rank: Callable[..., None]
    levels_of_best: Callable[..., None]
    sum_up: Callable[..., None]
    how: Callable[[bool], rank_positives.RankingRule]

    @property
    def are_kept(self) -> bool:
        """Whether nothing has to be compiled first, of what every evaluation calls; the rest is little."""
        functions: list[Any] = [self.sum_up, rank_positives.rank_rows, sort_keys.write_keys]
        return self is PLAIN or all(map(is_kept, functions))


def steps_for(pairs: int) -> Kernels:
    """The steps for a test of so many pairs of a query and an item; the test alone decides, whoever computes a part."""
    return COMPILED if pays(pairs) else PLAIN


def how_compiled(pessimistic: bool) -> rank_positives.RankingRule:
    return rank_positives.RankingRule(pessimistic, rank_positives.FEW, rank_positives.MANY)


def how_plain(pessimistic: bool) -> rank_positives.RankingRule:
    return rank_positives.RankingRule(pessimistic, 0, 0)


COMPILED = Kernels(
    sort_keys.sort, rank_positives.rank_rows, rank_full_rows.levels_of_best, rank_sums.sum_up, how_compiled
)
PLAIN = Kernels(numpy_twins.sort, numpy_twins.rank_rows, numpy_twins.levels_of_best, numpy_twins.sum_up, how_plain)
