"""Links every landmark to its Commons category, the category to a Wikidata item, and the item to
its classes.

The facts come from a FactSource, which has five functions. There is one for the APIs, one for the
query service and one for dumps; the links are followed in the same way for all three.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from hbench.cli import terminal
from hbench.core.errors import IntegrityError, UsageError, examples
from hbench_hgldv2.artefact import counts_text, is_done, made_by, write_rows
from hbench_hgldv2.labels import recorded_scrape
from hbench_hgldv2.labels.label import SPLITS
from hbench_hgldv2.labels.landmarks import Landmark, landmark_file, read_landmarks
from hbench_hgldv2.wikimedia import api, query_service
from hbench_hgldv2.wikimedia import dumps as dump_files
from hbench_hgldv2.wikimedia.client import (
    BATCH,
    SERVERS,
    CacheFile,
    Offline,
    RequestsPerSecond,
    Servers,
    opened,
)
from hbench_hgldv2.wikimedia.contact import Contact
from hbench_hgldv2.wikimedia.facts import (
    MISSING,
    MOST_HOPS,
    QID,
    Entity,
    FactSource,
    Named,
    Page,
    title_of,
)

# The Wikimedia classes category, disambiguation, list, project page and disambiguation category.
META_CLASSES = frozenset({"Q4167836", "Q4167410", "Q13406463", "Q14204246", "Q15407973"})
MOST_TOPICS = 3  # hops from a category's item to its main topic, to the topic of that topic …
MOST_TITLE_BYTES = 255 + len("Category:")  # MediaWiki's limit is on the title after the colon
SPOKEN = ("en", "mul")  # a label in "mul" is the default of all languages without a label
STATUSES = ("found", "redirected", "missing", "invalid", "no_item")


class Link(NamedTuple):
    """A landmark and its classes. For a landmark without classes, `reason` says why; otherwise
    `reason` is "".

    `raw_label` is the text that the category's infobox shows, labels with qualifiers, for
    comparison with the released files.
    """

    split: str
    landmark_id: int
    category: str
    title: str
    status: str
    via: str
    item: str
    topic: str
    reason: str
    classes: tuple[str, ...]
    n_classes: int
    preferred: bool
    revision: int
    raw_label: str = ""


class ClassName(NamedTuple):
    """A class and its label. `language` is the language of the label where there is no English one,
    otherwise "en"."""

    class_id: str
    label: str
    language: str


def run(
    work: Path,
    *,
    raw: Annotated[
        Path | None,
        "Folder of GLDv2's metadata: {train,index}_label_to_category.csv, in it or in metadata/.",
    ] = None,
    via: Annotated[Literal["api", "sparql", "dumps"], "Where the facts come from."] = "api",
    dumps: Annotated[Path | None, "Folder of the dumps."] = None,
    limit: Annotated[int | None, "Only the first N landmarks of each split, to try it out."] = None,
    server: Annotated[
        Sequence[tuple[Literal["commons", "wikidata", "query"], str]],
        "Another address of commons, wikidata or query: a mirror.",
        "NAME URL",
    ] = (),
    contact: Contact = None,
    offline: Offline = False,
    rate: RequestsPerSecond = 1.0,
    cache: CacheFile = None,
    demo: Annotated[
        bool,
        "Try it without a network: a recorded scrape of invented places, in the folder "
        f"{recorded_scrape.FOLDER} of the work folder.",
    ] = False,
) -> None:
    """Link every landmark to its classes. An interrupted run resumes where it stopped.

    \b
    hbench hgldv2 scrape --raw gldv2/raw --contact you@example.org
    hbench hgldv2 scrape --raw gldv2/raw --via dumps --dumps /data/dumps
    hbench hgldv2 scrape --demo
    """
    if demo:
        # options that choose landmarks or servers; None: the option was left out
        recorded_scrape.refuse_others(
            {
                "--raw": raw,
                "--via": None if via == "api" else via,
                "--dumps": dumps,
                "--limit": limit,
                "--server": server or None,
                "--contact": contact,
                "--cache": cache,
            }
        )
        _replay_demo(work / recorded_scrape.FOLDER)
        return
    if raw is None:
        raise UsageError("there is nothing to scrape", fix="give --raw FOLDER, or try --demo")

    if via == "dumps":
        if dumps is None:
            raise UsageError("--via dumps needs the folder of the dumps", fix="give --dumps FOLDER")
        from_dumps = {"via": via, "limit": limit, "dumps": str(dumps.resolve())}
        link(work, raw, dump_files.source(dumps), from_dumps)
        return

    source_of = api.source if via == "api" else query_service.source
    servers = _servers(server)
    # the settings are part of the record, by which `link` tells whether its files are up to date
    settings: dict[str, Any] = {"via": via, "limit": limit}
    if server:
        settings["server"] = dict(server)
    command = shlex.join(["hbench", "hgldv2", "--work", f"{work}", "scrape", "--raw", f"{raw}"])
    with opened(
        work, command=command, contact=contact, offline=offline, rate=rate, cache=cache
    ) as client:
        link(work, raw, source_of(client, servers), settings)


def _servers(given: Sequence[tuple[str, str]]) -> Servers:
    """Return the addresses of the servers: those of Wikimedia, except for those `given` as (name,
    address). Raises UsageError for a text that is not an address.
    """
    for name, url in given:
        if not url.startswith(("http://", "https://")):
            raise UsageError(
                f"the server of {name} is not an address",
                expected="http://… or https://…",
                found=url,
            )
    return SERVERS._replace(**dict(given))


def _replay_demo(work: Path) -> None:
    """Scrape the landmarks of the demo from its recorded answers, and print how to continue."""
    raw = work / "raw"
    recorded_scrape.write_landmarks(raw)
    terminal.say("the demo asks nobody: answers of an invented Wikimedia come from a recording")
    with opened(work, command="hbench hgldv2 scrape --demo", offline=True) as client:
        recorded_scrape.fill(client.cache)
        # the settings say that all landmarks are linked
        link(work, raw, api.source(client, SERVERS), {"via": "api", "limit": None})
    terminal.say(f"continue with {shlex.join(['hbench', 'hgldv2', '--work', f'{work}', 'clean'])}")


def link(work: Path, raw: Path, source: FactSource, settings: Mapping[str, Any]) -> None:
    """Link landmarks to Wikidata's classes by the facts of a source, unless this is done already.
    links.csv has the classes of each landmark, or why it has none; classes.csv has their names.

    `settings` describe the source for the record. Their `limit` is the number of landmarks, from
    the first on, that are read of each split; None or no `limit` means all.
    """
    files = {split: landmark_file(raw, split) for split in SPLITS}
    record = made_by("scrape", files.values(), settings)
    if is_done(record, work / "classes.csv", work / "links.csv"):
        return

    limit = settings.get("limit")
    landmarks = [
        row for split, file in files.items() for row in read_landmarks(file, split)[:limit]
    ]
    categories = len({landmark.category for landmark in landmarks})
    terminal.say(
        f"{len(landmarks):,} landmarks of {categories:,} categories; about "
        f"{expected_requests(categories):,} requests to the APIs "
        "if none is in the cache"
    )
    links, names = resolve(landmarks, source)
    counted = _counted(links)
    write_rows(work / "links.csv", links, Link, record=record, counts=counted)
    write_rows(
        work / "classes.csv", names, ClassName, record=record, counts={"classes": len(names)}
    )
    _say(counted)


def _counted(links: Sequence[Link]) -> Counter[str]:
    """Count the landmarks by "status …", by "via …", and by the reason for having no class."""
    counted = Counter(f"status {link.status}" for link in links)
    counted += Counter(f"via {link.via}" for link in links if link.via)
    return counted + Counter(link.reason for link in links if link.reason)


def _say(counted: Mapping[str, int]) -> None:
    """Print how many landmarks were linked, how they were linked, and why others were not.

    `counted` maps a key to a number of landmarks. A key is "status …", such as "status found"; or
    "via …", such as "via P373"; or a reason for having no class, which contains no space.
    """
    for title, prefix in (("landmarks", "status "), ("linked by", "via ")):
        shown = {
            name.removeprefix(prefix): count
            for name, count in counted.items()
            if name.startswith(prefix)
        }
        terminal.say(counts_text(title, shown))

    reasons = {name: count for name, count in counted.items() if " " not in name}
    terminal.say(counts_text("without a class", reasons))


def expected_requests(titles: int) -> int:
    """Estimate the number of requests to the APIs for this many categories, to about a tenth.

    Every batch of 50 titles takes one request for their pages. If all titles have a Wikidata item,
    a batch takes one more for the entities and 0.1 for main topics: 2.1 requests. If none has an
    item, it takes one more for the wikitext and a quarter of a request for P373, which handles 200
    titles at once: 2.25 requests. So 2.2 is assumed.
    """
    # + 4: most kinds of requests have a last batch that is only partly filled
    return round(2.2 * titles / BATCH) + 4


def resolve(
    landmarks: Sequence[Landmark], source: FactSource
) -> tuple[list[Link], list[ClassName]]:
    """Link every landmark to its classes, in order. Returns the links, and all their classes with
    their names, sorted by the number in their id.

    Raises IntegrityError unless every title ends as exactly one of found, redirected, missing,
    invalid and no_item.
    """
    # category -> the title of its page
    titles = {landmark.category: title_of(landmark.category) for landmark in landmarks}
    unique_titles = list(dict.fromkeys(titles.values()))
    # title -> its page, with the outcome (`status`) and the Wikidata item, "" for none
    pages = find_pages(unique_titles, source)
    unaccounted = [
        title
        for title in unique_titles
        if title not in pages or pages[title].status not in STATUSES
    ]
    if unaccounted:
        raise IntegrityError(
            "titles are not accounted for", expected="one outcome each", found=examples(unaccounted)
        )

    # item id -> the classes of the item
    entities = find_entities([page.item for page in pages.values()], source)
    links = [_link(landmark, pages[titles[landmark.category]], entities) for landmark in landmarks]
    class_ids = sorted({class_id for link in links for class_id in link.classes}, key=_qid_order)
    # `raw_label` is still written with ids, such as "Q16970 (Q12)"; the qualifiers in parentheses
    # that are items need names, too
    qualifiers = {i for link in links for i in QID.findall(link.raw_label)} - set(class_ids)
    names = source.names([*class_ids, *sorted(qualifiers, key=_qid_order)])

    # a class without a label is named ""
    class_names = [ClassName(i, *names.get(i, Named())) for i in class_ids]
    return _spelled_out(links, names), class_names


def _spelled_out(links: Sequence[Link], names: Mapping[str, Named]) -> list[Link]:
    """Replace the QIDs in the raw labels by the names of the items, where an item has a name in a
    spoken language."""
    spoken = {i: name.text for i, name in names.items() if name.language in SPOKEN and name.text}
    shown = [QID.sub(lambda qid: spoken.get(qid[0], qid[0]), link.raw_label) for link in links]
    return [link._replace(raw_label=text) for link, text in zip(links, shown, strict=True)]


def find_pages(titles: Sequence[str], source: FactSource) -> dict[str, Page]:
    """Find the page of each title. If it has no Wikidata item, its soft redirect (a template that
    names another category) is followed; if there is still none, the item that names the title as
    its Commons category (P373) is taken."""
    pages = source.pages([title for title in titles if _is_title(title)])
    pages |= {title: Page(title, "invalid") for title in titles if not _is_title(title)}
    pages |= _follow_soft(
        {title: page for title, page in pages.items() if page.status == "no_item"}, source
    )
    without = [title for title, page in pages.items() if page.status in ("missing", "no_item")]
    linked = source.by_category(without) if without else {}
    return pages | {
        title: Page(title=pages[title].title, status="found", item=item, via="P373")
        for title, item in linked.items()
    }


def find_entities(items: Iterable[str], source: FactSource) -> dict[str, Entity]:
    """Find the entities of the items and of their main topics (P301), at most three hops away."""
    known: dict[str, Entity] = {}
    unknown = _new_ids(items, known)
    for _ in range(MOST_TOPICS + 1):  # first the items themselves, then their topics hop by hop
        if not unknown:
            break
        known |= source.entities(unknown)
        unknown = _new_ids((topic for i in unknown for topic in known[i].topics), known)
    return known


class Topic(NamedTuple):
    """The item that a category is about, its entity, and the reason for having no class; the reason
    is "" if the item has one."""

    item: str
    entity: Entity
    reason: str


def topic_of(item: str, entities: Mapping[str, Entity]) -> Topic:
    """Return what a category is about. The category's item may name a main topic (P301), which may
    name its own main topic, and so on. The last item of this chain is the topic.

    The result has a reason to take no class where the entity of the topic is missing or has no
    class, where the topic is an intersection of topics (P971), and where it is no place but an item
    of Wikimedia (META_CLASSES), such as a disambiguation page.
    """
    entity = entities.get(item, MISSING)
    # the chain ends before a topic whose entity was not fetched, before one that occurred already,
    # and after MOST_TOPICS hops
    seen = {item}
    while (
        entity.topics
        and entity.topics[0] in entities
        and entity.topics[0] not in seen
        and len(seen) <= MOST_TOPICS
    ):
        item = entity.topics[0]
        seen.add(item)
        entity = entities[item]

    if not entity.item:
        return Topic(item, entity, "item_missing")
    if entity.combines:
        return Topic(item, entity, "combines_topics")
    if META_CLASSES & set(entity.classes):
        return Topic(item, entity, "meta_item")
    if not entity.classes:
        return Topic(item, entity, "no_class")
    return Topic(item, entity, "")


def _follow_soft(pages: Mapping[str, Page], source: FactSource) -> dict[str, Page]:
    """Find the pages with an item to which category-redirect templates lead, in at most MOST_HOPS
    hops and without following a circle: {requested title: page}. `pages` maps a requested title to
    its own page, which has no item. Titles that lead to no item are left out."""
    # requested title -> the title reached so far, unless it has an item or leads no further
    current = {title: page.title for title, page in pages.items()}
    seen = {title: {page.title} for title, page in pages.items()}
    result: dict[str, Page] = {}
    for _ in range(MOST_HOPS):
        if not current:
            break
        targets = source.soft_targets(sorted(set(current.values())))
        # requested title -> target of the redirect template, "" without one
        hops = {title: targets.get(reached, "") for title, reached in current.items()}
        hops = {title: target for title, target in hops.items() if _is_title(target)}
        # a page that was visited before would lead round in a circle
        hops = {title: target for title, target in hops.items() if target not in seen[title]}
        page_of = source.pages(sorted(set(hops.values()))) if hops else {}

        current = {}
        for title, target in hops.items():
            seen[title].add(target)
            page = page_of[target]
            if page.item:
                result[title] = Page(
                    title=page.title, status="redirected", item=page.item, via="soft redirect"
                )
            if page.status == "no_item":  # the page may be a soft redirect
                current[title] = page.title

    return result


def _link(landmark: Landmark, page: Page, entities: Mapping[str, Entity]) -> Link:
    """Make the link of a landmark from the page of its category and the entity of what the category
    is about. Without a class, the link has the reason. `entities` maps an item to its entity."""
    # the reason for a page without an item is its status, such as "missing"
    topic = Topic(item="", entity=MISSING, reason=page.status)
    if page.item:
        topic = topic_of(page.item, entities)
    entity = topic.entity
    classes = () if topic.reason else entity.classes
    # a source returns the qualifiers of all classes of an entity, or none at all
    qualifiers = entity.qualifiers or ("",) * len(classes)
    # not strict: where a reason has emptied `classes`, the entity may still have qualifiers
    labels = [
        f"{qid} ({qualifier})" if qualifier else qid
        for qid, qualifier in zip(classes, qualifiers, strict=False)
    ]

    return Link(
        split=landmark.split,
        landmark_id=landmark.landmark_id,
        category=landmark.category,
        title=page.title,
        status=page.status,
        via=page.via,
        item=page.item,
        # the entity's own id differs after a redirect, and is "" where the entity is missing
        topic=entity.item or topic.item,
        reason=topic.reason,
        classes=classes,
        n_classes=entity.n_classes,
        preferred=entity.preferred,
        revision=entity.revision,
        raw_label=", ".join(labels),
    )


def _new_ids(ids: Iterable[str], known: Mapping[str, Entity]) -> list[str]:
    """List the new, well-formed ids without repetition. One malformed id would make the server
    refuse its whole batch."""
    return [i for i in dict.fromkeys(ids) if QID.fullmatch(i) and i not in known]


def _is_title(title: str) -> bool:
    """Whether a text can be the title of a category. One impossible title would make the server
    refuse a whole batch."""
    if not 0 < len(title.encode()) <= MOST_TITLE_BYTES:
        return False
    return not re.search(r"[|\[\]{}<>#\x7f\x00-\x1f]", title)


def _qid_order(qid: str) -> int:
    """Sort key of a QID: its number, so that Q9 comes before Q10."""
    return int(qid[1:])
