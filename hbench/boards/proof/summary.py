"""Writes verdicts as a Markdown table for the summary of a pull request. Texts of rows and servers
are escaped, so that they cannot act as markup.

>>> escaped("a | b <img> ##[error] ::error:: R@1 super_class")
'a &#124; b &#60;img&#62; &#35;&#35;&#91;error&#93; &#58;:error&#58;: R@1 super_class'
>>> escaped("https://example.org `x`")
'https&#58;//example.org &#96;x&#96;'
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator

LONGEST = 500  # characters of a cell
MARKUP = re.compile(
    # entities, HTML, cells, code, emphasis, links, references, commands such as ##[error]
    r"[&<>|\\`*\[\]#~$]"
    r"|(?<![^\W_])[_@]|_(?![^\W_])"  # emphasis and mentions, but not super_class and R@1
    r"|:(?=:|//)"  # commands such as ::error::, and addresses
    r"|(?<=www)\."
)


def escaped(text: str) -> str:
    """Escape a text from an untrusted source, so that Markdown and GitHub's log show it as plain
    text in one line. A text that is too long for a cell is cut off.
    """
    # control characters (C) and all kinds of blanks (Z) become a space
    visible = "".join(" " if unicodedata.category(char)[0] in "CZ" else char for char in text)
    line = " ".join(visible.split())
    shown = line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
    # MARKUP matches single characters, which become entities, such as &#124; for a bar
    return MARKUP.sub(lambda found: f"&#{ord(found[0])};", shown)


def as_markdown(verdicts: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a table of verdicts: leaderboard, method, verdict and detail."""
    yield "| leaderboard | method | verdict | |"
    yield "|---|---|---|---|"
    for verdict in verdicts:
        yield "| " + " | ".join(map(escaped, verdict)) + " |"
