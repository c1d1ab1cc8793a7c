"""Words names for pages: long ones keep what tells them apart, and text between backticks is set as
code.

>>> telling(["vit_large_patch14_dinov2_lvd142m", "vit_large_patch14_dinov2_reg4_lvd142m"])
['…lvd142m', '…reg4_lvd142m']
>>> telling(["resnet50", "vit_large_patch14_dinov2_lvd142m"])
['resnet50', 'vit_large_pa…ov2_lvd142m']
>>> str(coded("`hbench demo` makes <b>"))
'<code>hbench demo</code> makes &lt;b&gt;'
"""

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile

from markupsafe import Markup, escape

MAX_LETTERS = 24  # letters of a name in the head of a column
WORD_ENDS = re.compile(r"[\s_/.,:-]")


def telling(names: Iterable[str], most: int = MAX_LETTERS) -> list[str]:
    """Shorten the names that have more than `most` letters, for the head of a column.

    A long name loses the words that all names begin with and, if it is still too long, its middle.
    If two names would become the same, all are returned as they were.
    """
    given = list(names)
    # a single name shares its whole self with all, and would lose it
    shared = _beginning(given) if len(given) > 1 else ""
    # cut after a whole word: of "vit_large" and "vit_lite", "vit_" and not "vit_l"
    ends = [found.end() for found in WORD_ENDS.finditer(shared)]
    begin = ends[-1] if ends else 0
    shown = []
    for name in given:
        rest = name
        if len(name) > most and begin:
            rest = f"…{name[begin:]}"
        if len(rest) > most:
            # both halves and the "…" between them are `most` letters
            rest = f"{rest[: most // 2]}…{rest[-(most // 2 - 1) :]}"
        shown.append(rest)
    return shown if len(set(shown)) == len(set(given)) else given


def _beginning(names: Sequence[str]) -> str:
    """The letters that all names begin with, such as "vit_l" of "vit_large" and "vit_lite"."""
    by_place = zip(*names, strict=False)  # the first letters of all names, then the second ones, …
    shared = takewhile(lambda letters: len(set(letters)) == 1, by_place)
    return "".join(letters[0] for letters in shared)


def coded(text: object) -> Markup:
    """Make a text safe for a page: escape it, and set what stands between backticks as code.

    It is escaped first, so that only the <code> added here is markup.
    """
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", str(escape(text))))


def tail(name: str, most: int = 14) -> str:
    """The end of a name of more than this many letters, since ids of images differ there.

    >>> tail("folder/with/long/path/IMG_00118.jpg"), tail("a.jpg")
    ('…IMG_00118.jpg', 'a.jpg')
    """
    return name if len(name) <= most else f"…{name[1 - most :]}"


def plain(text: object) -> str:
    """Remove the backticks around code from a text, for where a page cannot show code, as in a
    title."""
    return str(text).replace("`", "")
