"""The MediaWiki and Wikidata APIs as a source of links: pages, redirects, entities and labels, fifty to a request.

What has no item is looked for by P373, two hundred names to a query of the query service: the APIs' search takes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hbench.core.errors import SourceError
from hbench_hgldv2.labels.scrape import FactSource
from hbench_hgldv2.wikimedia.client import SERVERS, Client, Endpoint, Servers
from hbench_hgldv2.wikimedia.entities import MISSING, Entity, Named, entities_of, names_of
from hbench_hgldv2.wikimedia.pages import Page, pages_of, soft_redirect, wikitexts_of
from hbench_hgldv2.wikimedia.query_service import QueryService
from hbench_hgldv2.wikimedia.responses import Good, Refused

COMMON = {"format": "json", "formatversion": "2"}


def source(client: Client, servers: Servers = SERVERS) -> FactSource:
    """The two APIs as a source, and the query service for P373."""
    on_commons, on_wikidata = Endpoint(servers.commons), Endpoint(servers.wikidata)
    return FactSource(
        pages=lambda titles: _pages(client, on_commons, titles),
        soft_targets=lambda titles: _soft_targets(client, on_commons, titles),
        by_category=QueryService(client, servers).by_category,
        entities=lambda ids: _entities(client, on_wikidata, ids),
        names=lambda ids: _names(client, on_wikidata, ids),
    )


def _pages(client: Client, endpoint: Endpoint, titles: Sequence[str]) -> dict[str, Page]:
    params = COMMON | {"action": "query", "prop": "pageprops", "ppprop": "wikibase_item", "redirects": "1"}
    found: dict[str, Page] = {}
    for batch, answers in client.ask_batched(endpoint, params, "titles", titles):
        found |= pages_of(_data(answers), batch)
    return found


def _soft_targets(client: Client, endpoint: Endpoint, titles: Sequence[str]) -> dict[str, str]:
    params = COMMON | {"action": "query", "prop": "revisions", "rvprop": "content", "rvslots": "main"}
    found: dict[str, str] = {}
    for _, answers in client.ask_batched(endpoint, params, "titles", titles):
        targets = ((title, soft_redirect(text)) for title, text in wikitexts_of(_data(answers)).items())
        found |= {title: target for title, target in targets if target}
    return found


def _entities(client: Client, endpoint: Endpoint, ids: Sequence[str]) -> dict[str, Entity]:
    params = COMMON | {"action": "wbgetentities", "props": "info|claims"}
    found: dict[str, Entity] = {}
    for batch, answers in client.ask_batched(endpoint, params, "ids", ids):
        if isinstance(answers, Refused):
            found |= dict.fromkeys(batch, MISSING)
        else:
            found |= entities_of(answers[0].data, batch)
    return found


def _names(client: Client, endpoint: Endpoint, ids: Sequence[str]) -> dict[str, Named]:
    params = COMMON | {"action": "wbgetentities", "props": "labels", "languages": "en", "languagefallback": "1"}
    found: dict[str, Named] = {}
    for batch, answers in client.ask_batched(endpoint, params, "ids", ids):
        found |= dict.fromkeys(batch, Named()) if isinstance(answers, Refused) else names_of(answers[0].data, batch)
    return found


def _data(answers: Sequence[Good] | Refused) -> list[dict[str, Any]]:
    if isinstance(answers, Refused):
        raise SourceError("the API refuses a single title", found=answers.why)
    return [answer.data for answer in answers]
