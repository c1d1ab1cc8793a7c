"""Writes the page of an audit: its suspects one below the other, decided by keys or buttons, with
the decisions as a file that a build applies.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.auditing.audit import Audit
from hbench.auditing.suspects import SHOWN_NEIGHBOURS, SuspectList
from hbench.core.version import __version__
from hbench.look.pages.folder import Pages, copy_assets, level_styles, replacing_folder
from hbench.look.report.sprites import sprite_of, write_sprites
from hbench.look.strips.retrievals import legend_of

PACKAGE = "hbench.look.audit"
SHOWN_SUSPECTS = 300  # of each list
KIND = "audit"
WORDS = {
    "far": "Their neighbours say another branch of the tree: most likely slips.",
    "near": "Their neighbours say a sibling: what experts confuse, too.",
}


class Neighbour(NamedTuple):
    """A neighbour of a suspect; `level`: how many levels it shares with the suspect's label."""

    position: int
    item: str
    path: tuple[str, ...]
    level: int


class Card(NamedTuple):
    """A suspect as the page shows it. `shared`: how many names its label has in common with what
    its neighbours say."""

    position: int
    item: str
    split: str
    label: tuple[str, ...]
    proposed: tuple[str, ...]
    shared: int
    sureness: float | None
    neighbours: list[Neighbour]


class Section(NamedTuple):
    """A list of suspects: its cards, and how many there are in all."""

    kind: str
    words: str
    number: int
    expected: float | None
    cards: list[Card]


def write_pages(audit: Audit, folder: Path) -> Path:
    """Write the page and its tables into a folder that is new, or of an audit, and return the path
    of the page. Raises UsageError for a folder with other files.
    """
    sections = [_section(audit, each) for each in audit.lists]
    with replacing_folder(folder, KIND) as temporary:
        audit.write(temporary)
        copy_assets(temporary / "assets", PACKAGE)
        styles = level_styles(audit.votes.depth)
        (temporary / "assets" / "levels.css").write_text(styles, encoding="utf-8")
        places = _write_pictures(audit, sections, temporary / "pictures")
        _pages(audit, places).write(temporary, "index", sections=sections)
    return folder / "index.html"


def _section(audit: Audit, suspects: SuspectList) -> Section:
    """The cards of a list, the surest first."""
    paths = audit.pool.paths
    cards = []
    for at, item in enumerate(suspects.items[:SHOWN_SUSPECTS].tolist()):
        own = int(audit.votes.classes[item])
        proposed = int(suspects.proposed[at])
        sureness = float(suspects.sureness[at])
        cards.append(
            Card(
                item,
                str(audit.pool.manifest.items[item]),
                str(audit.pool.split[item]),
                paths[own],
                paths[proposed],
                int(audit.votes.common(own, proposed)),
                None if np.isnan(sureness) else sureness,
                _neighbours(audit, item),
            )
        )
    return Section(
        suspects.kind, WORDS[suspects.kind], len(suspects.items), suspects.expected, cards
    )


def _neighbours(audit: Audit, item: int) -> list[Neighbour]:
    """The nearest neighbours of an item."""
    votes = audit.votes
    near = votes.neighbours[item][:SHOWN_NEIGHBOURS]
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
    shown = {card.position for section in sections for card in section.cards}
    for section in sections:
        for card in section.cards:
            shown |= {neighbour.position for neighbour in card.neighbours}
    if audit.pool.manifest.picture is None:
        return np.full(len(audit.pool), -1, np.int32)
    return write_sprites(folder, audit.pool.manifest, np.array(sorted(shown), np.int64))


def _pages(audit: Audit, places: NDArray[np.int32]) -> Pages:
    """The renderer of the page, with what its parts share."""
    levels = audit.pool.manifest.levels
    numbers = audit.suspects.to_pydict()
    content = hashlib.sha256(repr(sorted(numbers.items())).encode()).hexdigest()
    shared: dict[str, Any] = {
        "version": __version__,
        "audit": audit,
        "summary": audit.summary(),
        "depth": len(levels),
        "levels": levels,
        "legend": legend_of(levels),
        "fingerprint": content[:16],
        "place_of": lambda position: sprite_of(int(places[position])),
        "present": [("index", "Suspects")],
        "by": "",
        "several": False,
    }
    return Pages(PACKAGE, shared)
