"""Steps from rows of scores to sums: compiled by numba, or in numpy alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hbench import kernel, order, plain, sums, whole
from hbench.compiled import is_kept, pays


class Steps(NamedTuple):
    """Functions with the arguments of hbench/plain.py. `how`: how ranks are found."""

    sort: Callable[..., None]
    rank: Callable[..., None]
    levels_of_best: Callable[..., None]
    sum_up: Callable[..., None]
    how: Callable[[bool], kernel.How]

    @property
    def are_kept(self) -> bool:
        """Whether nothing has to be compiled first, of what every evaluation calls; the rest is little."""
        functions: list[Any] = [self.sum_up, kernel.rank_rows, order.write_keys]
        return self is PLAIN or all(map(is_kept, functions))


def steps_for(pairs: int) -> Steps:
    """The steps for a test of so many pairs of a query and an item; the test alone decides, whoever computes a part."""
    return COMPILED if pays(pairs) else PLAIN


def how_compiled(pessimistic: bool) -> kernel.How:
    return kernel.How(pessimistic, kernel.FEW, kernel.MANY)


def how_plain(pessimistic: bool) -> kernel.How:
    return kernel.How(pessimistic, 0, 0)


COMPILED = Steps(order.sort, kernel.rank_rows, whole.levels_of_best, sums.sum_up, how_compiled)
PLAIN = Steps(plain.sort, plain.rank_rows, plain.levels_of_best, plain.sum_up, how_plain)
