"""Reads facts from Wikimedia's dumps, without any request.

The folder holds commonswiki-*-page.sql.gz, -page_props.sql.gz, -redirect.sql.gz and a Wikidata
truthy dump *truthy*.nt.gz or .bz2. The truthy dump is read once per hop, so filter it first:
`bzgrep -E 'prop/direct/P(31|279|301|971|373)>|label>.*@(en|mul) ' …`.

>>> list(values_of(["INSERT INTO `page` VALUES (1,14,'Rock\\\\'n_roll, (1)',0),(2,0,NULL,0.5);"]))
[('1', '14', "Rock'n_roll, (1)", '0'), ('2', '0', '', '0.5')]
"""

import bz2
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hbench.core.errors import DataError
from hbench.core.untrusted import parse_json
from hbench_hgldv2.wikimedia import facts

DUMPED = ("-- MySQL dump", "-- MariaDB dump", "/*M!999999")  # the beginnings of dumps
CATEGORY = "14"  # the namespace of categories
# Two libraries can read such rows, but neither is suitable. mwsql 1.0.4 reads four million rows of
# page_props (193 MB) in 6 s instead of 13 s, but it returns "ab" for the title "a),(b" and "anb"
# for "a\nb", fails on dumps with a row in each line, and is under the GPL. sqlglot 30 takes 12 s
# for a hundred thousand rows.
# The quantifiers are possessive (*+), so that a row is read once, without backtracking.
_QUOTED = r"'[^'\\]*+(?:\\.[^'\\]*+)*+'"
_CELL = re.compile(rf"({_QUOTED}|[^'(),]*+),")
_TUPLE = re.compile(rf"\(((?:{_QUOTED}|[^'(),]*+)(?:,(?:{_QUOTED}|[^'(),]*+))*+)\)")
_ITEM = r"<http://www\.wikidata\.org/entity/(Q\d+)>"
_TRIPLE = re.compile(_ITEM + r" <([^>]+)> (?:" + _ITEM + r'|("(?:[^"\\]|\\.)*")(@\w[\w-]*)?) \.')
# an escaped character: by eight hexadecimal digits, as those beyond 16 bits are, or otherwise
_ESCAPED = re.compile(r"\\(?:U([0-9A-Fa-f]{8})|.)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "Z": "\x1a"}


def source(folder: Path) -> facts.FactSource:
    """Make a source of facts from the dumps in a folder. Raises DataError that names a missing
    file.

    The tables of Commons give the pages. The truthy dump of Wikidata, which has the statements of
    the best rank, gives the entities and their names. Their values of P373, "Commons
    category", are used to find entities by category. `soft_targets` finds nothing:
    category-redirect templates are in the text of pages, which these dumps do not have.
    """
    tables = {name: _file(folder, f"*-{name}.sql*") for name in ("page", "page_props", "redirect")}
    truthy = _file(folder, "*truthy*.nt*")
    return facts.FactSource(
        pages=lambda titles: _pages(tables, titles),
        soft_targets=lambda titles: {},
        by_category=lambda titles: _by_category(truthy, titles),
        entities=lambda ids: _entities(truthy, ids),
        names=lambda ids: _names(truthy, ids),
    )


def values_of(lines: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of all INSERT statements of a MySQL or MariaDB dump, as texts; NULL is "".

    The rows are in the line of the statement or, with newer versions of mariadb-dump, in lines of
    their own. Raises DataError for other text between them, and for a truncated dump.
    """
    inside = False  # an INSERT statement
    is_dump = False  # the header of a dump was read; then the dump must end with a certain line
    is_complete = False  # that line was read
    for line in lines:
        start = 0
        if not inside:
            is_dump = is_dump or line.startswith(DUMPED)
            is_complete = is_complete or line.startswith("-- Dump completed")
            if not line.startswith("INSERT INTO"):
                continue
            inside = True
            start = line.index("VALUES") + len("VALUES")
        yield from _rows_of(line, start)
        inside = not line.rstrip().endswith(";")

    if inside or (is_dump and not is_complete):
        raise DataError(
            "the dump is cut off", expected="-- Dump completed at its end", fix="download it again"
        )


def _rows_of(line: str, place: int) -> Iterator[tuple[str, ...]]:
    """Yield the rows in a line from the position `place` on, with only commas between them."""
    for row in _TUPLE.finditer(line, place):  # group 1 is the row without its parentheses
        if line[place : row.start()].strip(" ,\n"):
            break  # other text before this row; the check below raises
        place = row.end()
        # the text of each cell, without quotes; `_CELL` needs a comma after each, also the last
        yield tuple(map(_text, _CELL.findall(row[1] + ",")))
    if line[place:].strip(" ,\n") not in ("", ";"):
        raise DataError(
            "this is not a row of a dump",
            expected="(1,'text',NULL)",
            found=line[place : place + 60],
        )


class Statement(NamedTuple):
    """An N-Triple about an item: the `item`, a property such as P31 or label, its value, and the
    language of a text, "" for other values."""

    item: str
    prop: str
    value: str
    language: str


def triples(lines: Iterable[str]) -> Iterator[Statement]:
    """Yield the N-Triples whose subject is an item and whose value is an item or a text. Other
    lines are skipped, such as those of unknown values (blank nodes)."""
    for line in lines:
        match = _TRIPLE.match(line)
        if match:
            # of `entity` (an id) and `text` (in quotes), one is None
            item, predicate, entity, text, language = match.groups()
            # a text with its escapes converted is a string of JSON
            value = entity or parse_json(_ESCAPED.sub(_as_in_json, text))
            # the property is the last part of an address; the language begins with an @
            yield Statement(
                item=item,
                prop=re.split(r"[/#]", predicate)[-1],
                value=value,
                language=(language or "")[1:],
            )


def _as_in_json(escape: re.Match[str]) -> str:
    """Convert an escape of N-Triples to JSON, which has no escapes with eight digits or of
    apostrophes. All others are the same in both."""
    digits = escape[1]
    if digits is not None:
        return chr(int(digits, 16))
    return "'" if escape[0] == "\\'" else escape[0]


def _pages(tables: Mapping[str, Path], titles: Sequence[str]) -> dict[str, facts.Page]:
    """Find the pages of titles in the tables of a dump. The tables have millions of rows, so they
    are read row by row, and only what is needed is kept."""
    redirects = _redirects(tables)
    # the spelling in the tables: without "Category:", and with underscores for blanks
    keys = {title: title.partition(":")[2].replace(" ", "_") for title in titles}
    # {title: the name, in this spelling, at the end of the redirects}
    ends = {title: _end(key, redirects) for title, key in keys.items()}
    targets = set(ends.values())
    # the ids and names of the pages of categories that are needed
    name_of_page = {
        page_id: name for page_id, name in _categories(tables["page"]) if name in targets
    }
    items = dict.fromkeys(name_of_page.values(), "")
    for page_id, prop, value, *_ in _rows(tables["page_props"]):
        if prop == "wikibase_item" and page_id in name_of_page:
            items[name_of_page[page_id]] = value

    # a name in the table of pages is a key of `items`, with the value "" if it has no item
    pages = {}
    for title, end in ends.items():
        name = f"Category:{end.replace('_', ' ')}"
        page = facts.existing_page(name, items.get(end, ""), redirected=end != keys[title])
        pages[title] = page if end in items else facts.Page(name, "missing")
    return pages


def _redirects(tables: Mapping[str, Path]) -> dict[str, str]:
    """Return {name of a category: name of the category to which it redirects}. The table of
    redirects knows the redirecting page only by its id, and the table of pages gives its name."""
    # {id of the redirecting page: name of its target}; these are few compared to all pages
    target_of = dict(_categories(tables["redirect"]))
    return {
        name: target_of[page_id]
        for page_id, name in _categories(tables["page"])
        if page_id in target_of
    }


def _categories(table: Path) -> Iterator[tuple[str, str]]:
    """Yield the first and the third cell of the rows about categories: in `page` the id and the
    name of a page, in `redirect` its id and the name of its target. The second cell is the
    namespace."""
    for page_id, namespace, name, *_ in _rows(table):
        if namespace == CATEGORY:
            yield page_id, name


def _end(key: str, redirects: Mapping[str, str]) -> str:
    """Follow redirects from a name to their end; stop if they are too many or circular."""
    seen = {key}
    while key in redirects and redirects[key] not in seen and len(seen) <= facts.MOST_HOPS:
        key = redirects[key]
        seen.add(key)
    return key


def _by_category(truthy: Path, titles: Sequence[str]) -> dict[str, str]:
    """Return {title of a category: the item whose P373 names it}. P373 has no "Category:"."""
    titles_of = {title.partition(":")[2]: title for title in titles}
    return facts.only_items(
        (titles_of[each.value], each.item)
        for each in triples(_lines(truthy))
        if each.prop == "P373" and each.value in titles_of
    )


def _entities(truthy: Path, ids: Sequence[str]) -> dict[str, facts.Entity]:
    """Read {id: entity} from the truthy dump, which has only statements of the best rank. An item
    without a line is missing."""
    requested = set(ids)
    # {item: {property: its values}}
    values: dict[str, dict[str, list[str]]] = {}
    for each in triples(_lines(truthy)):
        if each.item in requested:
            values.setdefault(each.item, {}).setdefault(each.prop, []).append(each.value)
    # a class may be stated several times, with different qualifiers
    for properties in values.values():
        properties[facts.INSTANCE_OF] = list(dict.fromkeys(properties.get(facts.INSTANCE_OF, ())))
    return {i: facts.entity_of(i, values[i]) if i in values else facts.MISSING for i in ids}


def _names(truthy: Path, ids: Sequence[str]) -> dict[str, facts.Named]:
    """Return {item: its label} in English or, without one, in the language for all ("mul")."""
    requested = set(ids)
    labels = {
        (each.item, each.language): each.value
        for each in triples(_lines(truthy))
        if each.prop == "label" and each.language in ("en", "mul") and each.item in requested
    }
    return facts.in_english(ids, labels)


def _rows(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table. Errors name the file; a table without rows raises DataError,
    too."""
    is_empty = True
    try:
        for row in values_of(_lines(path)):
            is_empty = False
            yield row
    except (DataError, EOFError, OSError, UnicodeDecodeError, zlib.error) as error:
        raise DataError(f"{path} cannot be read as a dump", found=str(error)) from None
    if is_empty:
        raise DataError(
            f"{path} has no rows", expected="INSERT INTO … VALUES (…), (…)", fix="download it again"
        )


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a dump, which may be compressed, without unpacking it as a whole."""
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
    with opener(path, "rt", encoding="utf-8") as lines:
        yield from lines


def _file(folder: Path, pattern: str) -> Path:
    """Return the only file in a folder whose name matches a pattern. Raises DataError for none or
    several."""
    files = sorted(folder.glob(pattern))
    if len(files) != 1:
        raise DataError(
            f"{folder} does not hold one dump {pattern}",
            expected="exactly one file",
            found=", ".join(file.name for file in files) or "none",
            fix="download it from Wikimedia's dumps",
        )
    return files[0]


def _text(cell: str) -> str:
    """Parse a cell of a dump, which is NULL, a number, or a quoted text with escapes. NULL becomes
    "", a number stays as it is written, and a text loses its quotes and escapes."""
    if not cell.startswith("'"):
        return "" if cell == "NULL" else cell
    if "\\" not in cell:
        return cell[1:-1]
    # a character that is not in _ESCAPES, such as \', stands for itself
    return re.sub(
        r"\\(.)", lambda pair: _ESCAPES.get(pair[1], pair[1]), cell[1:-1], flags=re.DOTALL
    )
