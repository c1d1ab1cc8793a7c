"""A local Wikimedia on 127.0.0.1: both APIs and the query service over a World, with faults thrown
in at random.
"""

import json
import random
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.file_server import QuietHandler, running
from tests.pipelines.wikimedia_world import World

COMMONS_PAGE = "https://commons.wikimedia.org/wiki/"
ENTITY, DIRECT = "http://www.wikidata.org/entity/", "http://www.wikidata.org/prop/direct/"
HTML = b"<!DOCTYPE html><title>Error</title><p>Our servers are currently under maintenance"
KNOWN = {
    "action", "format", "formatversion", "maxlag", "prop", "ppprop", "redirects", "titles",
    "rvprop", "rvslots", "ids",
    "props", "languages", "languagefallback", "continue", "ppcontinue",
}  # fmt: skip
LAG = {"error": {"code": "maxlag", "info": "Waiting for all: 3.45 seconds lagged.", "lag": 3.45}}


@dataclass
class Server:
    """The running server: the requests it got, and how it misbehaves."""

    world: World
    faults: float = 0.0
    longest_url: int = 6000
    parts: bool = True  # page properties come in two parts, which the real API may do
    now: object = time.monotonic
    # time, User-Agent, request, outcome
    log: list[tuple[float, str, str, str]] = field(default_factory=list)
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""

    def answered(self):
        return [request for _, _, request, outcome in self.log if outcome == "answered"]

    def reply(self, host, params, agent, *, url_length):
        """The response, or None to drop the connection."""
        key = json.dumps([host, sorted((k, v) for k, v in params.items() if k != "maxlag")])
        outcome, reply = "answered", None
        if url_length > self.longest_url:
            outcome, reply = "too long", (414, {}, HTML)
        elif self.rng.random() < self.faults:
            outcome, reply = self.rng.choice(self._faults())
        if outcome == "answered":
            reply = (200, {"ETag": '"1"'}, json.dumps(self.answer(params)).encode())
            outcome = "refused" if b'"error"' in reply[2][:12] else outcome
        elif outcome == "truncated":
            whole = json.dumps(self.answer(params)).encode()
            reply = (200, {}, whole[: len(whole) // 2])
        self.log.append((self.now(), agent, key, outcome))
        return reply

    def _faults(self):
        limited = json.dumps(refused("ratelimited", "You've exceeded your rate limit.")).encode()
        database = json.dumps(
            refused("internal_api_error_DBQueryError", "[x] Caught exception")
        ).encode()
        return [
            ("maxlag", (200, {"Retry-After": "0.004"}, json.dumps(LAG).encode())),
            ("ratelimited", (200, {}, limited)),
            ("database", (200, {}, database)),
            ("429", (429, {"Retry-After": "0.005"}, HTML)),
            ("500", (500, {}, HTML)),
            ("503", (503, {"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, HTML)),
            ("truncated", None),
            ("dropped", None),
            ("html", (200, {"Content-Type": "text/html"}, HTML)),
        ]

    def answer(self, params):
        if "query" in params:
            return self._results(params["query"])
        unknown = set(params) - KNOWN
        if unknown:
            return {"warnings": {"main": {"warnings": f"Unrecognized parameter: {min(unknown)}."}}}
        if params["maxlag"] != "5" or params["formatversion"] != "2":
            raise AssertionError(f"a request without maxlag or formatversion: {params}")
        asked, answer = (
            ("ids", self._entities)
            if params["action"] == "wbgetentities"
            else ("titles", self._pages)
        )
        if params[asked].count("|") >= 50:
            return refused(
                "toomanyvalues",
                f'Too many values supplied for parameter "{asked}". The limit is 50.',
            )
        return answer(params)

    def _results(self, query):
        """The answer of the query service to one of the five queries that a source asks."""
        part = query.split("{", 1)[1]
        values = [
            "".join(v) for v in re.findall(r'<([^>]+)>|wd:(Q\d+)|"((?:[^"\\]|\\.)*)"(?! ?\))', part)
        ]
        if len(values) > 200:
            raise AssertionError("more values than a query has time for")
        world = self.world
        if "schema:about" in query:
            titles = {
                iri: unquote(iri.removeprefix(COMMONS_PAGE)).replace("_", " ") for iri in values
            }
            items = {iri: world.pages.get(title, {}).get("item") for iri, title in titles.items()}
            rows = [{"page": iri, "item": item} for iri, item in items.items() if item]
        elif "P373" in query:
            names = [json.loads(f'"{name}"') for name in values]
            rows = [
                {"name": name, "item": item}
                for name in names
                for item in world.by_category.get(name, [])
            ]
        elif "sameAs" in query:
            rows = [
                {"item": i, "target": world.item_redirects[i]}
                for i in values
                if i in world.item_redirects
            ]
        elif "rdfs:label" in query:
            named = [(i, *world.names[i]) for i in values if i in world.names]
            rows = [
                {"item": i, "label": text, "language": own}
                for i, text, own in named
                if own in ("en", "mul")
            ]
        else:
            return {
                "head": {},
                "results": {"bindings": [row for i in values for row in self.statements(i)]},
            }
        return {
            "head": {},
            "results": {"bindings": [{k: cell(k, v) for k, v in row.items()} for row in rows]},
        }

    def statements(self, qid):
        """The best-ranked statements about an item, as rows of the query service."""
        rows = []
        for name, statements in self.world.items.get(qid, {"claims": {}})["claims"].items():
            best = "preferred" if any(s["rank"] == "preferred" for s in statements) else "normal"
            for value in (s["mainsnak"].get("datavalue") for s in statements if s["rank"] == best):
                known = (
                    {"type": "uri", "value": f"{ENTITY}Q{value['value']['numeric-id']}"}
                    if value
                    else None
                )
                cells = {"item": ENTITY + qid, "property": DIRECT + name}
                row = {key: {"type": "uri", "value": text} for key, text in cells.items()}
                unknown = {
                    "type": "uri",
                    "value": "http://www.wikidata.org/.well-known/genid/" + "0" * 32,
                }
                rows.append(row | {"value": known or unknown})
        return rows

    def _pages(self, params):
        redirects, pages = [], {}
        for title in params["titles"].split("|"):
            place = title
            while "redirects" in params and place in self.world.redirects:
                redirects.append({"from": place, "to": self.world.redirects[place]})
                place = self.world.redirects[place]
            pages[place] = self._page(place, params["prop"])
        # not in the order of the request
        listed = sorted(pages.values(), key=lambda page: page["title"][::-1])
        answer = {"batchcomplete": True, "query": {"redirects": redirects, "pages": listed}}
        if self.parts and params["prop"] == "pageprops" and len(listed) > 10:
            return self._part(answer, params)
        return answer

    def _part(self, answer, params):
        """The first or the second half of the page properties, as the API continues."""
        half = len(answer["query"]["pages"]) // 2
        first = "ppcontinue" not in params
        for page in answer["query"]["pages"][half:] if first else answer["query"]["pages"][:half]:
            page.pop("pageprops", None)
        if first:
            del answer["batchcomplete"]
            answer["continue"] = {"ppcontinue": str(half), "continue": "||"}
            answer["warnings"] = {
                "main": {"warnings": "Subscribe to the mediawiki-api-announce mailing list."}
            }
        return answer

    def _page(self, title, prop):
        known = self.world.pages.get(title)
        if known is None:
            return {"ns": 14, "title": title, "missing": True}
        page = {"pageid": len(title), "ns": 14, "title": title}
        if prop == "revisions":
            slot = {"contentmodel": "wikitext", "content": self.world.texts.get(title, "")}
            page["revisions"] = [{"slots": {"main": slot}}]
        elif "item" in known:
            page["pageprops"] = {"wikibase_item": known["item"]}
        return page

    def _entities(self, params):
        ids = params["ids"].split("|")
        bad = [i for i in ids if not re.fullmatch(r"Q[1-9]\d*", i)]
        if bad:
            return refused(
                "no-such-entity", f"Could not find such an entity (Invalid id: {bad[0]})"
            )
        return {"entities": {i: self._entity(i, params["props"]) for i in ids}, "success": 1}

    def _entity(self, qid, props):
        if props == "labels":
            named = self.world.names.get(qid)
            extra = {"for-language": "en"} if named and named[1] != "en" else {}
            labels = {"en": {"language": named[1], "value": named[0], **extra}} if named else []
            return {"type": "item", "id": qid, "labels": labels}
        target = self.world.item_redirects.get(qid, qid)
        if target not in self.world.items:
            return {"id": qid, "missing": ""}
        content = self.world.items[target]
        entity = {
            "type": "item",
            "id": target,
            "lastrevid": content["lastrevid"],
            "claims": content["claims"] or [],
        }
        return entity | ({"redirects": {"from": qid, "to": target}} if target != qid else {})


def cell(key, text):
    """A value in the results of the query service, by the name of its variable."""
    if key in {"name", "label", "language"}:
        return {"type": "literal", "value": text}
    return {"type": "uri", "value": text if key == "page" else ENTITY + text}


def refused(code, info):
    return {"error": {"code": code, "info": info}}


@contextmanager
def serving(server):
    """Run the server until the block ends."""
    with running(Handler, server) as server.url:
        yield server


class Handler(QuietHandler):
    wbufsize = 1 << 16

    def do_GET(self):
        self._serve(dict(parse_qsl(urlsplit(self.path).query)), len(self.path))

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._serve(dict(parse_qsl(body.decode())), 0)

    def _serve(self, params, length):
        with self.told.lock:
            agent = self.headers.get("User-Agent", "")
            reply = self.told.reply(urlsplit(self.path).path, params, agent, url_length=length)
        if reply is None:
            self.close_connection = True
            return
        status, headers, body = reply
        self.answer(status, body, {"Content-Type": "application/json", **headers})
