"""Fixtures of the tests of training: a small part of glyphs, drawn once."""

from __future__ import annotations

import pytest

from hbench.datasets import Dataset
from tests.training import small_glyphs


@pytest.fixture(scope="session")
def letters() -> Dataset:
    return small_glyphs()
