"""Records the scrape that ships for `scrape --demo`: a small invented Wikimedia, asked over HTTP.

    python -m tests.pipelines.record_scrape

The places and their items do not exist; the classes are Wikidata's.
"""

import json
from pathlib import Path

from hbench_hgldv2.artefact import rows_text
from hbench_hgldv2.labels import recorded_scrape, scrape
from hbench_hgldv2.labels.landmarks import Landmark
from hbench_hgldv2.labels.recorded_scrape import RecordedAnswer
from hbench_hgldv2.wikimedia import api
from hbench_hgldv2.wikimedia.client import SERVERS, Cache, Client, Servers

from tests.pipelines.wikimedia_server import Server, serving
from tests.pipelines.wikimedia_world import META, World, statement

CLASSES = {
    "church building": "Q16970", "chapel": "Q108325", "cathedral": "Q2977", "abbey": "Q160742",
    "castle": "Q23413", "fort": "Q1785071", "palace": "Q16560", "tower": "Q12518",
    "lighthouse": "Q39715", "bridge": "Q12280", "stone bridge": "Q3397526", "museum": "Q33506",
    "art museum": "Q207694", "windmill": "Q38720", "watermill": "Q185187", "lake": "Q23397",
    "river": "Q4022", "waterfall": "Q34038", "mountain": "Q8502", "hill": "Q54050",
    "beach": "Q40080", "cave": "Q35509", "ruins": "Q109607", "fountain": "Q483453",
}  # fmt: skip
GENERIC = {"building": "Q41176", "human": "Q5"}
PLACES = ("Altenbruck", "Sankt Marien", "Évrecourt", "Lower Wend", "Nørholt")
FIRST_ITEM = 900_000_000  # above all items of Wikidata
FETCHED = 1_735_732_800  # 2025-01-01T12:00:00


class FixedTime:
    """A clock whose waits take no time, so that every recording has the same bytes."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def time(self):
        return FETCHED

    def sleep(self, seconds):
        self.now += seconds


class InventedWorld(World):
    """A World of categories that are named one by one."""

    def __init__(self):
        super().__init__()
        self.names = {qid: (label, "en") for label, qid in (CLASSES | GENERIC).items()}

    def titled(self, title):
        """The title of a new landmark, and the id of an item for it."""
        url = f"http://commons.wikimedia.org/wiki/Category:{title.replace(' ', '_')}"
        self.landmarks.append((len(self.landmarks) + 1, url))
        return f"Category:{title}", f"Q{FIRST_ITEM + 10 * len(self.landmarks)}"

    def add_item(self, title, qid, **claims):
        self.items[qid] = {"claims": claims, "lastrevid": 1}
        self.pages[title] = {"item": qid}

    def place(self, title, *classes):
        """A category whose item has these classes."""
        name, qid = self.titled(title)
        self.add_item(name, qid, P31=[statement(each) for each in classes])
        return name, qid


def world():
    """Two or three places of each class, and a title for every other outcome."""
    made = InventedWorld()
    for number, (label, qid) in enumerate(CLASSES.items()):
        for place in PLACES[number % 2 : number % 2 + 2 + number % 3 // 2]:
            made.place(f"{label.capitalize()} of {place}", qid)
    made.place("Abbey ruins of Wend", CLASSES["abbey"], CLASSES["ruins"])
    made.place("Old Mill of Nørholt", CLASSES["windmill"], GENERIC["building"])
    made.place("House of Évrecourt", GENERIC["building"])
    made.place("Ada Altenbruck", GENERIC["human"])
    add_moved(made)
    add_titles_without_class(made)
    return made


def add_moved(made):
    """Titles that lead to another page or item."""
    castle = statement(CLASSES["castle"])
    name, qid = made.titled("Wend Castle")
    made.redirects[name] = "Category:Castle of Wend"
    made.add_item("Category:Castle of Wend", qid, P31=[castle])
    name, qid = made.titled("Nørholt Fortress")
    made.pages[name] = {}
    made.texts[name] = "{{Category redirect|Fort of Nørholt}}"
    made.add_item("Category:Fort of Nørholt", qid, P31=[statement(CLASSES["fort"])])
    name, qid = made.titled("Lake Sankt Marien")
    topic = f"Q{int(qid[1:]) + 1}"
    made.add_item(name, qid, P31=[statement(META)], P301=[statement(topic)])
    made.items[topic] = {"claims": {"P31": [statement(CLASSES["lake"])]}, "lastrevid": 1}
    name, qid = made.titled("Fall of Lower Wend")
    made.pages[name] = {}
    made.by_category[name.removeprefix("Category:")] = [qid]
    made.items[qid] = {"claims": {"P31": [statement(CLASSES["waterfall"])]}, "lastrevid": 1}
    name, qid = made.titled("Merged Palace of Altenbruck")
    made.pages[name] = {"item": qid}
    made.item_redirects[qid] = f"Q{int(qid[1:]) + 1}"
    palace = {"claims": {"P31": [statement(CLASSES["palace"])]}, "lastrevid": 1}
    made.items[made.item_redirects[qid]] = palace


def add_titles_without_class(made):
    """Titles that end without a class, each for another reason."""
    name, qid = made.titled("Views of Altenbruck")
    made.add_item(name, qid, P31=[statement(META)])
    name, qid = made.titled("Churches and towers of Wend")
    parts = [statement(CLASSES["church building"]), statement(CLASSES["tower"])]
    made.add_item(name, qid, P31=[statement(META)], P971=parts)
    name, qid = made.titled("Unknown monument of Nørholt")
    made.add_item(name, qid, P31=[statement(None)])
    name, _ = made.titled("Photographs of 1901")
    made.pages[name] = {}
    name, qid = made.titled("Deleted item of Wend")
    made.pages[name] = {"item": qid}
    made.titled("Deleted category of Wend")
    made.titled("Not a title [[Évrecourt]]")


def landmarks_of(made):
    """The landmarks of the world: even ones train, odd ones index."""
    split_of = {0: "train", 1: "index"}
    return [Landmark(split_of[number % 2], number, url) for number, url in made.landmarks]


def record(folder: Path) -> tuple[Path, Path]:
    """Scrape the world over HTTP, and write its landmarks and answers into a folder."""
    made = world()
    landmarks = landmarks_of(made)
    in_order = [row for split in ("train", "index") for row in landmarks if row.split == split]
    with serving(Server(made)) as server, Cache(folder / "recorded.sqlite") as cache:
        local = Servers(f"{server.url}/commons", f"{server.url}/wikidata", f"{server.url}/query")
        client = Client("demo@example.org", cache, clock=FixedTime())
        scrape.resolve(in_order, api.source(client, local))
        addresses = dict(zip(local, SERVERS, strict=True))
        answers = [at_wikimedia(answer, addresses) for answer in recorded(cache)]

    written = folder / recorded_scrape.LANDMARKS.name, folder / recorded_scrape.ANSWERS.name
    for path, rows, kind in zip(
        written, (in_order, answers), (Landmark, RecordedAnswer), strict=True
    ):
        path.write_bytes(rows_text(rows, kind).encode())
    return written


def recorded(cache):
    """The answers in a cache, in the order of their requests."""
    rows = cache._db.execute("SELECT request FROM answers ORDER BY rowid").fetchall()
    for (request,) in rows:
        answer = cache.get(request)
        yield RecordedAnswer(request, answer.status, answer.body.decode(), answer.fetched)


def at_wikimedia(answer, addresses):
    """The answer as one to the same request at Wikimedia's address."""
    endpoint, params = json.loads(answer.request)
    request = json.dumps([addresses[endpoint], params], ensure_ascii=False)
    return answer._replace(request=request)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        for path in record(Path(temporary)):
            target = recorded_scrape.LANDMARKS.with_name(path.name)
            target.write_bytes(path.read_bytes())
