"""The drawing of a tree: true to its shares, legible in a real browser, well-formed, always the same bytes."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from playwright.sync_api import Browser

from hbench.datasets import load
from hbench.tree import LabelTree
from hbench.tree.drawing import GREY, INK, PALETTE, Sector, branch_colours, draw, ink_on, label, mixed, text_width
from hbench.tree.files import read
from hbench.tree.policies import mend
from tests.tree_strategies import label_trees

TREES = Path(__file__).parents[1] / "golden" / "trees"
SVG = "{http://www.w3.org/2000/svg}"
CORNERS = """() => [...document.querySelectorAll('.labels text')].map(text => {
    const box = text.getBBox(), to_screen = text.getScreenCTM()
    const centre = document.querySelector('.labels').getScreenCTM()
    const corners = [[0, 0], [1, 0], [1, 1], [0, 1]].map(([x, y]) => {
        const inset = box.height * 0.2  // the type's own leading, where no ink is
        const point = new DOMPoint(box.x + x * box.width, box.y + inset + y * (box.height - 2 * inset))
        const seen = point.matrixTransform(to_screen)
        return [seen.x - centre.e, seen.y - centre.f]
    })
    return {text: text.textContent, size: parseFloat(text.getAttribute('font-size')), corners}
})"""


def cub() -> LabelTree:
    table = read(TREES / "cub_species_family_order.csv", levels=["order", "family", "species"])
    return mend(table, ["by-path"]).table.tree()[0]


def inat() -> LabelTree:
    return mend(read(TREES / "inat2018_names.csv.gz"), ["by-path", "fill-from-parent"]).table.tree()[0]


def glyphs() -> LabelTree:
    return load("glyphs").tests["test"].tree


def small() -> LabelTree:
    rows = [("vehicle", "car", f"car {i}") for i in range(8)] + [("vehicle", "bus", "bus")]
    rows += [("furniture", "chair & stool", f'"chair" <{i}>') for i in range(6)] + [("furniture", "漢字", "表")]
    return LabelTree.from_names(rows, levels=("coarse", "middle", "fine"))[0]


def picture(tree: LabelTree) -> str:
    return draw(tree, np.ones(len(tree.paths), np.int64), title="A tree")


def arcs_of(svg: str) -> dict[str, list[tuple[str, list[float]]]]:
    """For every ring by its level, the tooltip and the numbers of the outline of every arc."""
    return {
        ring.get("data-level", ""): [
            (path.findtext(f"{SVG}title") or "", [float(x) for x in re.findall(r"-?[\d.]+", path.get("d", ""))])
            for path in ring.iter(f"{SVG}path")
        ]
        for ring in ET.fromstring(svg).iter(f"{SVG}g")
        if ring.get("class") == "ring"
    }


@settings(max_examples=30)
@given(label_trees())
def test_every_node_has_one_arc_with_a_tooltip_of_its_path(tree: LabelTree) -> None:
    rings = arcs_of(picture(tree))
    assert list(rings) == list(tree.levels)
    for depth, (level, names) in enumerate(zip(tree.levels, tree.names, strict=True), start=1):
        assert len(rings[level]) == len(names)
        for i, (tooltip, _) in enumerate(rings[level]):
            path = tree.paths[np.flatnonzero(tree.paths[:, depth - 1] == i)[0], :depth]
            names_on_path = " › ".join(tree.names[at][node] for at, node in enumerate(path))
            assert (
                tooltip.removesuffix(f" ({len(np.flatnonzero(tree.paths[:, depth - 1] == i))} classes)")
                == names_on_path
            )


def test_arcs_are_as_long_as_their_shares_and_lie_side_by_side_from_the_top() -> None:
    tree = cub()
    sizes = np.arange(1, 201)
    rings = arcs_of(draw(tree, sizes, title="CUB", unit="images"))
    for depth, level in enumerate(tree.levels, start=1):
        turned = 0.0
        for i, (tooltip, numbers) in enumerate(rings[level]):
            x, y, outer = numbers[0], numbers[1], numbers[2]
            end_x, end_y = numbers[7], numbers[8]
            share = sizes[np.flatnonzero(tree.paths[:, depth - 1] == i)].sum()
            assert math.hypot(x, y) == pytest.approx(outer, abs=0.1)
            assert math.atan2(x, -y) % (2 * math.pi) == pytest.approx(turned % (2 * math.pi), abs=1e-3)
            turned += share / sizes.sum() * 2 * math.pi
            ended = math.atan2(end_x, -end_y) - turned
            assert abs((ended + math.pi) % (2 * math.pi) - math.pi) < 1e-3
            assert share == 1 or tooltip.endswith(f"({share:,} images)")


def test_a_single_branch_is_drawn_as_a_whole_ring() -> None:
    tree, _ = LabelTree.from_names([("only", "x"), ("only", "y")], levels=("coarse", "fine"))
    (_, numbers) = arcs_of(picture(tree))["coarse"][0]
    assert len(numbers) == 2 * (2 + 2 * 7)  # two circles of two half arcs each


@pytest.mark.parametrize(("tree", "fewest"), [(small, 19), (cub, 230), (glyphs, 40), (inat, 130)])
def test_in_a_browser_labels_lie_inside_their_rings_and_on_no_other_label(
    browser: Browser, tmp_path: Path, tree, fewest
) -> None:  # type: ignore[no-untyped-def]
    drawn = picture(tree())
    (tmp_path / "tree.svg").write_text(drawn, encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "tree.svg").as_uri())
    labels = page.evaluate(CORNERS)[:-2]  # the last two stand in the middle
    page.close()
    edges = np.array(sorted({radius for _, n in itertools.chain(*arcs_of(drawn).values()) for radius in (n[2], n[11])}))
    assert len(labels) >= fewest
    assert min(each["size"] for each in labels) >= 7
    boxes = np.array([each["corners"] for each in labels])
    ring = np.searchsorted(edges, np.hypot(*boxes.mean(axis=1).T))
    outside = np.hypot(*boxes.transpose(2, 0, 1)).max(axis=1) - edges[ring]
    inside = np.hypot(*((boxes + np.roll(boxes, 1, axis=1)) / 2).transpose(2, 0, 1)).min(axis=1) - edges[ring - 1]
    assert [each["text"] for each, by in zip(labels, outside, strict=True) if by > 1] == []
    assert [each["text"] for each, by in zip(labels, inside, strict=True) if by < -1] == []
    for one, other in itertools.combinations(range(len(boxes)), 2):
        assert not overlap(boxes[one], boxes[other]), (labels[one]["text"], labels[other]["text"])


def overlap(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two convex quadrilaterals (4, 2) share an inner point: no edge of either separates them."""
    for box in (one, other):
        for edge in np.roll(box, 1, axis=0) - box:
            normal = np.array([-edge[1], edge[0]]) / np.hypot(*edge)
            if (one @ normal).max() <= (other @ normal).min() + 0.5 or (other @ normal).max() <= (
                one @ normal
            ).min() + 0.5:
                return False
    return True


def test_in_a_browser_the_pointer_meets_arcs_through_labels_and_nothing_is_run(
    browser: Browser, tmp_path: Path
) -> None:
    tree, _ = LabelTree.from_names(
        [("<script>document.title = 'run'</script>", "x"), ("b", "y\x01")], levels=("coarse", "fine")
    )
    (tmp_path / "tree.svg").write_text(picture(tree), encoding="utf-8")
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "tree.svg").as_uri())
    found = page.evaluate(
        """() => { const text = [...document.querySelectorAll('.labels text')].find(each => each.textContent == 'b')
        const box = text.getBoundingClientRect()
        return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2).textContent }"""
    )
    assert found == "b"
    assert page.evaluate("document.querySelectorAll('script').length") == 0
    assert page.evaluate("document.querySelector('svg > title').textContent") == "A tree"
    assert errors == []
    page.close()


def test_a_drawing_is_always_the_same_and_well_formed_whatever_the_names() -> None:
    tree, _ = LabelTree.from_names([("a\x00<&", '"]]>'), ("a\x00<&", "\ud800"), ("c", "\uffff")], levels=("<l>", "&"))
    drawn = picture(tree)
    assert drawn == picture(tree)
    drawn.encode()
    titles = [title.text for title in ET.fromstring(drawn).iter(f"{SVG}title")]
    assert titles == ["A tree", "a\ufffd<& (2 classes)", "c", 'a\ufffd<& › "]]>', "a\ufffd<& › \ufffd", "c › \ufffd"]


def test_ten_thousand_classes_of_seven_levels_stay_below_five_megabytes() -> None:
    rows = []
    for i in range(10_000):
        genus, family, order = i // 2, i // 8, i // 40
        above = (
            f"Kingdom{order // 45}",
            f"Phylum{order // 15:02d}",
            f"Classis{order // 5:03d}",
            f"Order{order:04d}iformes",
        )
        rows.append((*above, f"Family{family:04d}aceae", f"Genus{genus:05d}", f"Genus{genus:05d} speciesname{i:05d}"))
    tree, _ = LabelTree.from_names(rows, levels=tuple("abcdefg"))
    drawn = picture(tree)
    assert len(drawn.encode()) < 5_000_000
    assert drawn.count("<title>") == 1 + sum(map(len, tree.names))


def test_arcs_too_short_to_be_seen_are_left_to_the_colour_of_their_branch() -> None:
    tree, _ = LabelTree.from_names([(f"{i % 3}", f"{i}") for i in range(60_000)], levels=("coarse", "fine"))
    drawn = picture(tree)
    assert len(drawn) < 10_000
    assert drawn.count("<path") == 3 + 3


def test_colours_tell_the_level_asked_for_apart() -> None:
    tree = cub()
    sizes = np.ones(200, np.int64)
    assert ">colours" not in draw(tree, sizes, title="t")
    by_family = draw(tree, sizes, title="t", colour_level=2)
    inner = arcs_of(by_family)["order"]
    fills = re.findall(r'<path fill="(#[0-9a-f]{6})"', by_family)
    assert len(inner) == 13
    assert {mixed(GREY, 0.45), mixed(GREY, 0.5)} >= set(fills[39:52])


@pytest.mark.parametrize(
    ("sizes", "colours"),
    [
        ([5, 1, 5], [PALETTE[0], PALETTE[1], PALETTE[2]]),
        ([500, 1, 500, 2], [PALETTE[0], GREY, PALETTE[1], GREY]),
        ([100] + [1] * 20, [PALETTE[0]] + [GREY] * 20),
        ([1] * 20, [*PALETTE, *PALETTE, *PALETTE[:4]]),
        ([1] * 17, [*PALETTE, *PALETTE, PALETTE[4]]),
    ],
)
def test_branches_have_their_own_colours_or_take_turns(sizes: list[int], colours: list[str]) -> None:
    assert branch_colours(np.array(sizes)) == colours


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* (D65) of linear sRGB."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.maximum(to_xyz @ np.clip(rgb, 0, 1) / [0.9505, 1.0, 1.089], 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


# Machado, Oliveira, Fernandes 2009, severity 1.0: protanopia, deuteranopia, tritanopia
DEFICIENCIES = [
    np.eye(3),
    np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
]


@pytest.mark.parametrize("seen", DEFICIENCIES, ids=["normal", "protanopia", "deuteranopia", "tritanopia"])
def test_the_palette_stays_apart_for_colour_blind_eyes(seen: np.ndarray) -> None:
    for one, other in itertools.combinations([*PALETTE, GREY], 2):
        assert np.linalg.norm(lab(seen @ linear(one)) - lab(seen @ linear(other))) > 13, (one, other)


@pytest.mark.parametrize("colour", [*PALETTE, GREY])
@pytest.mark.parametrize("white", [0.12, 0.17, 0.4, 0.62, 0.67])
def test_labels_contrast_with_every_colour_they_stand_on(colour: str, white: float) -> None:
    ground = mixed(colour, white)
    weights = [0.2126, 0.7152, 0.0722]
    dark, light = sorted(linear(each) @ weights for each in (ground, ink_on(ground) or INK))
    assert (light + 0.05) / (dark + 0.05) >= 4.5 - 0.6


def test_a_label_that_fits_nowhere_is_left_out() -> None:
    assert label("a long name", Sector(100, 130, 0.0, 0.05), ink="", outermost=True) is None
    assert label("name", Sector(100, 130, 0.0, 1.0), ink="", outermost=True) is not None
    assert text_width("e\u0301") == text_width("e")
    assert text_width("漢") > text_width("W") > text_width("a") > text_width("i")
