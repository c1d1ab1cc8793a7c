"""Reads facts from the MediaWiki and Wikidata APIs: pages, redirects, entities and labels, fifty
per request.

Titles without an item are looked up by P373 in the query service, two hundred per query, because
the APIs' search takes only one title.

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

CENTURY = 7  # Wikidata's codes for the precision of a time
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
    """Make a source of facts from the APIs of Commons (pages) and Wikidata (entities), and from the
    query service for P373, "Commons category", which the APIs cannot look up by its value."""

    def read(
        endpoint: str,
        params: Mapping[str, str],
        name: str,
        values: Sequence[str],
        reader: Callable[..., dict[str, Any]],
    ) -> dict[str, Any]:
        """Ask an API (`endpoint`, its address) about the titles or ids `values` in batches, and
        join the facts that `reader` finds: {title or id: fact}.

        `name` is the parameter of the request that holds the values, "titles" or "ids"; `params`
        are the other parameters. `reader` takes the answers to a batch (several if the API
        continues the first one) and the batch. Raises SourceError for a refused title. A refused id
        is a missing item.
        """
        known: dict[str, Any] = {}
        # the client halves a refused batch, so a refusal concerns a batch of a single value
        for batch, answers in client.ask_batched(endpoint, params, name, values):
            if not isinstance(answers, Refused):
                known |= reader([answer.data for answer in answers], batch)
            elif name == "titles":  # any text may be a title, so a refusal is an error
                raise SourceError("the API refuses a single title", found=answers.why)
            else:  # the answer that the API itself gives for an item that does not exist
                missing = {"entities": {i: {"missing": True} for i in batch}}
                known |= reader([missing], batch)
        return known

    def soft_targets(titles: Sequence[str]) -> dict[str, str]:
        """Return {title: target} of the pages with a category-redirect template."""
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
    """Find the page of each requested title in the answers to one `prop=pageprops` query and to its
    continuations. Raises SourceError for a title without an answer.

    Titles are followed by name through `normalized` and `redirects`, and never by position: pages
    come in any order, and two titles may be one page. Both format versions, 1 and 2, are supported.
    """
    renamed: dict[str, str] = {}  # requested title -> normalised title
    redirected: dict[str, str] = {}  # title -> title to which it redirects
    pages: dict[str, dict[str, Any]] = {}  # title -> content of the page in the answers
    for answer in answers:
        query = answer.get("query", {})
        for entry in query.get("normalized", ()):
            # where the API could only return the requested title percent-encoded, it says so
            asked = unquote(entry["from"]) if entry.get("fromencoded") else entry["from"]
            renamed[asked] = entry["to"]
        for entry in query.get("redirects", ()):
            if "tointerwiki" in entry:  # the page exists, leads to another wiki, and has no item
                pages.setdefault(entry["from"], {})
            else:
                redirected[entry["from"]] = entry["to"]
        # a title that itself begins with the prefix of another wiki is no title of this one
        for entry in query.get("interwiki", ()):
            pages[entry["title"]] = {"invalid": True}
        for page in _listed(query.get("pages", ())):  # a continuation adds to pages seen before
            _merge(pages.setdefault(page["title"], {}), page)

    return {title: _page(renamed.get(title, title), redirected, pages) for title in requested}


def wikitexts_of(
    answers: Iterable[Mapping[str, Any]], _requested: Sequence[str] = ()
) -> dict[str, str]:
    """Read {title: wikitext} from the answers to one `prop=revisions&rvprop=content&rvslots=main`
    query. The requested titles are not needed, but every reader of answers takes them."""
    texts: dict[str, str] = {}
    for answer in answers:
        for page in _listed(answer.get("query", {}).get("pages", ())):
            for revision in page.get("revisions", ()):
                # format version 1 has no slots, and "*" in place of "content"
                main = revision.get("slots", {}).get("main", revision)
                texts[page["title"]] = main.get("content", main.get("*", ""))
    return texts


def soft_redirect(wikitext: str) -> str | None:
    """Find the title to which a category-redirect template points; None without such a template.

    Unlike redirects, such templates are not followed by the API (`redirects=1`). The template's
    first parameter, "1", is the target. Text in comments and in <nowiki> is ignored.
    """
    for template in mwparserfromhell.parse(wikitext).filter_templates():
        name = " ".join(str(template.name).replace("_", " ").split()).casefold()
        if re.sub("^template: ?", "", name) in REDIRECT_TEMPLATES and template.has("1"):
            target = str(template.get("1").value.strip_code()).replace("_", " ").strip()
            # a colon before "Category:" makes a link to a category, and is not part of its title
            target = target.lstrip(":").strip()
            title = re.sub(r"(?i)^category\s*:\s*", "", target)
            return f"Category:{title}" if title else None
    return None


def _page(
    title: str, redirected: Mapping[str, str], pages: Mapping[str, Mapping[str, Any]]
) -> facts.Page:
    """Return the page of a title at the end of its redirects. Raises SourceError if the answer does
    not have it.

    `redirected` maps a title to the title to which it redirects; `pages` maps a title to the
    content of its page in the answer.
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

    for status in ("invalid", "missing"):  # flags, present only where they apply
        if status in page:
            return facts.Page(title, status)

    return facts.existing_page(
        title, page.get("pageprops", {}).get("wikibase_item", ""), redirected=len(seen) > 1
    )


def _listed(pages: Any) -> Iterable[dict[str, Any]]:
    """Return the pages of an answer: a list in format version 2, the values of {page id: page} in
    version 1."""
    return pages.values() if isinstance(pages, Mapping) else pages


def _merge(into: dict[str, Any], page: Mapping[str, Any]) -> None:
    """Merge a page from a continuation into what is known about it. A value that is a dictionary
    is joined key by key; any other value is replaced."""
    for key, value in page.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            into[key] |= value
        else:
            into[key] = value


def entities_of(
    answers: Sequence[Mapping[str, Any]], requested: Sequence[str]
) -> dict[str, facts.Entity]:
    """Read {id: entity} from one wbgetentities answer. Raises SourceError for an id without an
    answer.

    A redirected item has the requested id as key, and its target's id as `item`. A missing or
    deleted item is MISSING.
    """
    contents = answers[0].get("entities") or {}  # such an answer has no continuation
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
    """Read the English labels, {id: label and its language}, from one wbgetentities answer with
    `languagefallback`: a label in another language may take the place of a missing English one. The
    text is "" without any label."""
    contents = answers[0].get("entities") or {}  # such an answer has no continuation
    labels = {i: (contents.get(i, {}).get("labels") or {}).get("en", {}) for i in requested}
    return {
        i: facts.Named(label.get("value", ""), label.get("language", ""))
        for i, label in labels.items()
    }


def best(statements: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Map each item value to its first statement of the best rank: preferred if there are any, else
    normal; never deprecated.

    Unknown and absent values (somevalue, novalue) are left out. The order is that of the
    statements.
    """
    by_rank: dict[str, dict[str, Mapping[str, Any]]] = {"preferred": {}, "normal": {}}
    has_preferred = any(statement.get("rank") == "preferred" for statement in statements)
    for statement in statements:
        value = _value(statement.get("mainsnak", {}))
        if statement.get("rank") in by_rank and value:
            by_rank[statement["rank"]].setdefault(value, statement)
    return by_rank["preferred" if has_preferred else "normal"]


def qualified(statement: Mapping[str, Any]) -> str:
    """Format the qualifiers of a statement as an infobox prints them after a class: the years of
    the start, the end (P580, P582) and the point in time (P585), then all items as QIDs.

    >>> year = {
    ...     "snaktype": "value",
    ...     "datavalue": {"value": {"time": "+1976-05-01T00:00:00Z", "precision": 11}},
    ... }
    >>> (
    ...     qualified({"qualifiers": {"P580": [year]}}),
    ...     qualified({"qualifiers": {"P582": [year]}}),
    ...     qualified({}),
    ... )
    ('1976–', '–1976', '')
    """
    snaks = statement.get("qualifiers") or {}
    start, end, point = (_year(snaks.get(key, [])) for key in ("P580", "P582", "P585"))
    # "" for values that are no items, such as the times above, and left out below
    items = [_value(snak) for key in snaks for snak in snaks[key]]
    return ", ".join(
        text for text in (f"{start}–{end}" if start or end else "", point, *items) if text
    )


def _entity(content: Mapping[str, Any]) -> facts.Entity:
    """Read an entity of Wikidata. `content`: the entity as the API returns it."""
    claims = content.get("claims") or {}  # an empty map may come as []
    statements = claims.get(facts.INSTANCE_OF, [])
    # {class: its first statement of the best rank}
    classes = best(statements)
    qualifiers = tuple(qualified(statement) for statement in classes.values())
    return facts.Entity(
        item=content["id"],
        classes=tuple(classes),
        topics=tuple(best(claims.get(facts.MAIN_TOPIC, []))),
        parents=tuple(best(claims.get(facts.SUBCLASS_OF, []))),
        n_classes=len(statements),  # of all ranks, unlike `classes`
        preferred=any(statement.get("rank") == "preferred" for statement in statements),
        combines=bool(claims.get(facts.COMBINES)),  # whether it is an intersection of topics
        revision=int(content.get("lastrevid", 0)),
        # one text for each class; empty if no class has qualifiers, which is usual
        qualifiers=qualifiers if any(qualifiers) else (),
    )


def _year(snaks: Sequence[Mapping[str, Any]]) -> str:
    """Return the year of the first value, or its decade or century if the precision is lower; ""
    if there is no value, or the first is no time."""
    value = snaks[0].get("datavalue", {}).get("value", {}) if snaks else {}
    time = str(value.get("time", "")) if isinstance(value, Mapping) else ""
    match = re.match(r"([+-])(\d+)", time)  # such as +1976-05-01T00:00:00Z
    if not match:
        return ""
    year = int(match[2])
    era = " BC" if match[1] == "-" else ""
    # the precision tells which part of the time is meant
    if value.get("precision") == DECADE:
        return f"{year // 10 * 10}s{era}"
    if value.get("precision") == CENTURY:
        # the year 1900 is in the 19th century, 1901 in the 20th
        return f"{math.ceil(year / 100)}. century{era}"
    return f"{year}{era}"


def _value(snak: Mapping[str, Any]) -> str:
    """Return the item that is a property's value, as a QID; "" for an unknown or absent value, and
    for a value that is no item."""
    if snak.get("snaktype") != "value":
        return ""
    value = snak.get("datavalue", {}).get("value", {})
    if not isinstance(value, Mapping):
        return ""
    # some answers have only the number of an item
    return str(value.get("id") or (f"Q{value['numeric-id']}" if "numeric-id" in value else ""))
