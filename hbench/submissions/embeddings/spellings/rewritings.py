"""The differences in spelling that files, tools and languages make, and how each is undone.

A rewriting has a name, for people, and two functions: one for the ids that are wanted, and one for
those of a file. `spellings` tries them in the order of REWRITINGS.

>>> by_name = {each.name: each for each in REWRITINGS}
>>> by_name["leading zeros"].of_unknown("img_0007.jpg"), by_name["letter case"].of_unknown("A.JPG")
('img_7.jpg', 'a.jpg')
"""

import ast
import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote

Spelling = Callable[[str], str]


class Rewriting(NamedTuple):
    """A difference in spelling by name, and the functions that remove it from the wanted ids and
    from the unknown ids of the file."""

    name: str
    of_wanted: Spelling
    of_unknown: Spelling


def letters_of(name: str) -> tuple[str, str, str]:
    """Three keys of a name that no rewriting changes. Names that share none of them cannot become
    equal, and are not compared.

    The keys are the letters and digits of the last part of the path, of the last part without its
    suffix, and of the whole path without its suffix, in lower case. Zeros are dropped, since they
    pad numbers.
    """
    if MARKED.search(name):  # perhaps with something that Python or an address adds to a name
        name = unquote(_unwrapped(name))
    if not name.isascii():  # repair UTF-8 read as Latin-1, and write letters in one form
        name = unicodedata.normalize("NFKD", _as_utf8(name)).casefold()
        name = "".join(letter for letter in name if letter.isalnum() or letter in "/\\.")
    path = name.replace("\\", "/")
    last = path.rpartition("/")[2]
    return (
        last.translate(LETTERS),
        _stem(last).translate(LETTERS),
        _without_suffix(path).translate(LETTERS),
    )


LETTERS = {
    code: chr(code).lower() if chr(code).isalnum() and chr(code) != "0" else None
    for code in range(128)
}
MARKED = re.compile(r"[%'\"(\[]")
PRINTED = re.compile(
    r"(?:[\w.]*(?:tensor|array|str_|bytes_|str|int\d*|Path))\((.*?)(?:, "
    r"(?:dtype|device)=[^()]*)?\)",
    re.DOTALL,
)
LISTED = re.compile(r"\((.*),\)|\[([^,]*)\]", re.DOTALL)
BYTES = re.compile(r"b(['\"])(.*)\1", re.DOTALL)
ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")


def _unwrapped(name: str) -> str:
    """A name without what Python prints around it, layer by layer."""
    for _ in range(4):
        name = _without_quotes(_without_b(_without_call(name)))
    return name


def _without_call(name: str) -> str:
    """The value inside tensor(…) or np.str_(…), or in a list or tuple of one value."""
    if call := PRINTED.fullmatch(name):
        return _without_quotes(call[1])
    listed = LISTED.fullmatch(name)
    return _without_quotes(listed[1] or listed[2] or "") if listed else name


def _without_b(name: str) -> str:
    """The text of bytes that were printed as b'…'; any other name itself."""
    if not BYTES.fullmatch(name):
        return name
    try:
        return str(ast.literal_eval(name).decode())
    except (ValueError, SyntaxError, MemoryError):  # UnicodeDecodeError is a ValueError
        return name[2:-1]


def _without_quotes(name: str) -> str:
    """A name without one pair of equal quotes around it."""
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"`" else name


def _as_utf8(name: str) -> str:
    """Repair a text whose UTF-8 bytes were decoded as Latin-1, or as Windows' version of it:
    "MÃ¶we" becomes "Möwe". Any other name is returned as it is."""
    for wrong in ("latin-1", "cp1252"):
        try:
            return name.encode(wrong).decode("utf-8")
        except UnicodeError:
            continue
    return name


def _without_suffix(name: str) -> str:
    """A path without the suffix of its last part: a/b.jpg becomes a/b."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + (last.rpartition(".")[0] or last)


def _below(name: str) -> str:
    """A path without its first folder: a/b/c.jpg becomes b/c.jpg."""
    return name.partition("/")[2] or name


def _last(name: str) -> str:
    """The last part of a path with slashes."""
    return name.rpartition("/")[2]


def _with_slashes(name: str) -> str:
    """A path of Windows with slashes in place of its backslashes."""
    return name.replace("\\", "/")


def _as_is(name: str) -> str:
    """The name itself, for a rewriting that changes only the wanted or only the unknown ids."""
    return name


def _composed(name: str) -> str:
    """A name in Unicode's form NFC: ü as one character, where macOS writes u and a mark."""
    return unicodedata.normalize("NFC", name)


def _compatible(name: str) -> str:
    """A name in Unicode's form NFKC: ﬁ and full-width letters become plain ones, too."""
    return unicodedata.normalize("NFKC", name)


def _file_name(name: str) -> str:
    """The last part of a path, with slashes or backslashes."""
    return _last(_with_slashes(name))


def _stem(name: str) -> str:
    """The last part of a path without its suffix: a/b.jpg becomes b."""
    return _without_suffix(_file_name(name))


def _with_underscores(name: str) -> str:
    """A name with underscores in place of its blanks."""
    return name.replace(" ", "_")


def _without_marks(name: str) -> str:
    """A name with underscores in place of its blanks and dashes."""
    return name.translate({ord(mark): "_" for mark in " -"})


def _without_dashes(name: str) -> str:
    """A name without its dashes, since UUIDs are written with and without them."""
    return name.replace("-", "")


def _flat(name: str) -> str:
    """A path as one name, with underscores in place of its slashes."""
    return name.replace("/", "_")


def _without_zeros(name: str) -> str:
    """A name whose numbers have no leading zeros: img_007 becomes img_7."""
    return ZEROS.sub("", name)


REWRITINGS: tuple[Rewriting, ...] = (
    Rewriting("blanks", str.strip, str.strip),
    Rewriting("backslashes", _with_slashes, _with_slashes),
    Rewriting("letter case", str.casefold, str.casefold),
    Rewriting("the Unicode normal form", _composed, _composed),
    Rewriting("the suffix", _without_suffix, _as_is),
    Rewriting("the suffix", _as_is, _without_suffix),
    Rewriting("the suffix", _without_suffix, _without_suffix),
    Rewriting("leading zeros", _without_zeros, _without_zeros),
    Rewriting("underscores for blanks", _with_underscores, _with_underscores),
    Rewriting("dashes", _without_dashes, _without_dashes),
    Rewriting("the quotes around them", _without_quotes, _without_quotes),
    Rewriting("the byte strings (b'…') that Python prints", _without_b, _without_b),
    Rewriting("what Python prints around them", _without_call, _without_call),
    Rewriting("the quoting of addresses (%20)", unquote, unquote),
    Rewriting("the quoting of addresses (%20)", _as_is, unquote),
    Rewriting("UTF-8 that was read as Latin-1", _as_utf8, _as_utf8),
    Rewriting("underscores, dashes and blanks", _without_marks, _without_marks),
    Rewriting("the Unicode normal form (of compatible letters)", _compatible, _compatible),
    Rewriting("the leading folder", _as_is, _below),
    Rewriting("the leading folder", _below, _as_is),
    Rewriting("the leading folder", _last, _last),
    Rewriting("the leading folder", _file_name, _file_name),
    Rewriting("the leading folder and the suffix", _stem, _stem),
    Rewriting("underscores for slashes", _flat, _flat),
)

# rewritings that ignore folders, and how to rewrite ids so that their folders can be compared
OF_FOLDERS: dict[str, Spelling] = {
    "the leading folder": _with_slashes,
    "the leading folder and the suffix": lambda name: _without_suffix(_with_slashes(name)),
}
