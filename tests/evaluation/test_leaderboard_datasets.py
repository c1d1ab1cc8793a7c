"""Leaderboards and datasets speak of the same things."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbench.datasets import load, specs
from hbench.evaluation import leaderboard
from hbench.evaluation.evaluate import digest_of

SHARED = sorted(set(leaderboard.names()) & set(specs))


@pytest.mark.parametrize("name", SHARED)
def test_a_leaderboard_has_the_levels_of_its_dataset(name):
    assert tuple(leaderboard.read(name).levels) == tuple(specs[name].levels)


def test_the_papers_benchmarks_have_both():
    assert {"sop", "inat18-base", "inat18-full", "cub200", "inshop", "hgldv2"} <= set(SHARED)
    assert {"dyml-vehicle", "dyml-animal", "dyml-product"} <= set(SHARED)


def test_the_shipped_rows_of_the_embedded_benchmark_are_of_its_items_as_they_are_now():
    shipped = leaderboard.read_file(Path(__file__).parents[2] / "leaderboards" / "glyphs.toml")
    assert {row.run.dataset_digest for row in shipped.rows} == {digest_of(load("glyphs"))}
