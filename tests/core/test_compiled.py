"""Machine code that is kept: for the sources it was made of, in the cache folder."""

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
    """Writes a package of two modules, one of whose functions call the other's, and runs it in a
    process of its own.
    """
    package = tmp_path / "parts"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "outer.py").write_text(OUTER)

    def run(factor, **changes):
        (package / "inner.py").write_text(INNER.format(factor=factor))
        cache = {"HBENCH_CACHE": str(tmp_path / "kept")}
        environment = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_CACHE_DIR": "",
            **cache,
            **changes,
        }
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
    sources = {
        path: path.read_text() for path in (Path(__file__).parents[2] / "hbench").rglob("*.py")
    }
    compiling = {
        path: text for path, text in sources.items() if re.search(r"^@compiled", text, re.M)
    }
    assert len(compiling) >= 7  # all there are
    assert [
        path
        for path, text in compiling.items()
        if re.search(r"^(import hbench|from (hbench|\.+) )", text, re.M)
    ] == []


def test_code_lies_in_the_users_cache_or_where_numba_is_told_and_never_in_the_package(
    run, tmp_path
):
    run(factor=2, HBENCH_CACHE=str(tmp_path / "cache"), NUMBA_CACHE_DIR="")
    assert list((tmp_path / "cache" / "kernels").rglob("outer.product-*.nbi"))
    run(factor=2, NUMBA_CACHE_DIR=str(tmp_path / "told"))
    assert list((tmp_path / "told").rglob("outer.product-*.nbi"))
    assert not list((tmp_path / "parts").rglob("*.nbi"))


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders have no owners here")
def test_code_is_kept_only_where_nobody_else_can_leave_it(monkeypatch, tmp_path):
    monkeypatch.setenv("HBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    for mode, expected in ((0o755, tmp_path / "cache" / "kernels"), (0o777, None)):
        (tmp_path / "cache" / "kernels").mkdir(parents=True, exist_ok=True)
        (tmp_path / "cache" / "kernels").chmod(mode)
        compiled.kernel_folder.cache_clear()
        assert compiled.kernel_folder() == expected
    compiled.kernel_folder.cache_clear()


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="only root gives files away")
def test_a_folder_that_a_nameless_group_can_write_to_is_not_the_users_own(tmp_path):
    os.chown(tmp_path, 0, 54_321)  # a group without a name, as in containers
    for mode, expected in ((0o755, True), (0o770, False)):
        tmp_path.chmod(mode)
        assert compiled.is_own(tmp_path) == expected
