"""A small Wikimedia: synthetic categories and items in every real shape, and the outcome of each."""

import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import quote

CLASSES = {f"Q{9000 + i}": f"class {i}" for i in range(60)}
WITHOUT_ENGLISH = {"Q9058": ("Kirchengebäude", "de"), "Q9059": None}
META, TOPIC_CLASSES = "Q4167836", ["Q9001", "Q9002", "Q9003"]


@dataclass
class World:
    """What the servers know, and `expected`: title -> (status, via, topic, reason, classes)."""

    pages: dict[str, dict[str, Any]] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    item_redirects: dict[str, str] = field(default_factory=dict)
    by_category: dict[str, list[str]] = field(default_factory=dict)
    names: dict[str, tuple[str, str]] = field(default_factory=dict)
    expected: dict[str, tuple[str, str, str, str, tuple[str, ...]]] = field(default_factory=dict)
    landmarks: list[tuple[int, str]] = field(default_factory=list)


def url_of(title: str) -> str:
    return "http://commons.wikimedia.org/wiki/" + quote(title.replace(" ", "_"), safe=":'(),")


def statement(value: str | None, rank: str = "normal", *, numeric: bool = False) -> dict[str, Any]:
    snak: dict[str, Any] = {"snaktype": "value" if value else "somevalue", "property": "P", "datatype": "wikibase-item"}
    if value:
        ids = {"numeric-id": int(value[1:])} if numeric else {"numeric-id": int(value[1:]), "id": value}
        snak["datavalue"] = {"value": {"entity-type": "item", **ids}, "type": "wikibase-entityid"}
    return {"mainsnak": snak, "type": "statement", "rank": rank}


def world_of(size: int, seed: int = 0) -> World:
    """A world with `size` landmarks."""
    rng, world = random.Random(seed), World()
    world.names = {qid: (label, "en") for qid, label in CLASSES.items() if qid not in WITHOUT_ENGLISH}
    world.names |= {qid: named for qid, named in WITHOUT_ENGLISH.items() if named}
    makers, weights = zip(*MAKERS, strict=True)
    for number in range(size):
        what = rng.choice(["Église", "Bridge", "Замок", "城", "St. Mary’s", "A & B"])
        where = rng.choice(["Mostar", "Liège", "x, y"])
        title = f"Category:{what} {number} ({where})"
        rng.choices(makers, weights)[0](world, rng, title, f"Q{10_000 + 10 * number}")
        world.landmarks.append((number, url_of(title)))
    return world


def _item(world: World, qid: str, **claims: list[dict[str, Any]]) -> None:
    world.items[qid] = {"claims": claims, "lastrevid": int(qid[1:]) + 7}


def _plain(world: World, rng: random.Random, title: str, qid: str) -> tuple[str, ...]:
    """An item with P31 values of any rank; returns the best ones."""
    normal = rng.sample(sorted(CLASSES), rng.choice([1, 1, 1, 2, 3]))
    statements = [statement(value, numeric=rng.random() < 0.2) for value in normal]
    best = tuple(normal)
    if rng.random() < 0.15:
        best = (rng.choice(sorted(set(CLASSES) - set(normal))),)
        statements.append(statement(best[0], "preferred"))
    if rng.random() < 0.15:
        statements.append(statement("Q5", "deprecated"))
    if rng.random() < 0.1:
        statements.append(statement(None))
    _item(world, qid, P31=statements)
    world.pages[title] = {"item": qid}
    return best


def plain(world: World, rng: random.Random, title: str, qid: str) -> None:
    world.expected[title] = ("found", "sitelink", qid, "", _plain(world, rng, title, qid))


def category_item(world: World, rng: random.Random, title: str, qid: str) -> None:
    topic = f"Q{int(qid[1:]) + 1}"
    classes = _plain(world, rng, title, topic)
    _item(world, qid, P31=[statement(META)], P301=[statement(topic)])
    world.pages[title] = {"item": qid}
    world.expected[title] = ("found", "sitelink", topic, "", classes)


def _classless(world: World, title: str, qid: str, reason: str) -> None:
    world.pages[title] = {"item": qid}
    world.expected[title] = ("found", "sitelink", qid, reason, ())


def meta(world: World, rng: random.Random, title: str, qid: str) -> None:
    _item(world, qid, P31=[statement(META)])
    _classless(world, title, qid, "meta_item")


def intersection(world: World, rng: random.Random, title: str, qid: str) -> None:
    _item(world, qid, P31=[statement(META)], P971=[statement("Q1"), statement("Q2")])
    _classless(world, title, qid, "combines_topics")


def no_class(world: World, rng: random.Random, title: str, qid: str) -> None:
    _item(world, qid, **({"P31": [statement(None)]} if rng.random() < 0.5 else {}))
    _classless(world, title, qid, "no_class")


def deleted_item(world: World, rng: random.Random, title: str, qid: str) -> None:
    _classless(world, title, qid, "item_missing")


def redirected(world: World, rng: random.Random, title: str, qid: str) -> None:
    target, middle = f"{title} new", f"{title} middle"
    classes = _plain(world, rng, target, qid)
    world.redirects |= {title: middle, middle: target} if rng.random() < 0.3 else {title: target}
    world.expected[title] = ("redirected", "redirect", qid, "", classes)


def soft_redirected(world: World, rng: random.Random, title: str, qid: str) -> None:
    target, middle = f"{title} moved", f"{title} between"
    classes = _plain(world, rng, target, qid)
    chain = [title, middle, target] if rng.random() < 0.3 else [title, target]
    for here, there in pairwise(chain):
        world.pages[here] = {}
        name = rng.choice(["Category redirect", "seecat", "Cat-red", "category_redirect"])
        world.texts[here] = (
            f"text {{{{{name}|{rng.choice(['', '1=', 'Category:'])}{there.removeprefix('Category:')}}}}} [[x]]"
        )
    world.expected[title] = ("redirected", "soft redirect", qid, "", classes)


def soft_loop(world: World, rng: random.Random, title: str, qid: str) -> None:
    other = f"{title} back"
    for here, there in ((title, other), (other, title)):
        world.pages[here] = {}
        world.texts[here] = f"{{{{category redirect|{there.removeprefix('Category:')}}}}}"
    world.expected[title] = ("no_item", "", "", "no_item", ())


def no_item(world: World, rng: random.Random, title: str, qid: str) -> None:
    world.pages[title] = {}
    world.texts[title] = "nothing here"
    world.expected[title] = ("no_item", "", "", "no_item", ())


def missing(world: World, rng: random.Random, title: str, qid: str) -> None:
    world.expected[title] = ("missing", "", "", "missing", ())


def by_category(world: World, rng: random.Random, title: str, qid: str) -> None:
    classes = _plain(world, rng, title, qid)
    world.pages[title] = {}
    world.by_category[title.removeprefix("Category:")] = [qid]
    world.expected[title] = ("found", "P373", qid, "", classes)


def claimed_twice(world: World, rng: random.Random, title: str, qid: str) -> None:
    world.pages[title] = {}
    world.by_category[title.removeprefix("Category:")] = [qid, "Q1"]
    world.expected[title] = ("no_item", "", "", "no_item", ())


def merged_item(world: World, rng: random.Random, title: str, qid: str) -> None:
    target = f"Q{int(qid[1:]) + 2}"
    classes = _plain(world, rng, title, target)
    world.item_redirects[qid] = target
    world.pages[title] = {"item": qid}
    world.expected[title] = ("found", "sitelink", target, "", classes)


MAKERS = [
    (plain, 60), (category_item, 8), (meta, 3), (intersection, 2), (no_class, 3), (redirected, 5), (soft_redirected, 4),
    (soft_loop, 1), (no_item, 1), (missing, 2), (by_category, 1), (claimed_twice, 1), (deleted_item, 2), (merged_item, 3),
]  # fmt: skip
