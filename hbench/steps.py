"""Steps from rows of scores to sums: compiled by numba, or in numpy alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench import kernel, merge, order, plain, sums
from hbench.compiled import is_kept, pays
from hbench.similarity import read_rows


class Steps(NamedTuple):
    """Functions with the arguments of hbench/plain.py; `rank` with those of `rank`. `how`: how ranks are found."""

    sort: Callable[..., None]
    rank: Callable[..., None]
    levels_of_best: Callable[..., None]
    sum_up: Callable[..., None]
    how: Callable[[bool], kernel.How]

    @property
    def are_kept(self) -> bool:
        """Whether nothing has to be compiled first."""
        functions: list[Any] = [self.sum_up, self.levels_of_best, kernel.rank_rows, order.write_keys, read_rows]
        return self is PLAIN or all(map(is_kept, functions))


def steps_for(pairs: int) -> Steps:
    """The steps for a test of so many pairs of a query and an item; the test alone decides, whoever computes a part."""
    return COMPILED if pays(pairs) else PLAIN


def rank(
    rows: NDArray[np.floating],
    sorted_parts: tuple[order.Parts, order.Sorted],
    how: kernel.How,
    room: tuple[kernel.Scratch, NDArray[np.floating]],
    to: kernel.Ranked,
    *,
    merge_by: merge.Merge,
) -> None:
    """Rank the positives of n masked rows of scores (n, G), given their sorted parts."""
    if how.many:
        kernel.rank_rows(rows, *sorted_parts, how, (room[0], to))
    merge.merge_rows(rows, sorted_parts, how, (room[1], to), merge_by)


def how_compiled(pessimistic: bool) -> kernel.How:
    return kernel.How(pessimistic, kernel.FEW, kernel.MANY)


def how_plain(pessimistic: bool) -> kernel.How:
    return kernel.How(pessimistic, 0, 0)


COMPILED = Steps(order.sort, partial(rank, merge_by=merge.merge), kernel.levels_of_best, sums.sum_up, how_compiled)
PLAIN = Steps(plain.sort, partial(rank, merge_by=plain.merge), plain.levels_of_best, plain.sum_up, how_plain)
