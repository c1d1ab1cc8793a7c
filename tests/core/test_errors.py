"""Messages: what would steer a terminal is written out, wherever text from outside is shown."""

import pytest

from hbench.core.errors import STEERING, HBenchError, visible
from tests.command_line import at_a_terminal

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


@pytest.mark.parametrize(
    "arguments", [("tree", "show"), ("tree", "export"), ("tree", "validate"), ("evaluate", "-d")]
)
def test_names_in_files_do_not_steer_the_terminal(tmp_path, arguments):
    table = tmp_path / "own.csv"
    table.write_text(f"item,{HOSTILE}\nx,{HOSTILE}\ny,b\n", encoding="utf-8")
    *verb, last = arguments
    words = (
        (*verb, last, str(table))
        if last != "-d"
        else (*verb, str(tmp_path / "no\x1b]0;owned.npz"), last, str(table))
    )
    shown = at_a_terminal(*words, remarks=True)
    assert "owned" in shown
    assert "\x1b]0" not in shown
