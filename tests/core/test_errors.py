"""Messages: what would steer a terminal is written out, wherever text from outside is shown."""

import os
import pty
import subprocess
import sys

import pytest

from hbench.core.errors import STEERING, HBenchError, visible

HOSTILE = "a\x1b]0;owned\x07"


def test_what_would_steer_a_terminal_is_written_out():
    hostile = "a\x1b]0;owned\x07\x9b31m\u202eb\u2066c\ud800\r\x7f"
    shown = visible(hostile)
    assert shown == "a\\x1b]0;owned\\x07\\x9b31m\\u202eb\\u2066c\\ud800\\r\\x7f"
    assert shown.encode()
    assert visible(shown) == shown
    assert visible("Ünïcode 犬 😀\n\tplain") == "Ünïcode 犬 😀\n\tplain"
    error = HBenchError(hostile, expected=hostile, found=hostile, fix=hostile)
    assert not STEERING.search(str(error))


def on_a_terminal(*arguments):
    """What hbench prints where a terminal listens."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "hbench", *arguments], stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # all its writers have ended
                break
            if not part:
                break
            parts.append(part)
        process.wait()
    os.close(ours)
    return b"".join(parts)


@pytest.mark.parametrize("arguments", [("tree", "show"), ("tree", "export"), ("tree", "validate"), ("evaluate", "-d")])
def test_names_in_files_do_not_steer_the_terminal(tmp_path, arguments):
    table = tmp_path / "own.csv"
    table.write_text(f"item,{HOSTILE}\nx,{HOSTILE}\ny,b\n", encoding="utf-8")
    *verb, last = arguments
    words = (
        (*verb, last, str(table)) if last != "-d" else (*verb, str(tmp_path / "no\x1b]0;owned.npz"), last, str(table))
    )
    shown = on_a_terminal(*words)
    assert b"owned" in shown
    assert b"\x1b]0" not in shown
