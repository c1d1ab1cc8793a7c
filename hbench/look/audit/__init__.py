"""Writes the page of an audit: its suspects and copies one below the other, decided by keys or
buttons, with the decisions as a file that a build applies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.auditing.audit import Audit, in_words
from hbench.auditing.evidence import Indices
from hbench.auditing.suspects import FAR, NEAR, SHOWN_NEIGHBOURS, SuspectList
from hbench.core.version import __version__
from hbench.datasets.dataset import TRAIN
from hbench.look.audit.earlier import DECISIONS, decided_on, earlier_decisions
from hbench.look.pages.folder import Pages, copy_assets, level_styles, replacing_folder
from hbench.look.report.sprites import sprite_of, write_sprites
from hbench.look.strips.retrievals import legend_of

PACKAGE = "hbench.look.audit"
SHOWN_SUSPECTS = 300  # of each list
SHOWN_COPIES = 100
SHOWN_MEMBERS = 4  # of a group
KIND = "audit"


class Neighbour(NamedTuple):
    """An item beside another one; `level`: how many levels it shares with the label of that
    one."""

    position: int
    item: str
    path: tuple[str, ...]
    level: int


class Shown(NamedTuple):
    """A picture of an item that is decided about."""

    position: int
    item: str


class Card(NamedTuple):
    """Items of one label to decide about as the page shows them, most often one. `shown`: the
    first of them; `shared`: how many names their label has in common with the `proposed` one;
    `remark`: the split, and why they are shown."""

    items: tuple[str, ...]
    shown: list[Shown]
    label: tuple[str, ...]
    proposed: tuple[str, ...]
    shared: int
    remark: str
    neighbours: list[Neighbour]


class SectionKind(NamedTuple):
    """What the page says of one kind of cards: its heading, whose word the proposed label is, the
    table that has all of them, and the decisions that it offers; unless given, those of suspects.
    """

    key: str
    title: str
    words: str
    proposed_by: str = "neighbours say"
    table: str = "suspects.csv"
    decisions: tuple[str, ...] = ("keep", "relabel", "drop", "merge")


class Section(NamedTuple):
    """The cards of a kind, how many there are in all, and how many labels are wrong, in words."""

    kind: SectionKind
    number: int
    wrong: str
    cards: list[Card]


KINDS = {
    FAR: SectionKind(
        FAR,
        "Far suspects",
        "Their neighbours say another branch of the tree: most likely slips.",
    ),
    NEAR: SectionKind(
        NEAR,
        "Near suspects",
        "Their neighbours say a sibling: what experts confuse, too.",
    ),
}
GROUPS = SectionKind(
    "groups",
    "Groups",
    "Many items of one class lie among those of one other, and the rest of their class lies "
    "elsewhere: either the class was taken for the other one, or a kind of it looks like that. One "
    "decision is about all items of a card.",
)
COPIES = SectionKind(
    "copies",
    "Copies",
    "Each is nearly the same as the item beside it, which has another label or is in another "
    "split. A decision is about the first of the two, in the training set if one of them is.",
    proposed_by="copy",
    table="copies.csv",
    decisions=("keep", "relabel", "drop"),
)


def write_pages(audit: Audit, folder: Path) -> Path:
    """Write the page and its tables into a folder that is new, or of an audit, and return the path
    of the page. Decisions in a `decisions.csv` of that folder are on the page. Raises UsageError
    for a folder with other files.
    """
    earlier = earlier_decisions(folder / DECISIONS, len(audit.pool.manifest.levels))
    sections = [_suspects(audit, each) for each in audit.lists]
    if audit.groups:
        sections.insert(0, _groups(audit))
    if len(audit.copies):
        sections.append(_copies(audit))
    with replacing_folder(folder, KIND) as temporary:
        audit.write(temporary)
        copy_assets(temporary / "assets", PACKAGE)
        styles = level_styles(audit.votes.depth)
        (temporary / "assets" / "levels.css").write_text(styles, encoding="utf-8")
        places = _write_pictures(audit, sections, temporary / "pictures")
        # earlier decisions that are about something on this page; the rest is a remark
        found = decided_on(sections, earlier.decisions)
        remark = " ".join(filter(None, (earlier.remark, found.remark)))
        pages = _pages(audit, places)
        pages.write(temporary, "index", sections=sections, decided=found.by_item, remark=remark)
    return folder / "index.html"


def _suspects(audit: Audit, suspects: SuspectList) -> Section:
    """The cards of a list of suspects that stand alone, the surest first; those of a group, which
    are numbered from 1, have a card together."""
    cards = []
    alone = np.flatnonzero(suspects.group == 0)
    for at in alone[:SHOWN_SUSPECTS].tolist():
        item = int(suspects.items[at])
        remark = str(audit.pool.split[item])
        sureness = float(suspects.sureness[at])
        if not np.isnan(sureness):  # NaN where it is not to be trusted
            remark += f" · {100 * sureness:.0f} % sure"
        near = audit.votes.neighbours[item][:SHOWN_NEIGHBOURS]
        cards.append(_card(audit, [item], int(suspects.proposed[at]), near, remark))
    return Section(KINDS[suspects.kind], len(alone), in_words(suspects), cards)


def _groups(audit: Audit) -> Section:
    """A card per class of which many items are said to be one other class."""
    votes = audit.votes
    cards = []
    for group in audit.groups:
        # neighbours of the proposed class, each once, in the order in which they occur
        near = votes.neighbours[group.items].ravel()
        near = near[votes.classes[near] == group.proposed]
        beside = near[np.sort(np.unique(near, return_index=True)[1])][:SHOWN_NEIGHBOURS]
        cards.append(_card(audit, group.items, group.proposed, beside, f"{len(group.items)} items"))
    return Section(GROUPS, len(cards), "", cards)


def _copies(audit: Audit) -> Section:
    """The cards of pairs that are nearly the same, the most alike first."""
    split = audit.pool.split
    position = {item: at for at, item in enumerate(audit.pool.manifest.items.tolist())}
    cards = []
    for row in audit.copies.slice(0, SHOWN_COPIES).to_pylist():
        item = position[row["item"]]
        copy = position[row["copy"]]
        # a leak is mended in the training set
        if split[copy] == TRAIN and split[item] != TRAIN:
            item, copy = copy, item
        likeness = "the same vector" if row["is_exact"] else f"cosine {row['similarity']:.4f}"
        name = audit.pool.manifest.items[copy]
        remark = f"{split[item]} · copy {name} in {split[copy]} · {likeness}"
        label = int(audit.votes.classes[copy])
        cards.append(_card(audit, [item], label, np.array([copy]), remark))
    return Section(COPIES, len(audit.copies), "", cards)


def _card(
    audit: Audit, items: Sequence[int] | Indices, proposed: int, beside: Indices, remark: str
) -> Card:
    """The card of items of one class, with a proposed class and the items beside them.

    `items`, `beside`: positions in the manifest; `proposed`: a fine class; `remark`: the small
    print of the card.
    """
    names = audit.pool.manifest.items[np.asarray(items)].tolist()
    first = int(items[0])
    own = int(audit.votes.classes[first])
    paths = audit.pool.paths
    shown = [Shown(int(at), str(name)) for at, name in zip(items, names, strict=True)]
    return Card(
        tuple(map(str, names)),
        shown[:SHOWN_MEMBERS],
        paths[own],
        paths[proposed],
        int(audit.votes.common(own, proposed)),
        remark,
        _neighbours(audit, first, beside),
    )


def _neighbours(audit: Audit, item: int, near: Indices) -> list[Neighbour]:
    """The items beside an item, with the levels that they share with it. `near` (n,): their
    positions among all items."""
    votes = audit.votes
    levels = votes.common(votes.classes[near], votes.classes[item])
    return [
        Neighbour(
            other,
            str(audit.pool.manifest.items[other]),
            audit.pool.paths[votes.classes[other]],
            level,
        )
        for other, level in zip(near.tolist(), levels.tolist(), strict=True)
    ]


def _write_pictures(audit: Audit, sections: list[Section], folder: Path) -> NDArray[np.int32]:
    """Write the pictures of all items that the page shows; their places, −1 without one."""
    shown = {each.position for section in sections for card in section.cards for each in card.shown}
    for section in sections:
        for card in section.cards:
            shown |= {neighbour.position for neighbour in card.neighbours}
    # the files are not on this disk
    if audit.pool.manifest.picture is None:
        return np.full(len(audit.pool), -1, np.int32)
    return write_sprites(folder, audit.pool.manifest, np.array(sorted(shown), np.int64))


def _pages(audit: Audit, places: NDArray[np.int32]) -> Pages:
    """The renderer of the page, with what its parts share. `places` (N,): where the items' pictures
    are, −1 without one."""
    levels = audit.pool.manifest.levels
    # decisions are stored in the browser under this name, so that those of another audit, of which
    # the same page may have been made before, are not taken for these
    shown = (audit.suspects.to_pylist(), audit.copies.to_pylist())
    content = hashlib.sha256(repr(shown).encode()).hexdigest()
    shared: dict[str, Any] = {
        "version": __version__,
        "audit": audit,
        "summary": audit.summary(),
        "depth": len(levels),
        "levels": levels,
        "legend": legend_of(levels),
        "fingerprint": content[:16],
        "place_of": lambda position: sprite_of(int(places[position])),
        "present": [("index", "Suspects")],  # the pages of the folder, for its navigation: one
        # the templates of strips, shared with reports, ask: no metric is shown, of a single model
        "by": "",
        "several": False,
    }
    return Pages(PACKAGE, shared)
