"""Writes the page of an audit. It lists suspects and copies, which the user decides about by keys
or buttons, and saves the decisions as a file that a build applies."""

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
SHOWN_SUSPECTS = 300  # most cards of each list
SHOWN_COPIES = 100
SHOWN_MEMBERS = 4  # most pictures of a group
KIND = "audit"


class Neighbour(NamedTuple):
    """An item shown beside the item to decide about. `level` is the level of this pair by their
    labels."""

    position: int
    item: str
    path: tuple[str, ...]
    level: int


class Shown(NamedTuple):
    """An item to decide about whose picture is shown."""

    position: int
    item: str


class Card(NamedTuple):
    """One card of the page, about items of the same label. Most cards are about one item.

    Attributes:
        items: the ids of the items.
        shown: the first items, whose pictures are shown.
        label: the path of the items' label.
        proposed: the path of the proposed label.
        shared: the number of names that `label` and `proposed` have in common.
        remark: the split, and why the items are on the page.
        neighbours: the items beside which the items are shown.
    """

    items: tuple[str, ...]
    shown: list[Shown]
    label: tuple[str, ...]
    proposed: tuple[str, ...]
    shared: int
    remark: str
    neighbours: list[Neighbour]


class SectionKind(NamedTuple):
    """The texts and options of a section of cards.

    Attributes:
        key: the section's id in the page.
        title: the heading.
        words: a text that explains the section.
        proposed_by: the text before the proposed label, which says where the proposal comes from.
        table: the file that lists all of the section's items.
        decisions: the decisions that the page offers.
    """

    key: str
    title: str
    words: str
    proposed_by: str = "neighbours say"
    table: str = "suspects.csv"
    decisions: tuple[str, ...] = ("keep", "relabel", "drop", "merge")


class Section(NamedTuple):
    """A section of the page. `number` counts all suspects, groups or copies, also those without a
    card. `wrong_labels`: the bounds on the number of wrong labels, in words; "" where there are
    none, as for groups and copies."""

    kind: SectionKind
    number: int
    cards: list[Card]
    wrong_labels: str = ""


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
    """Write the page and its tables, and return the path of the page.

    The folder is new, or has an earlier audit. A `decisions.csv` in the folder, which the user
    saved from the earlier page, is kept, and its decisions are shown on the page. Raises UsageError
    for a folder with other files.
    """
    # decisions name paths, so it matters how many levels the tree has
    earlier = earlier_decisions(folder / DECISIONS, len(audit.pool.manifest.levels))
    sections = [_suspects(audit, each) for each in audit.lists]
    if audit.groups:
        sections.insert(0, _groups(audit))
    if len(audit.copies):
        sections.append(_copies(audit))
    # keeps files that the page did not write, such as decisions.csv
    with replacing_folder(folder, KIND) as temporary:
        audit.write(temporary)
        copy_assets(temporary / "assets", PACKAGE)
        styles = level_styles(audit.votes.depth)
        (temporary / "assets" / "levels.css").write_text(styles, encoding="utf-8")
        places = _write_pictures(audit, sections, temporary / "pictures")
        # `by_item`: the earlier decisions about items on this page; `remark` counts the others
        found = decided_on(sections, earlier.decisions)
        remark = " ".join(filter(None, (earlier.remark, found.remark)))
        pages = _pages(audit, places)
        pages.write(temporary, "index", sections=sections, decided=found.by_item, remark=remark)
    return folder / "index.html"


def _suspects(audit: Audit, suspects: SuspectList) -> Section:
    """Make a card for each suspect of a list that is in no group, in the order of the list. The
    suspects of a group share a card in the section of groups."""
    cards = []
    alone = np.flatnonzero(suspects.group == 0)  # groups are numbered from 1
    for at in alone[:SHOWN_SUSPECTS].tolist():
        item = int(suspects.items[at])
        remark = str(audit.pool.split[item])
        sureness = float(suspects.sureness[at])
        if not np.isnan(sureness):  # NaN if the sureness cannot be trusted
            remark += f" · {100 * sureness:.0f} % sure"
        near = audit.votes.neighbours[item][:SHOWN_NEIGHBOURS]  # (k,): positions of items
        cards.append(_card(audit, [item], int(suspects.proposed[at]), near, remark))
    # the section states the number of all suspects in no group, also of those without a card
    return Section(
        kind=KINDS[suspects.kind], number=len(alone), cards=cards, wrong_labels=in_words(suspects)
    )


def _groups(audit: Audit) -> Section:
    """Make a card for each class of which many items seem to belong to one other class."""
    votes = audit.votes
    cards = []
    for group in audit.groups:
        # the neighbours that have the proposed class, those of the group's first item first
        near = votes.neighbours[group.items].ravel()
        near = near[votes.classes[near] == group.proposed]
        # each once, where it occurs first: np.unique alone would order them by position
        beside = near[np.sort(np.unique(near, return_index=True)[1])][:SHOWN_NEIGHBOURS]
        cards.append(_card(audit, group.items, group.proposed, beside, f"{len(group.items)} items"))
    return Section(kind=GROUPS, number=len(cards), cards=cards)


def _copies(audit: Audit) -> Section:
    """Make a card for each pair of items that are nearly the same, the most similar pair first. The
    class that a card proposes is that of the copy."""
    split = audit.pool.split
    position = {item: at for at, item in enumerate(audit.pool.manifest.items.tolist())}
    cards = []
    for row in audit.copies.slice(0, SHOWN_COPIES).to_pylist():
        item = position[row["item"]]
        copy = position[row["copy"]]
        # if the pair leaks from the training set to a test, the decision is about the item to train
        # on
        if split[copy] == TRAIN and split[item] != TRAIN:
            item, copy = copy, item
        likeness = "the same vector" if row["is_exact"] else f"cosine {row['similarity']:.4f}"
        name = audit.pool.manifest.items[copy]
        remark = f"{split[item]} · copy {name} in {split[copy]} · {likeness}"
        label = int(audit.votes.classes[copy])  # by its label: `classes` is the class of every item
        cards.append(_card(audit, [item], label, np.array([copy]), remark))
    return Section(kind=COPIES, number=len(audit.copies), cards=cards)


def _card(
    audit: Audit, items: Sequence[int] | Indices, proposed: int, beside: Indices, remark: str
) -> Card:
    """Make the card of items of one class.

    Args:
        audit: the audit.
        items: positions of the items in the manifest, at least one.
        proposed: the fine class that the items may belong to.
        beside: positions of the items to show beside them. For each of these, the card shows its
            level to the first of `items`.
        remark: the small print of the card.
    """
    names = audit.pool.manifest.items[np.asarray(items)].tolist()
    first = int(items[0])
    own = int(audit.votes.classes[first])
    paths = audit.pool.paths
    shown = [Shown(int(at), str(name)) for at, name in zip(items, names, strict=True)]
    return Card(
        items=tuple(map(str, names)),
        shown=shown[:SHOWN_MEMBERS],
        label=paths[own],
        proposed=paths[proposed],
        shared=int(audit.votes.common(own, proposed)),
        remark=remark,
        neighbours=_neighbours(audit, first, beside),
    )


def _neighbours(audit: Audit, item: int, near: Indices) -> list[Neighbour]:
    """Describe the items beside an item, with their levels to it. `near` (n,) has their positions
    in the manifest."""
    votes = audit.votes
    levels = votes.common(votes.classes[near], votes.classes[item])
    return [
        Neighbour(
            position=other,
            item=str(audit.pool.manifest.items[other]),
            path=audit.pool.paths[votes.classes[other]],
            level=level,
        )
        for other, level in zip(near.tolist(), levels.tolist(), strict=True)
    ]


def _write_pictures(audit: Audit, sections: list[Section], folder: Path) -> NDArray[np.int32]:
    """Write the pictures of all items that the page shows, on sheets. Return the place of each
    item's picture on the sheets, (N,) for the N items of the manifest; −1 without a picture."""
    shown = {each.position for section in sections for card in section.cards for each in card.shown}
    for section in sections:
        for card in section.cards:
            shown |= {neighbour.position for neighbour in card.neighbours}
    # None: pictures cannot be opened, since their files are not on this disk
    if audit.pool.manifest.picture is None:
        return np.full(len(audit.pool), -1, np.int32)
    return write_sprites(folder, audit.pool.manifest, np.array(sorted(shown), np.int64))


def _pages(audit: Audit, places: NDArray[np.int32]) -> Pages:
    """Make the renderer of the page, with the variables that its templates share. `places` (N,) is
    the place of each item's picture on the sheets; −1 for an item without a picture, for which the
    templates get None."""
    levels = audit.pool.manifest.levels
    # the browser stores decisions under this fingerprint of the content, so that the decisions of
    # another audit, whose page had the same address, are not taken for decisions of this audit
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
        "present": [("index", "Suspects")],  # the only page in the navigation bar
        # variables that the templates shared with reports need: here the rows of pictures show no
        # metric (`by`) and a single model
        "by": "",
        "several": False,
    }
    return Pages(PACKAGE, shared)
