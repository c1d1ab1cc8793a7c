"""The paths by which the engine ranks positives, so that small tests take each of them."""

from __future__ import annotations

from hbench.core import compiled
from hbench.engine import score_blocks
from hbench.engine.executors import triangle
from hbench.engine.kernels import rank_positives

FORMULAS, ALL_COMPARED, ALL_LOOKED_UP, BY_PORTIONS, MIXED = (
    None,
    (10**6, 10**4),
    (0, 10**4),
    (0, 3),
    (2, 6),
)
WAYS = [FORMULAS, ALL_COMPARED, ALL_LOOKED_UP, BY_PORTIONS, MIXED]


def go(monkeypatch, way):
    """Until the test ends, take one path: the formulas, or compiled code that compares up to the
    first number of positives, and looks up as many at once as the second says."""
    monkeypatch.setattr(compiled, "MIN_COMPILED", 10**9 if way is FORMULAS else -1)
    few, portion = way or MIXED
    for name, value in {"MAX_COMPARED": few, "PORTION": portion}.items():
        monkeypatch.setattr(rank_positives, name, value)


def small_blocks(monkeypatch):
    """Until the test ends, take blocks of 16 queries and chunks of 24 items, so that small sets
    have many tiles, and half of the products of small sets, too."""
    monkeypatch.setattr(score_blocks, "BLOCK", 16)
    monkeypatch.setattr(score_blocks, "CHUNK", 24 * 8 * 4)
    monkeypatch.setattr(triangle, "MIN_TRIANGLE", 0)
