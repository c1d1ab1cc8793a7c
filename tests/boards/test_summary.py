"""The summary of a pull request: whatever a row or a server says is text there, in one cell."""

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbench.boards.proof.summary import as_markdown, escaped

pytestmark = pytest.mark.fast

HOSTILE = (
    "a\\|b", "a|verified|b", "<img src=x onerror=alert(1)>", "##[error]forged", "::error::forged",
    "a\n::error file=x::b", "`code`",
    "a\r\n| sop | mine | verified | |", "[a](https://example.org)", "![](http://example.org/x.png)",
    "*bold* _thin_ __b__ ~~c~~",
    "&lt;img&gt;", "&#124;", "https://example.org/|x", "www.example.org", "@everyone", "#12",
    "\u202everified", "a\u2028b",
    "\x1b[31m",
    "$x$", "```\na\n```", "::set-output name=x::y", ":::warning::x", "<!-- a", "##[add-mask]x",
    "\\", "x\\",
)  # fmt: skip
MARK = re.compile(
    r"[<>|\\`*\[\]~$]|##|::|://|www\.|[\x00-\x1f\x7f\u2028\u2029\u202e]|&(?!#[0-9]+;)|(?:^|[ ])[@_]"
)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_mark_of_markdown_or_of_a_log_is_left(text):
    assert not MARK.search(escaped(text))
    assert (
        unescape(escaped(text)).split()
        == " ".join(re.sub("[\u202e\x1b]", " ", text).split()).split()
    )
    lines = list(as_markdown([("sop", text, "differs", f"found {text}")]))
    assert len(lines) == 3
    assert "".join(lines[2:]).count("|") == 5


@given(st.text())
def test_any_text_is_one_cell_of_text(text):
    assert not MARK.search(escaped(text))


def test_ordinary_words_stay_as_they_are():
    for text in (
        "pixels → PCA (64)",
        "R@1 81.2; expected 59.4, found 60",
        "super_class",
        "Sum-AP, without L_clust (ours) + 1 %",
    ):
        assert escaped(text) == text
    assert len(escaped("a" * 10_000)) == 500
