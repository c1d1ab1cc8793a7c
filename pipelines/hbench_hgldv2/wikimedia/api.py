"""Reads facts from the MediaWiki and Wikidata APIs: pages, redirects, entities and labels, fifty
per request.

Titles without an item are looked up by P373 in the query service, two hundred per query: the APIs'
search takes one.

>>> soft_redirect("{{Category redirect|reason=x|1=Old Bridge, Mostar}}")
'Category:Old Bridge, Mostar'
>>> statement = {
...     "rank": "normal",
...     "mainsnak": {"snaktype": "value", "datavalue": {"value": {"id": "Q16970"}}},
... }
>>> list(best([statement, {**statement, "rank": "deprecated"}]))
['Q16970']
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import mwparserfromhell

from hbench.core.errors import SourceError
from hbench_hgldv2.wikimedia import facts
from hbench_hgldv2.wikimedia.client import SERVERS, Client, Servers
from hbench_hgldv2.wikimedia.query_service import QueryService
from hbench_hgldv2.wikimedia.responses import Refused

CENTURY = 7  # Wikidata's numbers of the precision of a time
DECADE = 8
COMMON = {"format": "json", "formatversion": "2"}
PAGES = COMMON | {
    "action": "query",
    "prop": "pageprops",
    "ppprop": "wikibase_item",
    "redirects": "1",
}
WIKITEXTS = COMMON | {
    "action": "query",
    "prop": "revisions",
    "rvprop": "content",
    "rvslots": "main",
}
ENTITIES = COMMON | {"action": "wbgetentities", "props": "info|claims"}
LABELS = COMMON | {
    "action": "wbgetentities",
    "props": "labels",
    "languages": "en",
    "languagefallback": "1",
}
REDIRECT_TEMPLATES = (
    "category redirect", "seecat", "see cat", "categoryredirect", "catredirect", "cat redirect",
    "catredir",
    "redirect category", "cat-red", "redirect cat", "cat-redirect", "monotypic taxon category "
                                                                    "redirect",
    "synonym taxon category redirect", "invalid taxon category redirect",
)  # fmt: skip


def source(client: Client, servers: Servers = SERVERS) -> facts.FactSource:
    """Make a source of facts of the APIs of Commons and Wikidata, and of the query service for P373
    (the category that an item names as its own), which the APIs can only search one by one."""

    def read(
        endpoint: str,
        params: Mapping[str, str],
        name: str,
        values: Sequence[str],
        reader: Callable[..., dict[str, Any]],
    ) -> dict[str, Any]:
        """Ask about `values` in batches, as the parameter `name` of a request with these `params`,
        and join what `reader` finds in the answers, by value.

        `reader`: (the answers of a batch, its values) -> a dictionary. A batch that is refused has
        been halved until one value is left: as an id this is a missing item, while no title should
        be refused.
        """
        known: dict[str, Any] = {}
        for batch, answers in client.ask_batched(endpoint, params, name, values):
            if not isinstance(answers, Refused):
                known |= reader([answer.data for answer in answers], batch)
            elif name == "titles":
                raise SourceError("the API refuses a single title", found=answers.why)
            else:  # as the API itself writes an item that does not exist
                missing = {"entities": {i: {"missing": True} for i in batch}}
                known |= reader([missing], batch)
        return known

    def soft_targets(titles: Sequence[str]) -> dict[str, str]:
        """Where the category-redirect templates in the wikitexts of these pages lead, if any."""
        texts = read(servers.commons, WIKITEXTS, "titles", titles, wikitexts_of)
        return {title: target for title, text in texts.items() if (target := soft_redirect(text))}

    return facts.FactSource(
        pages=lambda titles: read(servers.commons, PAGES, "titles", titles, pages_of),
        soft_targets=soft_targets,
        by_category=QueryService(client, servers).by_category,
        entities=lambda ids: read(servers.wikidata, ENTITIES, "ids", ids, entities_of),
        names=lambda ids: read(servers.wikidata, LABELS, "ids", ids, names_of),
    )


def pages_of(
    answers: Iterable[Mapping[str, Any]], requested: Sequence[str]
) -> dict[str, facts.Page]:
    """Find the page of each requested title in the answers (with continuations) to one
    `prop=pageprops` query.

    A title is followed by name through `normalized` and `redirects`, never by position, because
    pages come in any order and two titles may be one page. Format versions 1 and 2 are read. Raises
    SourceError for a title without an answer.
    """
    renamed: dict[str, str] = {}  # a title as it was asked for -> as MediaWiki spells it
    redirected: dict[str, str] = {}
    pages: dict[str, dict[str, Any]] = {}  # by title; {} is a page without an item
    for answer in answers:
        query = answer.get("query", {})
        for entry in query.get("normalized", ()):
            asked = unquote(entry["from"]) if entry.get("fromencoded") else entry["from"]
            renamed[asked] = entry["to"]
        for entry in query.get("redirects", ()):
            if "tointerwiki" in entry:  # the page exists, leads to another wiki, and has no item
                pages.setdefault(entry["from"], {})
            else:
                redirected[entry["from"]] = entry["to"]
        for entry in query.get("interwiki", ()):
            pages[entry["title"]] = {"invalid": True}
        for page in _listed(query.get("pages", ())):
            _merge(pages.setdefault(page["title"], {}), page)

    return {title: _page(renamed.get(title, title), redirected, pages) for title in requested}


def wikitexts_of(
    answers: Iterable[Mapping[str, Any]], _requested: Sequence[str] = ()
) -> dict[str, str]:
    """Read page title -> wikitext from the answers to one
    `prop=revisions&rvprop=content&rvslots=main` query, in format version 2 or 1, which writes "*"
    for "content" and has no slots. What was requested is not needed: pages come with their titles.
    """
    texts: dict[str, str] = {}
    for answer in answers:
        for page in _listed(answer.get("query", {}).get("pages", ())):
            for revision in page.get("revisions", ()):
                main = revision.get("slots", {}).get("main", revision)
                texts[page["title"]] = main.get("content", main.get("*", ""))
    return texts


def soft_redirect(wikitext: str) -> str | None:
    """Find the title to which a category-redirect template points, which `redirects=1` does not
    follow; None without one.

    Text in comments and in <nowiki> does not count.
    """
    for template in mwparserfromhell.parse(wikitext).filter_templates():
        # spaces and underscores are the same to MediaWiki, and case is to this list
        name = " ".join(str(template.name).replace("_", " ").split()).casefold()
        if re.sub("^template: ?", "", name) in REDIRECT_TEMPLATES and template.has("1"):
            target = (
                str(template.get("1").value.strip_code())
                .replace("_", " ")
                .strip()
                .lstrip(":")
                .strip()
            )
            # the target may be written with or without its namespace, or as ":Category:…"
            title = re.sub(r"(?i)^category\s*:\s*", "", target)
            return f"Category:{title}" if title else None
    return None


def _page(
    title: str, redirected: Mapping[str, str], pages: Mapping[str, Mapping[str, Any]]
) -> facts.Page:
    """Return the page of a title at the end of its redirects; raises SourceError if the answer
    lacks it.

    `redirected`: title -> the title that it leads to; `pages`: what the API says of a page, by
    title: "invalid" or "missing" among its keys, else its "pageprops", which may have an item.
    """
    seen = {title}
    while title in redirected and redirected[title] not in seen:
        title = redirected[title]
        seen.add(title)

    if title in redirected:  # redirects in a circle lead to no page
        return facts.Page(title, "missing")

    page = pages.get(title)
    if page is None:
        raise SourceError(
            f"the API did not answer for {title!r}", expected="every requested title in the answer"
        )

    for status in ("invalid", "missing"):
        if status in page:
            return facts.Page(title, status)

    return facts.existing_page(
        title, page.get("pageprops", {}).get("wikibase_item", ""), redirected=len(seen) > 1
    )


def _listed(pages: Any) -> Iterable[dict[str, Any]]:
    """Return the pages of an answer of the API: format version 2 lists them, version 1 maps page
    ids to them."""
    return pages.values() if isinstance(pages, Mapping) else pages


def _merge(into: dict[str, Any], page: Mapping[str, Any]) -> None:
    """Add to what is known of a page, `into`, what a continuation of the answer says of it: the API
    gives a page in several parts, each with other keys."""
    for key, value in page.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            into[key] |= value
        else:
            into[key] = value


def entities_of(
    answers: Sequence[Mapping[str, Any]], requested: Sequence[str]
) -> dict[str, facts.Entity]:
    """Read the entity of each requested id from one wbgetentities answer; raises SourceError for an
    id without an answer.

    A redirected item has the requested id as key and its target's as `item`; a missing or deleted
    one is MISSING.
    """
    contents = answers[0].get("entities") or {}
    absent = [i for i in requested if i not in contents]
    if absent:
        raise SourceError(
            "the API did not answer for every item",
            expected=f"{len(requested)} items",
            found=f"nothing for {absent[0]}",
        )
    return {
        i: facts.MISSING if "missing" in contents[i] else _entity(contents[i]) for i in requested
    }


def names_of(
    answers: Sequence[Mapping[str, Any]], requested: Sequence[str]
) -> dict[str, facts.Named]:
    """Read the English label of each requested id from one wbgetentities answer with
    `languagefallback`.
    """
    contents = answers[0].get("entities") or {}
    # the label under "en" is in another language where there is no English one; an empty map of
    # labels may come as []
    labels = {i: (contents.get(i, {}).get("labels") or {}).get("en", {}) for i in requested}
    return {
        i: facts.Named(label.get("value", ""), label.get("language", ""))
        for i, label in labels.items()
    }


def best(statements: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Map each item that the statements about a property have as value to its first statement of
    the best rank: preferred if there are any, else normal, never deprecated.

    `statements`: as Wikidata's JSON has them (`{"rank": …, "mainsnak": …}`), and in that order.
    Unknown and absent values (somevalue, novalue) do not count.
    """
    by_rank: dict[str, dict[str, Mapping[str, Any]]] = {"preferred": {}, "normal": {}}
    has_preferred = any(statement.get("rank") == "preferred" for statement in statements)
    for statement in statements:
        value = _value(statement.get("mainsnak", {}))
        if statement.get("rank") in by_rank and value:
            by_rank[statement["rank"]].setdefault(value, statement)
    return by_rank["preferred" if has_preferred else "normal"]


def qualifiers_text(statement: Mapping[str, Any]) -> str:
    """Write the qualifiers of a statement, such as "is a church, from 1976", as an infobox of
    Commons prints them behind the class: years, then items as QIDs, separated by commas.

    `statement`: of Wikidata's JSON; its "qualifiers" map a property (P580: start, P582: end, P585:
    point in time, or any other) to a list of values, "snaks". "" without qualifiers.

    >>> year = {
    ...     "snaktype": "value",
    ...     "datavalue": {"value": {"time": "+1976-05-01T00:00:00Z", "precision": 11}},
    ... }
    >>> (
    ...     qualifiers_text({"qualifiers": {"P580": [year]}}),
    ...     qualifiers_text({"qualifiers": {"P582": [year]}}),
    ...     qualifiers_text({}),
    ... )
    ('1976–', '–1976', '')
    """
    snaks = statement.get("qualifiers") or {}  # an empty map may come as []
    start, end, point = (_year(snaks.get(key, [])) for key in ("P580", "P582", "P585"))
    period = f"{start}–{end}" if start or end else ""
    items = [_value(snak) for key in snaks for snak in snaks[key]]  # "" for dates and texts
    return ", ".join(filter(None, (period, point, *items)))


def _entity(content: Mapping[str, Any]) -> facts.Entity:
    """Read what the scraper needs of an entity; `content`: Wikidata's JSON of it, whose "claims"
    are lists of statements by property."""
    claims = content.get("claims") or {}  # an empty map may come as []
    statements = claims.get(facts.INSTANCE_OF, [])
    classes = best(statements)
    qualifiers = tuple(qualifiers_text(statement) for statement in classes.values())
    return facts.Entity(
        item=content["id"],
        classes=tuple(classes),
        topics=tuple(best(claims.get(facts.MAIN_TOPIC, []))),
        parents=tuple(best(claims.get(facts.SUBCLASS_OF, []))),
        n_classes=len(statements),
        preferred=any(statement.get("rank") == "preferred" for statement in statements),
        combines=bool(claims.get(facts.COMBINES)),
        revision=int(content.get("lastrevid", 0)),
        qualifiers=qualifiers if any(qualifiers) else (),
    )


def _year(snaks: Sequence[Mapping[str, Any]]) -> str:
    """Write the year of the first time value of a property, "1976", or its decade, "1970s", or
    century, "20. century", if it is not known more precisely; "" without one.

    `snaks`: the values in Wikidata's JSON, such as {"datavalue": {"value": {"time":
    "+1976-05-01T00:00:00Z", "precision": 11}}}.
    """
    value = snaks[0].get("datavalue", {}).get("value", {}) if snaks else {}
    time = str(value.get("time", "")) if isinstance(value, Mapping) else ""
    match = re.match(r"([+-])(\d+)", time)
    if not match:
        return ""
    year = int(match[2])
    era = " BC" if match[1] == "-" else ""
    if value.get("precision") == DECADE:
        return f"{year // 10 * 10}s{era}"
    if value.get("precision") == CENTURY:
        return f"{math.ceil(year / 100)}. century{era}"
    return f"{year}{era}"


def _value(snak: Mapping[str, Any]) -> str:
    """Read the item that a property has as value, as a QID; "" for an unknown or absent value, and
    for one that is no item, such as a date. `snak`: a value in Wikidata's JSON, which may have the
    number of the item alone."""
    if snak.get("snaktype") != "value":
        return ""
    value = snak.get("datavalue", {}).get("value", {})
    if not isinstance(value, Mapping):
        return ""
    return str(value.get("id") or (f"Q{value['numeric-id']}" if "numeric-id" in value else ""))
