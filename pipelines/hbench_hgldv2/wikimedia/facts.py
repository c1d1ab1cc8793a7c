"""Defines the facts that the pipeline needs from Wikimedia: pages of Commons, entities of Wikidata,
and a source of both.

>>> title_of("http://commons.wikimedia.org/wiki/Category:Nago-ji_(Tateyama,_Chiba)")
'Category:Nago-ji (Tateyama, Chiba)'
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from hbench.core.errors import DataError

WIKI = "commons.wikimedia.org/wiki/"
INSTANCE_OF = "P31"
SUBCLASS_OF = "P279"
MAIN_TOPIC = "P301"
COMBINES = "P971"
QID = re.compile(r"Q[1-9][0-9]*")
MOST_HOPS = 5


class Page(NamedTuple):
    """The page of a requested title. `status`: "found", "redirected", "missing", "invalid" or
    "no_item". `title`: of the page. `item`: its Wikidata item. `via`: how the item was found:
    sitelink, redirect, soft redirect or P373."""

    title: str
    status: str
    item: str = ""
    via: str = ""


class Entity(NamedTuple):
    """An item of Wikidata.

    Attributes:
        item: its id, which may be another one after a redirect; "" if it is missing or deleted.
        classes: the values of P31 with the best rank.
        topics: likewise of P301.
        parents: likewise of P279.
        n_classes: the number of all P31 statements.
        preferred: whether a preferred rank chose among these.
        combines: whether the item is an intersection of topics (P971).
        qualifiers: of each class, if the source has them.
    """

    item: str
    classes: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    n_classes: int = 0
    preferred: bool = False
    combines: bool = False
    revision: int = 0
    qualifiers: tuple[str, ...] = ()


MISSING = Entity("")


class Named(NamedTuple):
    """The label of a class: its text and language; both are "" if it has none."""

    text: str = ""
    language: str = ""


class FactSource(NamedTuple):
    """A source of facts: five functions that take unique keys and return {key: fact}.

    `pages` and `entities` return all keys, the others only those they know. `soft_targets`: {title:
    target of its category redirect}. `by_category`: {title: the item whose P373 names it}. `names`:
    {class: its English label}.
    """

    pages: Callable[[Sequence[str]], dict[str, Page]]
    soft_targets: Callable[[Sequence[str]], dict[str, str]]
    by_category: Callable[[Sequence[str]], dict[str, str]]
    entities: Callable[[Sequence[str]], dict[str, Entity]]
    names: Callable[[Sequence[str]], dict[str, Named]]


def title_of(url: str) -> str:
    """Return the page title in a Commons URL: percent-decoded, with spaces, in NFC. Raises
    DataError for any other URL."""
    _, site, path = url.partition(WIKI)
    if not site or not path:
        raise DataError(
            "this address is not a Commons page", expected=f"https://{WIKI}Category:…", found=url
        )
    return unicodedata.normalize("NFC", unquote(path, errors="strict").replace("_", " ").strip())


def existing_page(title: str, item: str, *, redirected: bool = False) -> Page:
    """Make the page of an existing title. `item`: "" for none."""
    if not item:
        return Page(title, "no_item")
    if redirected:
        return Page(title=title, status="redirected", item=item, via="redirect")
    return Page(title=title, status="found", item=item, via="sitelink")


def entity_of(item: str, values: Mapping[str, Sequence[str]]) -> Entity:
    """Make an entity from its statements of the best rank, {property such as P31: items}. Other
    ranks are unknown, so `n_classes` counts only these."""
    classes = tuple(values.get(INSTANCE_OF, ()))
    topics = tuple(values.get(MAIN_TOPIC, ()))
    parents = tuple(values.get(SUBCLASS_OF, ()))
    return Entity(item, classes, topics, parents, len(classes), combines=COMBINES in values)


def only_items(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return {title: item} for titles that have exactly one item among the (title, item) pairs."""
    items: dict[str, set[str]] = {}
    for title, item in pairs:
        items.setdefault(title, set()).add(item)
    return {title: min(named) for title, named in items.items() if len(named) == 1}


def in_english(ids: Sequence[str], labels: Mapping[tuple[str, str], str]) -> dict[str, Named]:
    """Choose the label of each id from {(id, language): text}: English, else the language for all
    ("mul"), else none."""
    chosen = {}
    for i in ids:
        language = next((name for name in ("en", "mul") if (i, name) in labels), "")
        chosen[i] = Named(labels[i, language], language) if language else Named()
    return chosen
