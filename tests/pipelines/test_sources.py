"""The query service and the dumps give the links the APIs give."""

import bz2
import gzip
import json
import re

import pytest
from hbench_hgldv2.labels import scrape
from hbench_hgldv2.wikimedia import dumps, query_service
from hbench_hgldv2.wikimedia.client import Servers

from hbench.core.errors import DataError
from tests.pipelines.test_scrape import scraping
from tests.pipelines.wikimedia_server import DIRECT, ENTITY, Server
from tests.pipelines.wikimedia_world import CLASSES, WITHOUT_ENGLISH, world_of

pytestmark = pytest.mark.fast


def landmarks_of(world):
    return [scrape.Landmark("index", number, category) for number, category in world.landmarks]


def check(world, links, *, unknown, dump=False):
    """Every link is the expected one, but for the ways of linking that this source does not
    know."""
    for (_, url), link in zip(world.landmarks, links, strict=True):
        status, via, topic, reason, classes = world.expected[scrape.title_of(url)]
        if via in unknown:
            assert dump or link.classes == ()
        elif dump or status != "missing":
            assert (link.status, link.via, set(link.classes)) == (status, via, set(classes)), url
            assert not dump or link.classes == classes, url
            assert link.topic == topic or (dump and topic in world.item_redirects.values()), url
            assert link.reason == reason or {link.reason, reason} == {"item_missing", "no_class"}, (
                url
            )


def test_the_query_service_gives_the_same_classes_but_knows_no_redirects(tmp_path):
    world = world_of(400)
    with scraping(world, tmp_path / "c.sqlite", faults=0.2) as (server, client):
        source = query_service.source(client, Servers(query=f"{server.url}/sparql"))
        links, names = scrape.resolve(landmarks_of(world), source)
    check(world, links, unknown={"redirect", "soft redirect"})
    assert {n.class_id for n in names if not n.label} <= set(WITHOUT_ENGLISH)


def write_dumps(world, folder):
    """The world as dumps: several rows to an INSERT, quotes escaped, other namespaces between."""
    escaped = lambda text: text.replace("\\", "\\\\").replace("'", "\\'").replace('"', '\\"')  # noqa: E731
    keys = {
        title: title.partition(":")[2].replace(" ", "_")
        for title in [*world.pages, *world.redirects]
    }
    ids = {title: number for number, title in enumerate(keys, start=1)}
    items = [(ids[title], page["item"]) for title, page in world.pages.items() if "item" in page]
    pages = [f"({ids[t]},14,'{escaped(k)}',0,0.5,NULL)" for t, k in keys.items()]
    tables = {
        "page": [*pages, "(999999,0,'Category',0,0.5,NULL)"],
        "page_props": [
            *(f"({n},'wikibase_item','{item}',NULL)" for n, item in items),
            "(1,'hiddencat','',NULL)",
        ],
        "redirect": [
            f"({ids[a]},14,'{escaped(keys[b])}','','')" for a, b in world.redirects.items()
        ],
    }
    for name, rows in tables.items():
        lines = [
            f"INSERT INTO `{name}` VALUES {','.join(rows[i : i + 50])};"
            for i in range(0, len(rows), 50)
        ]
        with gzip.open(folder / f"commonswiki-latest-{name}.sql.gz", "wt", encoding="utf-8") as out:
            out.write("-- MySQL dump\n" + "\n".join(lines) + "\n-- Dump completed\n")
    with bz2.open(folder / "latest-truthy.nt.bz2", "wt", encoding="utf-8") as out:
        out.write("\n".join(triples_of(world)) + "\n")


def triples_of(world):
    server = Server(world)
    lines = []
    for qid in world.items:
        for row in server.statements(qid):
            value = f"<{row['value']['value']}>" if row["value"]["type"] == "uri" else "_:b1"
            lines.append(f"<{row['item']['value']}> <{row['property']['value']}> {value} .")
        lines.append(f'<{ENTITY}{qid}> <http://schema.org/description> "a \\"thing\\""@en .')
    for name, items in world.by_category.items():
        lines += [
            f"<{ENTITY}{qid}> <{DIRECT}P373> {json.dumps(name, ensure_ascii=False)} ."
            for qid in items
        ]
    lines += [
        f'<{ENTITY}{q}> <http://www.w3.org/2000/01/rdf-schema#label> "{text}"@{lang} .'
        for q, (text, lang) in world.names.items()
    ]
    return lines


def test_the_dumps_give_the_same_links_but_for_soft_redirects(tmp_path):
    world = world_of(400, seed=3)
    for (
        qid,
        target,
    ) in world.item_redirects.items():  # page_props of a dump name the target of a merged item
        world.items[qid] = world.items[target]
    write_dumps(world, tmp_path)
    links, names = scrape.resolve(landmarks_of(world), dumps.source(tmp_path))
    check(world, links, unknown={"soft redirect"}, dump=True)
    known = [n.class_id for n in names if n.class_id not in WITHOUT_ENGLISH]
    assert {n.class_id: n.label for n in names if n.label} == {i: CLASSES[i] for i in known}


@pytest.mark.parametrize(
    ("written", "label"),
    [
        (r"\U00010332\U0001033F", "𐌲𐌿"),
        (r"L\u00E9on", "Léon"),
        (r"it\'s", "it's"),
        (r"a \\", "a \\"),
        (r"\\\'", "\\'"),
    ],
)
def test_a_text_of_a_triple_is_read_whatever_its_escapes(written, label):
    line = f'<{ENTITY}Q1> <http://www.w3.org/2000/01/rdf-schema#label> "{written}"@en .'
    assert [each.value for each in dumps.triples([line])] == [label]


ROWS = ["(1,14,'A, (b)',0)", "(2,14,'It\\'s; \\\\',NULL)", "(3,0,'',0.5)"]
READ = [("1", "14", "A, (b)", "0"), ("2", "14", "It's; \\", ""), ("3", "0", "", "0.5")]
INTO, ENDED = "INSERT INTO `page`", [f"{ROWS[0]},", f"{ROWS[1]},", f"{ROWS[2]};"]
SHAPES = {
    "one line": [f"{INTO} VALUES {','.join(ROWS)};"],
    "a line per statement": [f"{INTO} VALUES {row};" for row in ROWS],
    "a line per row": [f"{INTO} VALUES", *ENDED],
    "columns named": [f"{INTO} (`a`, `b`, `c`, `d`) VALUES", *ENDED],
}


@pytest.mark.parametrize(
    "head",
    ["-- MySQL dump 10.19", "-- MariaDB dump 10.19", "/*M!999999\\- enable the sandbox mode */"],
)
@pytest.mark.parametrize("lines", SHAPES.values(), ids=SHAPES)
def test_rows_are_read_in_every_shape_that_dumps_have(lines, head):
    text = [
        f"{line}\n"
        for line in [
            head,
            "LOCK TABLES `page` WRITE;",
            *lines,
            "UNLOCK TABLES;",
            "-- Dump completed",
        ]
    ]
    assert list(dumps.values_of(text)) == READ
    for cut in range(3, len(text)):  # anywhere from within the rows to before the end
        with pytest.raises(DataError, match="cut off"):
            list(dumps.values_of(text[:cut]))


@pytest.mark.parametrize(
    "row", ["(1,'a'", "1,2", "(1,'a') x", "(1,(2))", "(1,'a''", "(1,'a''b')", "(1,'a'x)"]
)
def test_lines_that_are_not_rows_are_refused(row):
    with pytest.raises(DataError, match="not a row of a dump"):
        list(dumps.values_of([f"INSERT INTO `page` VALUES {row},(2,'b');"]))


def test_a_dump_that_is_missing_has_no_rows_or_is_cut_in_its_compression_is_named(tmp_path):
    world = world_of(60)
    write_dumps(world, tmp_path)
    with pytest.raises(DataError, match="one dump"):
        dumps.source(tmp_path / "elsewhere")
    page = tmp_path / "commonswiki-latest-page.sql.gz"
    whole = page.read_bytes()
    for damaged in (whole[: len(whole) // 2], gzip.compress(b"-- MySQL dump\n-- Dump completed\n")):
        page.write_bytes(damaged)
        with pytest.raises(DataError, match=re.escape(str(page))):
            scrape.resolve(landmarks_of(world), dumps.source(tmp_path))
