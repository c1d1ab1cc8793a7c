"""Chooses a part of the classes on which to set a threshold. The choice goes by digests of the
classes' numbers, so that it is independent of the order of names, and the same in every run.

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
    """Whether each item (N,) is in the first of two halves of the units. `units` (N,): the unit of
    each item, such as its class. The halves are the same at each call."""
    different, of_item = np.unique(units, return_inverse=True)
    return _chosen(different, len(different) // 2, salt="")[of_item.ravel()]


def part_of_units(units: Positions, share: float) -> NDArray[np.bool_]:
    """Whether each item (N,) is in a part of the units, which has this `share` (0 … 1) of all
    units. `units` (N,): the unit of each item, such as its class. The part is the same at each
    call, and is chosen independently of the halves of `in_first_half`."""
    different, of_item = np.unique(units, return_inverse=True)
    # another salt gives another order of the units, so the part is independent of the halves
    number = round(share * len(different))
    return _chosen(different, number, salt="calibrate ")[of_item.ravel()]


def _chosen(units: Positions, number: int, salt: str) -> NDArray[np.bool_]:
    """Whether each of the different `units` (G,) is among the first `number` in the order of their
    digests, which is as good as random, but the same at each call. `salt`: text that is put before
    each unit to make its digest; another text gives another order."""
    digests = [hashlib.sha256(f"{salt}{unit}".encode()).digest() for unit in units.tolist()]
    order = sorted(range(len(digests)), key=digests.__getitem__)
    first = np.zeros(len(digests), bool)
    first[order[:number]] = True
    return first
