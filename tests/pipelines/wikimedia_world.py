"""A small Wikimedia: synthetic categories and items in every real shape, and the outcome of
each."""

import random
from dataclasses import dataclass, field
from itertools import pairwise
from urllib.parse import quote

CLASSES = {f"Q{9000 + i}": f"class {i}" for i in range(60)}
WITHOUT_ENGLISH = {"Q9058": ("Kirchengebäude", "de"), "Q9059": None}
META = "Q4167836"
NO_ITEM = ("no_item", "", "", "no_item", ())


@dataclass
class World:
    """What the servers know, and `expected`: title -> (status, via, topic, reason, classes)."""

    pages: dict = field(default_factory=dict)
    redirects: dict = field(default_factory=dict)
    texts: dict = field(default_factory=dict)
    items: dict = field(default_factory=dict)
    item_redirects: dict = field(default_factory=dict)
    by_category: dict = field(default_factory=dict)
    names: dict = field(default_factory=dict)
    expected: dict = field(default_factory=dict)
    landmarks: list = field(default_factory=list)


def statement(value, rank="normal", *, numeric=False):
    snak = {
        "snaktype": "value" if value else "somevalue",
        "property": "P",
        "datatype": "wikibase-item",
    }
    if value:
        ids = (
            {"numeric-id": int(value[1:])}
            if numeric
            else {"numeric-id": int(value[1:]), "id": value}
        )
        snak["datavalue"] = {"value": {"entity-type": "item", **ids}, "type": "wikibase-entityid"}
    return {"mainsnak": snak, "type": "statement", "rank": rank}


def world_of(size, seed=0):
    """A world with `size` landmarks."""
    rng, world = random.Random(seed), World()
    world.names = {
        qid: (label, "en") for qid, label in CLASSES.items() if qid not in WITHOUT_ENGLISH
    }
    world.names |= {qid: named for qid, named in WITHOUT_ENGLISH.items() if named}
    makers, weights = zip(*MAKERS, strict=True)
    for number in range(size):
        what = rng.choice(["Église", "Bridge", "Замок", "城", "St. Mary’s", "A & B"])
        title = f"Category:{what} {number} ({rng.choice(['Mostar', 'Liège', 'x, y'])})"
        world.expected[title] = rng.choices(makers, weights)[0](
            world, rng, title, f"Q{10_000 + 10 * number}"
        )
        page = quote(title.replace(" ", "_"), safe=":'(),")
        world.landmarks.append((number, f"http://commons.wikimedia.org/wiki/{page}"))
    return world


def _item(world, qid, **claims):
    world.items[qid] = {"claims": claims, "lastrevid": int(qid[1:]) + 7}


def _plain(world, rng, title, qid):
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


# Each makes what a title leads to, and returns what is expected of it.


def plain(world, rng, title, qid):
    return ("found", "sitelink", qid, "", _plain(world, rng, title, qid))


def category_item(world, rng, title, qid):
    topic = f"Q{int(qid[1:]) + 1}"
    classes = _plain(world, rng, title, topic)
    _item(world, qid, P31=[statement(META)], P301=[statement(topic)])
    world.pages[title] = {"item": qid}
    return ("found", "sitelink", topic, "", classes)


def classless(reason, claims):
    """An item that gives no class, for a reason; one whose claims are None was deleted."""

    def make(world, _rng, title, qid):
        if claims is not None:
            _item(world, qid, **claims)
        world.pages[title] = {"item": qid}
        return ("found", "sitelink", qid, reason, ())

    return make


def redirected(world, rng, title, qid):
    target, middle = f"{title} new", f"{title} middle"
    classes = _plain(world, rng, target, qid)
    world.redirects |= {title: middle, middle: target} if rng.random() < 0.3 else {title: target}
    return ("redirected", "redirect", qid, "", classes)


def soft_redirected(world, rng, title, qid):
    target, middle = f"{title} moved", f"{title} between"
    classes = _plain(world, rng, target, qid)
    for here, there in pairwise([title, middle, target] if rng.random() < 0.3 else [title, target]):
        world.pages[here] = {}
        name = rng.choice(["Category redirect", "seecat", "Cat-red", "category_redirect"])
        prefix = rng.choice(["", "1=", "Category:"])
        world.texts[here] = f"text {{{{{name}|{prefix}{there.removeprefix('Category:')}}}}} [[x]]"
    return ("redirected", "soft redirect", qid, "", classes)


def soft_loop(world, _rng, title, _qid):
    other = f"{title} back"
    for here, there in ((title, other), (other, title)):
        world.pages[here] = {}
        world.texts[here] = f"{{{{category redirect|{there.removeprefix('Category:')}}}}}"
    return NO_ITEM


def no_item(world, _rng, title, _qid):
    world.pages[title] = {}
    world.texts[title] = "nothing here"
    return NO_ITEM


def missing(_world, _rng, _title, _qid):
    return ("missing", "", "", "missing", ())


def by_category(world, rng, title, qid):
    classes = _plain(world, rng, title, qid)
    world.pages[title] = {}
    world.by_category[title.removeprefix("Category:")] = [qid]
    return ("found", "P373", qid, "", classes)


def claimed_twice(world, _rng, title, qid):
    world.pages[title] = {}
    world.by_category[title.removeprefix("Category:")] = [qid, "Q1"]
    return NO_ITEM


def merged_item(world, rng, title, qid):
    target = f"Q{int(qid[1:]) + 2}"
    classes = _plain(world, rng, title, target)
    world.item_redirects[qid] = target
    world.pages[title] = {"item": qid}
    return ("found", "sitelink", target, "", classes)


meta, deleted = classless("meta_item", {"P31": [statement(META)]}), classless("item_missing", None)
intersection = classless(
    "combines_topics", {"P31": [statement(META)], "P971": [statement("Q1"), statement("Q2")]}
)
unknown_class, without_class = (
    classless("no_class", {"P31": [statement(None)]}),
    classless("no_class", {}),
)
MAKERS = [
    (plain, 60), (category_item, 8), (meta, 3), (intersection, 2), (unknown_class, 2),
    (without_class, 2), (redirected, 5),
    (soft_redirected, 4), (soft_loop, 1), (no_item, 1), (missing, 2), (by_category, 1),
    (claimed_twice, 1), (deleted, 2),
    (merged_item, 3),
]  # fmt: skip
