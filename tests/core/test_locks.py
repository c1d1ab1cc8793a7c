"""Files that are written under a lock: another process waits, and says for what."""

import subprocess
import sys

import pytest

from hbench.core.files import lock_of, locked

pytestmark = pytest.mark.fast

WAITS = """
import sys
from pathlib import Path
from hbench.core.files import locked
with locked(Path(sys.argv[1])):
    print("written")
"""


def test_a_process_that_waits_says_for_which_file(tmp_path):
    path = tmp_path / "board.toml"
    with lock_of(path):
        waiting = subprocess.Popen(
            [sys.executable, "-c", WAITS, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        said = waiting.stderr.readline()
        assert waiting.poll() is None
    output, _ = waiting.communicate(timeout=60)
    assert f"waiting for another process that writes {path}" in said
    assert output == "written\n"


def test_nothing_is_left_beside_the_file(tmp_path):
    with locked(tmp_path / "report.json"):
        assert list(tmp_path.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written_keeps_no_file_from_being_written(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file, in which no folder can be made")
    monkeypatch.setenv("HBENCH_CACHE", str(tmp_path / "cache"))
    with locked(tmp_path / "report.json"):
        (tmp_path / "report.json").write_text("{}")
    assert (tmp_path / "report.json").exists()
