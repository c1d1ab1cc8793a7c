"""Machine code that is kept: for the sources it was made of, beside them or in the cache folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hbench.core import compiled

INNER = """
from hbench.core.compiled import compiled

@compiled
def factor(number):
    return number * {factor}
"""
OUTER = """
from hbench.core.compiled import compiled
from parts.inner import factor

@compiled
def product(number):
    return factor(number)
"""
RUN = """
from hbench.core.compiled import is_cached
from parts.outer import product
print(is_cached(product), product(10), is_cached(product), sum(product.dispatcher.stats.cache_hits.values()))
"""


@pytest.fixture
def run(tmp_path):
    """Writes a package of two modules, one of whose functions call the other's, and runs it in a process of its own."""
    package = tmp_path / "parts"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "outer.py").write_text(OUTER)

    def run(factor, **changes):
        (package / "inner.py").write_text(INNER.format(factor=factor))
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_CACHE_DIR": "", **changes}
        line = [sys.executable, "-c", RUN]
        return subprocess.run(
            line, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        ).stdout.split()

    return run


def test_code_is_kept_until_a_function_it_calls_in_another_file_changes(run):
    assert run(factor=2) == ["False", "20", "True", "0"]
    assert run(factor=2) == ["True", "20", "True", "1"]
    assert run(factor=7) == ["False", "70", "True", "0"]
    assert run(factor=2) == ["True", "20", "True", "1"]  # as another branch of a checkout has it


def test_modules_with_compiled_functions_import_in_the_form_that_is_looked_for():
    sources = {path: path.read_text() for path in (Path(__file__).parents[2] / "hbench").rglob("*.py")}
    compiling = {path: text for path, text in sources.items() if re.search(r"^@compiled", text, re.M)}
    assert len(compiling) >= 7  # all there are
    assert [
        path for path, text in compiling.items() if re.search(r"^(import hbench|from (hbench|\.+) )", text, re.M)
    ] == []


def test_code_lies_beside_the_module_or_where_numba_is_told(run, tmp_path):
    run(factor=2)
    assert list((tmp_path / "parts" / "__pycache__").rglob("outer.product-*.nbi"))
    run(factor=2, NUMBA_CACHE_DIR=str(tmp_path / "told"))
    assert list((tmp_path / "told").rglob("outer.product-*.nbi"))


def test_where_the_package_cannot_be_written_code_lies_in_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    package = tmp_path / "no folder"
    package.touch()
    assert compiled.kept_in(package) == tmp_path / "kernels"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders have no owners here")
def test_code_is_kept_only_where_nobody_else_can_leave_it(monkeypatch, tmp_path):
    monkeypatch.setenv("HBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    package, shared = tmp_path / "package", tmp_path / "shared" / "package"
    for folder, mode in ((package / "__pycache__", 0o777), (shared / "__pycache__", 0o755)):
        folder.mkdir(parents=True)
        folder.chmod(mode)
    shared.chmod(0o777)  # then the folder in it can be exchanged
    assert [compiled.kept_in(each) for each in (package, shared)] == [tmp_path / "cache" / "kernels"] * 2
    (tmp_path / "cache" / "kernels").chmod(0o777)
    compiled.kept_in.cache_clear()
    assert compiled.kept_in(package) is None
    (package / "__pycache__").chmod(0o755)
    compiled.kept_in.cache_clear()
    assert compiled.kept_in(package) == package / "__pycache__"


def test_where_nothing_can_be_written_code_is_made_each_time(run, tmp_path):
    (tmp_path / "file").touch()
    nowhere = str(tmp_path / "file" / "in it")
    assert [run(factor=2, NUMBA_CACHE_DIR=nowhere) for _ in range(2)] == [["False", "20", "False", "0"]] * 2


def test_the_number_of_compilations_is_reported():
    assert compiled.announcement().endswith("this once")
