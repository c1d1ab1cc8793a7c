"""Fixtures of the tests of datasets: an empty home of hbench, and an empty folder for raw files."""

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HBENCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def raw(tmp_path):
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"
