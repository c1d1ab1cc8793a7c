"""A label in a ring's sector: the largest type in which a name fits, along the arc or along the radius, upright.

Angles are radians, clockwise from the top; lengths are pixels.
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from html import escape

from hbench.tree.names import CONTROL

SIZES = (13, 12, 11, 10, 9, 8, 7)
NARROW, WIDE = frozenset("fijlrtI.,;:!'|()[]- "), frozenset("mwMWŒœÆ@%")


@dataclass(frozen=True)
class Sector:
    """The part of a ring between two radii and two angles."""

    inner: float
    outer: float
    start: float
    end: float

    @property
    def middle(self) -> float:
        return (self.start + self.end) / 2

    @property
    def span(self) -> float:
        return self.end - self.start

    def chord(self, radius: float) -> float:
        """How broad the sector is at a radius, measured straight across."""
        return 2 * radius * math.sin(min(self.span, math.pi) / 2)


def text_width(text: str) -> float:
    """The width of a text in ems; an estimate on the safe side for the usual sans-serif types."""
    return sum(map(_em, text))


def _em(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if character in WIDE:
        return 0.97
    if character in NARROW:
        return 0.38
    return 0.7 if character.isupper() else 0.61


def label(name: str, sector: Sector, *, ink: str, outermost: bool, largest: int = SIZES[0]) -> str | None:
    """The SVG text of a name in its sector, or None where it does not fit."""
    ems = text_width(name)
    broad = sector.chord((sector.inner + sector.outer) / 2) > sector.outer - sector.inner
    places = (_along_arc, _along_radius) if broad else (_along_radius, _along_arc)
    for size in (size for size in SIZES if size <= largest):
        for place in places:
            placed = place(ems * size, size, sector, outermost)
            if placed is not None:
                radius, turn, anchor = placed
                x, y = radius * math.sin(sector.middle), -radius * math.cos(sector.middle)
                style = f' text-anchor="{anchor}"' * (anchor != "middle") + f' fill="{ink}"' * bool(ink)
                turned = f"translate({x:.1f} {y:.1f}) rotate({math.degrees(turn):.1f})"
                return (
                    f'<text transform="{turned}" y="{size * 0.35:.1f}" font-size="{size}"{style}>{clean(name)}</text>'
                )
    return None


def clean(text: str) -> str:
    """A text as XML holds it."""
    return escape(CONTROL.sub("\N{REPLACEMENT CHARACTER}", text))


def _along_arc(width: float, size: int, sector: Sector, _outermost: bool) -> tuple[float, float, str] | None:
    height = 1.15 * size
    radius = (sector.inner + sector.outer) / 2
    sagitta = math.hypot(radius + height / 2, width / 2) - (radius + height / 2)
    radius -= sagitta / 2
    fits = radius - height / 2 > sector.inner and math.hypot(radius + height / 2, width / 2) < sector.outer
    if not fits or width + 4 > sector.chord(radius - height / 2):
        return None
    upside_down = math.pi / 2 < sector.middle % (2 * math.pi) < 3 * math.pi / 2
    return radius, sector.middle + math.pi * upside_down, "middle"


def _along_radius(width: float, size: int, sector: Sector, outermost: bool) -> tuple[float, float, str] | None:
    inside = sector.inner + 4 if outermost else (sector.inner + sector.outer - width) / 2
    if inside < sector.inner + 2 or inside + width > sector.outer - 1 or sector.chord(inside) < 1.05 * size:
        return None
    leftward = sector.middle % (2 * math.pi) > math.pi
    turn = sector.middle + (math.pi / 2 if leftward else -math.pi / 2)
    if outermost:
        return inside, turn, "end" if leftward else "start"
    return inside + width / 2, turn, "middle"
