"""Prepares names for pages: long names keep the part that tells them apart, and text between
backticks is set as code.

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
    """Shorten names of more than `most` letters, each to what tells it from the others.

    The whole words that all names begin with are left out of a long name, and then the middle if it
    is still too long; "…" stands for what is left out. All names stay whole if two would become
    equal.
    """
    given = list(names)
    shared = _beginning(given) if len(given) > 1 else ""
    ends = [found.end() for found in WORD_ENDS.finditer(shared)]
    begin = ends[-1] if ends else 0  # after the last whole word of the shared beginning, or 0
    shown = []
    for name in given:
        rest = name
        if len(name) > most and begin:
            rest = f"…{name[begin:]}"
        if len(rest) > most:
            # both halves and the "…" have `most` letters together, for an even `most`
            rest = f"{rest[: most // 2]}…{rest[-(most // 2 - 1) :]}"
        shown.append(rest)
    # a name given twice is not a collision, hence the sets on both sides
    return shown if len(set(shown)) == len(set(given)) else given


def _beginning(names: Sequence[str]) -> str:
    """The beginning that all names share."""
    return "".join(
        letters[0]
        for letters in takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    )


def coded(text: object) -> Markup:
    """Return a text for a page, escaped, with the parts between backticks as code."""
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", str(escape(text))))


def tail(name: str, most: int = 14) -> str:
    """Return the end of a name of more than `most` letters, since image ids differ at their ends.

    >>> tail("folder/with/long/path/IMG_00118.jpg"), tail("a.jpg")
    ('…IMG_00118.jpg', 'a.jpg')
    """
    return name if len(name) <= most else f"…{name[1 - most :]}"


def plain(text: object) -> str:
    """Return a text without its backticks, for places that cannot show code, such as a title."""
    return str(text).replace("`", "")
