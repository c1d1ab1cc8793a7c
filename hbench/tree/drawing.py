"""Draws a label tree as an SVG sunburst: a ring per level, coarse inside, names where they fit, tooltips everywhere."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from hbench.tree import LabelTree
from hbench.tree.names import CONTROL
from hbench.tree.statistics import effective_number, items_of_level

PALETTE = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#994f00")
SMALL_BRANCH = 0.015  # of the whole; smaller branches share the grey
GREY = "#bbbbbb"
INK = "#222222"


def branch_colours(sizes: NDArray[np.int64]) -> list[str]:
    """A colour per branch: its own for each of the largest, and grey, where these make up most of the tree; else the
    palette in turns."""
    largest = np.sort(np.argsort(-sizes, kind="stable")[: len(PALETTE)])
    if sizes[largest].sum() < 0.8 * sizes.sum():
        turns = [PALETTE[i % len(PALETTE)] for i in range(len(sizes))]
        if len(sizes) % len(PALETTE) == 1:  # the last one lies beside the first
            turns[-1] = PALETTE[len(PALETTE) // 2]
        return turns
    own = dict(zip(largest[sizes[largest] >= SMALL_BRANCH * sizes.sum()].tolist(), PALETTE, strict=False))
    return [own.get(i, GREY) for i in range(len(sizes))]


def mixed(colour: str, white: float) -> str:
    """A colour with a share of white.

    >>> mixed("#4477aa", 0.5)
    '#a2bbd4'
    """
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (255 - part) * white):02x}" for part in parts)


def ink_on(fill: str) -> str:
    """White for a dark ground, "" (the usual ink) for any other; by its relative luminance."""
    red, green, blue = (int(fill[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "#ffffff" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 < 0.22 else ""


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


RADIUS, SMALLEST_RADIUS, HOLE, PANEL, MARGIN = 500.0, 340.0, 44.0, 240.0, 12.0
DENSE = 26.0  # width of a ring whose arcs are too short for names
READABLE = 8.5  # an arc, in pixels, from which on a name is readable in it
THINNEST = 0.1  # shorter arcs, in pixels, are left to the colour of their branch
MOST_BRANCHES = 30
FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ring:
    """A level as drawn: node i lies between edges[i] and edges[i + 1] (radians, clockwise from the top)."""

    level: int
    names: Sequence[str]
    sizes: NDArray[np.int64]
    edges: Floats
    inner: float
    outer: float
    fills: Sequence[str]

    def sector(self, i: int) -> Sector:
        return Sector(self.inner, self.outer, float(self.edges[i]), float(self.edges[i + 1]))


def draw(
    tree: LabelTree, sizes: NDArray[np.int64], *, title: str, unit: str = "classes", colour_level: int | None = None
) -> str:
    """The SVG of a tree; `sizes` (C,), in `unit`, are the shares of the circle of the fine classes.

    Colours tell the nodes of one level apart: `colour_level` (1 … L), by default the coarsest of three or more
    effective branches. The palette is safe for colour-blind readers.
    """
    at_level = [items_of_level(tree, sizes, depth + 1) for depth in range(tree.depth)]
    edges = [np.concatenate([[0.0], np.cumsum(own)]) / own.sum() * 2 * math.pi for own in at_level]
    coloured = colour_level or _default_colour_level(at_level)
    colours = branch_colours(at_level[coloured - 1])
    radii = _radii(tree, edges)
    rings = [
        Ring(
            depth + 1,
            tree.names[depth],
            at_level[depth],
            edges[depth],
            radii[depth],
            radii[depth + 1],
            _fills(tree, depth + 1, coloured, colours),
        )
        for depth in range(tree.depth)
    ]
    arcs = [_underlay(rings[coloured - 1], radii[-1], colours), *(_arcs(ring, tree, unit) for ring in rings)]
    labels = [_labels(ring, outermost=ring.level == tree.depth) for ring in rings]
    panel = _panel(tree, rings[coloured - 1], title, unit, colours)
    return _document(arcs, [*labels, _middle(sizes, unit)], panel, radii[-1], title)


def _default_colour_level(sizes: Sequence[NDArray[np.int64]]) -> int:
    many = [
        depth for depth, own in enumerate(sizes, start=1) if effective_number(own) >= 3 and len(own) <= MOST_BRANCHES
    ]
    several = [depth for depth, own in enumerate(sizes, start=1) if len(own) > 1]
    return (many or several or [1])[0]


def _fills(tree: LabelTree, level: int, coloured: int, colours: Sequence[str]) -> list[str]:
    """Colours of a ring: neutral above the coloured level, its branch's below, paler outwards; siblings alternate."""
    nodes = np.arange(len(tree.names[level - 1]))
    lift = 0.05 * (nodes % 2)
    if level < coloured:
        return [mixed(GREY, 0.45 + extra) for extra in lift]
    first_class = np.searchsorted(tree.paths[:, level - 1], nodes)
    pale = 0.12 + 0.5 * (level - coloured) / max(tree.depth - coloured, 1)
    return [
        mixed(colours[branch], pale + extra)
        for branch, extra in zip(tree.paths[first_class, coloured - 1], lift, strict=True)
    ]


def _radii(tree: LabelTree, edges: Sequence[Floats]) -> list[float]:
    """The radii between the rings, from the hole outwards.

    A ring is as wide as most of its readable names need; what lies inside the outermost one is widened until the names
    of its classes have room side by side.
    """
    wishes = [
        _wish(*ring, (depth + 0.6) / tree.depth) for depth, ring in enumerate(zip(tree.names, edges, strict=True))
    ]
    radii = HOLE + np.cumsum([0.0, *wishes])
    radii *= min(1.0, RADIUS / radii[-1])
    outermost = radii[-1] - radii[-2]
    beside = READABLE / float(np.median(np.diff(edges[-1])))
    if 0.9 * beside < RADIUS - outermost:
        radii[:-1] *= max(1.0, min(1.2 * beside, RADIUS - outermost) / radii[-2])
        radii[-1] = radii[-2] + outermost
    return [float(radius) for radius in radii * max(1.0, SMALLEST_RADIUS / radii[-1])]


def _wish(names: Sequence[str], edges: Floats, share: float) -> float:
    """The width that a ring wants: of nearly all its readable names, set in 10 pixels; little where few are readable.

    `share` says about how far out the ring lies.
    """
    arcs = np.diff(edges) * (HOLE + (RADIUS - HOLE) * share)
    readable = arcs >= READABLE
    if arcs[readable].sum() < 0.1 * arcs.sum():
        return DENSE
    lengths = np.array([text_width(name) * 10 + 12 for name in names])
    needed = np.sort(np.where(lengths < arcs, DENSE, lengths)[readable])
    return max(DENSE, float(needed[int(0.95 * (len(needed) - 1))]))


def _point(radius: float, angle: float) -> str:
    return f"{radius * math.sin(angle) + 0.0:.2f},{-radius * math.cos(angle) + 0.0:.2f}"


def _outline(sector: Sector) -> str:
    if sector.span > 2 * math.pi - 1e-6:
        circles = ((radius, _point(radius, 0), _point(radius, math.pi)) for radius in (sector.outer, sector.inner))
        return "".join(f"M{top}A{r:.1f},{r:.1f} 0 1 1 {low}A{r:.1f},{r:.1f} 0 1 1 {top}Z" for r, top, low in circles)
    inner, outer, long = f"{sector.inner:.1f}", f"{sector.outer:.1f}", int(sector.span > math.pi)
    return (
        f"M{_point(sector.outer, sector.start)}A{outer},{outer} 0 {long} 1 {_point(sector.outer, sector.end)}"
        f"L{_point(sector.inner, sector.end)}A{inner},{inner} 0 {long} 0 {_point(sector.inner, sector.start)}Z"
    )


def _underlay(ring: Ring, outer: float, colours: Sequence[str]) -> str:
    """One sector per branch below everything, so that no white shines through between thin arcs."""
    sectors = (Sector(ring.inner, outer, *map(float, ring.edges[i : i + 2])) for i in range(len(ring.names)))
    paths = (
        f'<path fill="{mixed(colour, 0.4)}" d="{_outline(sector)}"/>'
        for sector, colour in zip(sectors, colours, strict=True)
    )
    return "".join(paths)


def _arcs(ring: Ring, tree: LabelTree, unit: str) -> str:
    first_class = np.searchsorted(tree.paths[:, ring.level - 1], np.arange(len(ring.names)))
    lines = []
    for i, (size, fill, row) in enumerate(zip(ring.sizes.tolist(), ring.fills, tree.paths[first_class], strict=True)):
        sector = ring.sector(i)
        arc = sector.span * ring.outer
        if arc >= THINNEST:
            path = " › ".join(names[node] for names, node in zip(tree.names[: ring.level], row, strict=False))
            stroke = f' stroke="#fff" stroke-width="{min(arc / 10, 0.8):.1f}"' if arc >= 1 else ""
            title = clean(f"{path} ({size:,} {unit})" if size > 1 else path)
            lines.append(f'<path fill="{fill}"{stroke} d="{_outline(sector)}"><title>{title}</title></path>')
    return "\n".join([f'<g class="ring" data-level="{clean(tree.levels[ring.level - 1])}">', *lines, "</g>"])


def _labels(ring: Ring, *, outermost: bool) -> str:
    lines = (
        label(name, ring.sector(i), ink=ink_on(fill), outermost=outermost)
        for i, (name, fill) in enumerate(zip(ring.names, ring.fills, strict=True))
        if (ring.edges[i + 1] - ring.edges[i]) * ring.outer >= READABLE - 1
    )
    return "\n".join(filter(None, lines))


def _middle(sizes: NDArray[np.int64], unit: str) -> str:
    total = f"{int(sizes.sum()):,}"
    return (
        f'<text y="-2" font-size="15" font-weight="bold">{total}</text><text y="13" font-size="11">{clean(unit)}</text>'
    )


def _panel(tree: LabelTree, coloured: Ring, title: str, unit: str, colours: Sequence[str]) -> str:
    """The title, the rings from the middle outwards and, where every colour is one branch, the legend."""
    lines = [f'<text font-size="16" font-weight="bold">{clean(line)}</text>' for line in textwrap.wrap(title, 25)]
    lines.append("")
    lines.append(_entry("ring, from the middle", "nodes", style=' fill="#666666"'))
    lines += [_entry(level, f"{len(names):,}") for level, names in zip(tree.levels, tree.names, strict=True)]
    own = list(zip(colours, coloured.names, coloured.sizes.tolist(), strict=True))
    named = [entry for entry in own if entry[0] != GREY]
    if len(named) == len({colour for colour, _, _ in named}):
        lines += ["", _entry(tree.levels[coloured.level - 1], unit, style=' fill="#666666"')]
        lines += [_entry(name, f"{size:,}", colour) for colour, name, size in named]
        rest = [(name, size) for colour, name, size in own if colour == GREY]
        name = rest[0][0] if len(rest) == 1 else f"{len(rest)} smaller"
        lines += [_entry(name, f"{sum(size for _, size in rest):,}", GREY)] * bool(rest)
    return "\n".join(f'<g transform="translate(0 {18 + 19 * i})">{line}</g>' for i, line in enumerate(lines) if line)


def _entry(name: str, number: str, colour: str = "", *, style: str = "") -> str:
    swatch = f'<rect y="-10" width="12" height="12" fill="{mixed(colour, 0.12)}"/>' if colour else ""
    return (
        f'{swatch}<text x="{18 if colour else 0}" font-size="12"{style}>{clean(_short(name, 28))}</text>'
        f'<text x="{PANEL - 20:.0f}" font-size="12" text-anchor="end"{style}>{clean(number)}</text>'
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _document(arcs: Sequence[str], labels: Sequence[str], panel: str, radius: float, title: str) -> str:
    side = 2 * (radius + MARGIN)
    centre = f"translate({side / 2:.1f} {side / 2:.1f})"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {side + PANEL:.0f} {side:.0f}" role="img" '
        f'width="{side + PANEL:.0f}" height="{side:.0f}" font-family="{FONT}" fill="{INK}">'
    )
    return "\n".join(
        [
            head,
            f"<title>{clean(title)}</title>",
            "<style>.ring path:hover{fill:#222222}.labels{pointer-events:none}</style>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            f'<g transform="{centre}" fill-rule="evenodd">',
            *arcs,
            "</g>",
            f'<g transform="{centre}" class="labels" text-anchor="middle">',
            *labels,
            "</g>",
            f'<g transform="translate({side + 4:.0f} {MARGIN:.0f})">',
            panel,
            "</g>",
            "</svg>",
            "",
        ]
    )
