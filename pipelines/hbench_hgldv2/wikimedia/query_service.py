"""Reads facts from the Wikidata Query Service. This takes fewer requests than the APIs, but does
not follow redirects of categories.

A query has 60 seconds. A longer one may end with HTTP 200 and half a document, which the client
requests again.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from hbench.core.errors import SourceError
from hbench_hgldv2.wikimedia import facts
from hbench_hgldv2.wikimedia.client import SERVERS, Client, Servers
from hbench_hgldv2.wikimedia.responses import Good

COMMONS_PAGE = "https://commons.wikimedia.org/wiki/"
ENTITY = "http://www.wikidata.org/entity/"
BATCH = 200

PAGES = "SELECT ?page ?item WHERE { VALUES ?page { %s } ?page schema:about ?item }"
BY_CATEGORY = "SELECT ?name ?item WHERE { VALUES ?name { %s } ?item wdt:P373 ?name }"
ENTITIES = (
    "SELECT ?item ?property ?value WHERE { VALUES ?item { %s } "
    "VALUES ?property { wdt:P31 wdt:P279 wdt:P301 wdt:P971 } ?item ?property ?value }"
)
NAMES = (
    "SELECT ?item ?label (LANG(?label) AS ?language) WHERE { VALUES ?item { %s } ?item rdfs:label "
    "?label "
    'FILTER(LANG(?label) IN ("en", "mul")) }'
)
REDIRECTS = "SELECT ?item ?target WHERE { VALUES ?item { %s } ?item owl:sameAs ?target }"


def source(client: Client, servers: Servers = SERVERS) -> facts.FactSource:
    """Make a source of facts from the query service, which has neither revisions nor wikitext,
    and only statements of the best rank."""
    ask = QueryService(client, servers)
    return facts.FactSource(ask.pages, lambda titles: {}, ask.by_category, ask.entities, ask.names)


def iri_of(title: str) -> str:
    """Return the IRI of a Commons page as Wikidata writes it: with underscores and UTF-8
    percent-escapes except for ;@$!*(),/~: .

    >>> iri_of("Category:Bismarck's Tower (Köln)")
    'https://commons.wikimedia.org/wiki/Category:Bismarck%27s_Tower_(K%C3%B6ln)'
    """
    return COMMONS_PAGE + quote(title.replace(" ", "_"), safe=";@$!*(),/~:")


def bindings_of(answer: Mapping[str, Any]) -> list[dict[str, str]]:
    """Read the rows of a SPARQL JSON result, {variable: value}: items as ids, without blank nodes
    and unbound variables."""
    return [_bound(row) for row in answer["results"]["bindings"]]


def _bound(row: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return {variable: value} of one row of a SPARQL JSON result.

    A variable without a value is not in the row. A blank node, which stands for an unknown value,
    is left out. Addresses of entities become QIDs.
    """
    return {
        name: cell["value"].removeprefix(ENTITY)
        for name, cell in row.items()
        if cell["type"] != "bnode"
    }


class QueryService:
    """The functions of this source of facts, which send queries through a client."""

    def __init__(self, client: Client, servers: Servers) -> None:
        self._client = client
        self._endpoint = servers.query

    def pages(self, titles: Sequence[str]) -> dict[str, facts.Page]:
        """Return the pages of titles on Commons, with the Wikidata items that link to them, "" for
        none."""
        rows = self._rows(PAGES, [f"<{iri_of(title)}>" for title in titles])
        # {address of the page: item}, and then {title of the page: item}; a row lacks an item that
        # is unknown
        items = {row["page"]: row["item"] for row in rows if "item" in row}
        items = {
            unquote(page.removeprefix(COMMONS_PAGE)).replace("_", " "): item
            for page, item in items.items()
        }
        # the service does not know which pages exist, so all are assumed to
        return {title: facts.existing_page(title, items.get(title, "")) for title in titles}

    def by_category(self, titles: Sequence[str]) -> dict[str, str]:
        """Return {title: item} for titles that are the P373 of exactly one item."""
        named = {title.partition(":")[2]: title for title in titles}
        escaped = (
            name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name in named
        )
        rows = self._rows(BY_CATEGORY, [f'"{name}"' for name in escaped])
        return facts.only_items((named[row["name"]], row["item"]) for row in rows)

    def entities(self, ids: Sequence[str]) -> dict[str, facts.Entity]:
        """Return {id: entity}. A merged item has the entity of the item with which it was merged,
        its target."""
        statements = self._statements(ids)  # {item: {property: items}}
        # an item without statements may have been merged into another one
        absent = [f"wd:{i}" for i in ids if i not in statements]
        targets = {row["item"]: row["target"] for row in self._rows(REDIRECTS, absent)}
        moved = self._statements(sorted(set(targets.values())))  # those of the targets
        # no statements of the item or of its target: None
        return {
            i: _entity(statements.get(i) or moved.get(targets.get(i, "")), targets.get(i, i))
            for i in ids
        }

    def names(self, ids: Sequence[str]) -> dict[str, facts.Named]:
        """Return {item: its label} in English or, without one, in the language for all."""
        rows = self._rows(NAMES, [f"wd:{i}" for i in ids])
        return facts.in_english(ids, {(row["item"], row["language"]): row["label"] for row in rows})

    def _statements(self, ids: Sequence[str]) -> dict[str, dict[str, list[str]]]:
        """Return {item: {property such as P31: items}}."""
        values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for row in self._rows(ENTITIES, [f"wd:{i}" for i in ids]):
            # an "unknown value" is no QID, but another address
            if facts.QID.fullmatch(row.get("value", "")):
                values[row["item"]][row["property"].rpartition("/")[2]].append(row["value"])
        return values

    def _rows(self, query: str, values: Sequence[str]) -> Iterator[dict[str, str]]:
        """Yield the rows of a query, {variable: value}. The query is sent once for each batch of
        `values`, which replaces the %s in it. Raises SourceError for an answer without a result."""
        for start in range(0, len(values), BATCH):
            text = query % " ".join(values[start : start + BATCH])
            answer = self._client.ask(self._endpoint, {"query": text, "format": "json"})
            if not isinstance(answer, Good) or "results" not in answer.data:
                raise SourceError(
                    "the query service gave no result",
                    expected="results.bindings",
                    found=str(answer)[:200],
                )
            yield from bindings_of(answer.data)


def _entity(statements: Mapping[str, Sequence[str]] | None, item: str) -> facts.Entity:
    """Make an entity from its statements, {property such as P31: items}. The items are sorted by
    their numbers, so their order does not depend on the order of the service's rows.

    `statements` is None for an item without statements of the properties in ENTITIES. Such an item
    is MISSING, like a deleted item; neither has classes.
    """
    if statements is None:
        return facts.MISSING
    return facts.entity_of(
        item,
        {
            key: sorted(set(values), key=lambda qid: (len(qid), qid))
            for key, values in statements.items()
        },
    )
