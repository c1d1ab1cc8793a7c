"""Open-set splits: the nodes of one level are dealt to train and test, so that no class is on both sides.

>>> sorted(held_out(["oak", "ash", "elm", "fir"], fraction=0.5, seed=0))
['ash', 'elm']
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def held_out(names: Iterable[str], *, fraction: float, seed: int) -> set[str]:
    """round(fraction·n) of the distinct names: those whose sha256 of "seed:name" is smallest.

    The same on every machine and in every version, and a name added later moves few others.
    """
    ordered = sorted(set(names), key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    return set(ordered[: round(fraction * len(ordered))])
