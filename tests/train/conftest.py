"""Fixtures of the tests of training: a small part of glyphs, drawn once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbench.core.paths import cache_home, data_home
from hbench.datasets import Dataset
from tests.training import small_glyphs


@pytest.fixture(scope="session")
def letters() -> Dataset:
    return small_glyphs()


@pytest.fixture
def consents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of consents, empty; data and cache stay those of whoever runs the tests."""
    monkeypatch.setenv("HBENCH_DATA", str(data_home()))
    monkeypatch.setenv("HBENCH_CACHE", str(cache_home()))
    monkeypatch.setenv("HBENCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "trusted"
