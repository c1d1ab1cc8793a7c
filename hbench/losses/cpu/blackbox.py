"""Computes black-box ranks on a CPU: one packed sort forward; backward one sort of the perturbed chosen items and a merge.

A key holds a score, so that descending scores are ascending keys, then the column, then whether the item is chosen: sorting
keys ranks the items, equal scores in column order, and tells the chosen ones without a lookup. numpy sorts them with SIMD.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hbench.core.compiled import machine_code


def usable(scores: Tensor) -> bool:
    """Float32 scores on a CPU."""
    return scores.device.type == "cpu" and scores.dtype == torch.float32


class ChosenRank(torch.autograd.Function):
    """The ranks float32 (P,) of the chosen items, best first in each row, and how many each row has, int64 (Q,)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, lam: float, chosen: Tensor) -> tuple[Tensor, Tensor]:
        rows, flags = scores.detach().contiguous().numpy(), chosen.contiguous().numpy()
        keys = np.empty(rows.shape, dtype=np.uint64)
        for row, flag, key in zip(rows, flags, keys, strict=True):
            _pack(row.view(np.uint32), flag, key)
        keys.sort(axis=1)
        number = np.count_nonzero(flags, axis=1)
        rank = np.empty(int(number.sum()), dtype=np.float32)
        for key, part in zip(keys, _by_row(rank, number), strict=True):
            _chosen_positions(key, part)
        ctx.keys, ctx.rows, ctx.number, ctx.lam = keys, rows, number, lam
        counts = torch.from_numpy(number)
        ctx.mark_non_differentiable(counts)
        return torch.from_numpy(rank), counts

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        grad = np.zeros_like(ctx.rows)
        shifts = _by_row((ctx.lam * upstream[0].detach()).contiguous().numpy(), ctx.number)
        for key, row, shift, slope in zip(ctx.keys, ctx.rows, shifts, grad, strict=True):
            perturbed = _perturb(key, row, shift, slope)
            perturbed.sort()
            _merge(key, perturbed, np.float32(ctx.lam), slope)
        return torch.from_numpy(grad), None, None


def _by_row(values: np.ndarray, number: np.ndarray) -> list[np.ndarray]:
    return np.split(values, np.cumsum(number))[:-1]


@machine_code()
def _key(bits: np.uint32, column: np.uint64, flag: np.uint64) -> np.uint64:
    if bits == np.uint32(0x80000000):  # −0 and 0 are one score
        bits = np.uint32(0)
    descending = bits if bits & np.uint32(0x80000000) else bits ^ np.uint32(0x7FFFFFFF)
    return (np.uint64(descending) << np.uint64(32)) | (column << np.uint64(1)) | flag


@machine_code()
def _column(key: np.uint64) -> np.uint64:
    return (key & np.uint64(0xFFFFFFFF)) >> np.uint64(1)


@machine_code()
def _pack(bits: np.ndarray, chosen: np.ndarray, keys: np.ndarray) -> None:
    for column in range(len(bits)):
        keys[column] = _key(bits[column], np.uint64(column), np.uint64(chosen[column]))


@machine_code()
def _chosen_positions(keys: np.ndarray, rank: np.ndarray) -> None:
    found = 0
    for position in range(len(keys)):
        if keys[position] & np.uint64(1):
            rank[found] = position + 1
            found += 1


@machine_code()
def _perturb(keys: np.ndarray, scores: np.ndarray, shift: np.ndarray, grad: np.ndarray) -> np.ndarray:
    """The keys of y + shift of the chosen items; their old ranks, negated, wait in `grad` for _merge."""
    columns = np.empty(len(shift), dtype=np.uint64)
    moved = np.empty(len(shift), dtype=np.float32)
    found = 0
    for position in range(len(keys)):
        if keys[position] & np.uint64(1):
            column = _column(keys[position])
            columns[found] = column
            moved[found] = scores[column] + shift[found]
            grad[column] = -(position + 1)
            found += 1
    bits = moved.view(np.uint32)
    for item in range(len(shift)):
        columns[item] = _key(bits[item], columns[item], np.uint64(1))
    return columns


@machine_code()
def _merge(keys: np.ndarray, perturbed: np.ndarray, lam: np.float32, grad: np.ndarray) -> None:
    """grad = (new rank − old rank)/λ, walking the unchosen items and the perturbed ones in order; columns that stay keep 0."""
    ahead, moved, unchosen = 0, 0, 0
    for position in range(len(keys)):
        key = keys[position]
        if key & np.uint64(1):
            ahead += 1
            continue
        while moved < len(perturbed) and perturbed[moved] < key:
            column = _column(perturbed[moved])
            grad[column] = (grad[column] + np.float32(unchosen + moved + 1)) / lam
            moved += 1
        if moved != ahead:
            grad[_column(key)] = np.float32(moved - ahead) / lam
        unchosen += 1
    while moved < len(perturbed):
        column = _column(perturbed[moved])
        grad[column] = (grad[column] + np.float32(unchosen + moved + 1)) / lam
        moved += 1
