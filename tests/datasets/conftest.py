"""Fixtures of the tests of datasets: an empty home of hbench, and an empty folder for raw files."""

import pytest


@pytest.fixture(autouse=True)
def home(empty_home):
    return empty_home


@pytest.fixture
def raw(tmp_path):
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"
