"""Chooses a part of the classes to set a threshold on, by digests of their numbers, so that
neighbours in name are set apart and every run chooses the same.

>>> units = np.array([0, 0, 1, 2, 3])
>>> int(in_first_half(units).sum()) in (2, 3), part_of_units(units, 1.0).tolist()
(True, [True, True, True, True, True])
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from hbench.trust.climbing import Positions


def in_first_half(units: Positions) -> NDArray[np.bool_]:
    """Whether the unit of each item (N,), such as its class, is in the first of two halves of the
    units; the same ones each time."""
    different, of_item = np.unique(units, return_inverse=True)
    return _chosen(different, len(different) // 2, salt="")[of_item.ravel()]


def part_of_units(units: Positions, share: float) -> NDArray[np.bool_]:
    """Whether the unit of each item (N,), such as its class, is in a share (0 … 1) of the units;
    the same ones each time, but others than of `in_first_half`."""
    different, of_item = np.unique(units, return_inverse=True)
    # another salt, another order of the units: the part is independent of the halves
    number = round(share * len(different))
    return _chosen(different, number, salt="calibrate ")[of_item.ravel()]


def _chosen(units: Positions, number: int, salt: str) -> NDArray[np.bool_]:
    """Whether each of G different units (G,) is among the first `number` in the order of their
    digests, which is as good as random, but the same each time. `salt`: text before each unit in
    its digest; another text gives another order."""
    digests = [hashlib.sha256(f"{salt}{unit}".encode()).digest() for unit in units.tolist()]
    order = sorted(range(len(digests)), key=digests.__getitem__)
    first = np.zeros(len(digests), bool)
    first[order[:number]] = True
    return first
