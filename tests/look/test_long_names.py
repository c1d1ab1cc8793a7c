"""Pages of long names and many levels, in a real browser: they break, or keep what differs; what is
cropped shows it.
"""

import io

import numpy as np
import pytest
from PIL import Image

import hbench
from hbench.look.wording import tail, telling
from hbench.submissions import embeddings
from tests.command_line import call
from tests.look.elements import check_page, each

LEVELS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")
MODELS = tuple(
    f"a_rather_long_name_of_a_model_vit_large_patch14_dinov2_{tail}lvd142m"
    for tail in ("", "reg4_")
)
CLASSES, ITEMS = 48, 240
PAGES = ("index", "queries", "classes", "compare", "explore", "tree", "map")


def path_of(number):
    names = (
        "Animalia",
        f"Phylum{number % 2}",
        f"Class of a rather long name {number % 4}",
        f"Order{number % 8}",
    )
    return (
        *names,
        f"Pseudocolobodesmidaeformes{number % 16}",
        f"Genus{number % 16}",
        f"Chaetopteryxneurobasisphilippinensis var. {number}",
    )


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """A table of seven levels without pictures, and the pages of two models of long names; at the
    coarsest level all is right.
    """
    folder = tmp_path_factory.mktemp("deep")
    rows = [
        f"folder/with/a/long/path/IMG_{n:05}.jpg,{','.join(path_of(n % CLASSES))}"
        for n in range(ITEMS)
    ]
    (folder / "deep.csv").write_text("\n".join([f"item,{','.join(LEVELS)}", *rows]) + "\n")
    rng = np.random.default_rng(0)
    means = rng.normal(size=(CLASSES, 16))
    for name, noise in zip(MODELS, (0.6, 1.2), strict=True):
        vectors = means[np.arange(ITEMS) % CLASSES] + noise * rng.normal(size=(ITEMS, 16))
        embeddings.write(
            folder / f"{name}.npz",
            [row.partition(",")[0] for row in rows],
            vectors.astype(np.float32),
        )
        words = (
            "-d",
            folder / "deep.csv",
            "-o",
            folder / f"{name}.json",
            "--top-k",
            12,
            "--method",
            name,
        )
        call("evaluate", folder / f"{name}.npz", *words)
    files = [folder / f"{name}.json" for name in MODELS]
    vectors = [word for name in MODELS for word in ("--embeddings", folder / f"{name}.npz")]
    call("report", *files, "-d", folder / "deep.csv", *vectors, "-o", folder / "pages")
    return folder


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1440, "dark")])
def test_no_text_runs_out_of_its_page(opened, findings, deep, name, width, scheme):
    page = opened(deep / "pages" / f"{name}.html", width=width, scheme=scheme)
    cut = "e.scrollWidth > e.clientWidth + 1 ? e.textContent.slice(0, 80) : ''"
    assert not any(
        each(
            page,
            "h1, h2:not(.quiet), h3, main > p, section > p, .lead, .about, .key li, .subject, "
            "footer p",
            cut,
        )
    )
    check_page(page, findings)


@pytest.mark.parametrize("table", ["table.forest", "table.classes"])
def test_on_a_phone_the_difference_comes_first(opened, deep, table):
    page = opened(deep / "pages" / "compare.html", width=390)
    heads = each(
        page.locator(table).first,
        "thead th",
        "[e.textContent, e.title, e.getBoundingClientRect().right]",
    )
    assert heads[1][0] == "difference"
    assert heads[1][2] <= 390
    assert [head[:2] for head in heads if head[1]] == [
        ["…lvd142m", MODELS[0]],
        ["…reg4_lvd142m", MODELS[1]],
    ]
    values = each(page, f"{table} tbody td:nth-child(2)", "e.textContent.trim()")
    assert values
    assert all(value[0] in "+−" for value in values)


def edge_of(page, element, side):
    """The usual grey of the pixels at an edge of an element, between its letters."""
    with Image.open(io.BytesIO(element.screenshot())) as image:
        grey = np.asarray(image.convert("L"), float)[-60:-20]
    return float(np.median(grey[:, -3:] if side == "right" else grey[:, :3]))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_cropped_shows_that_it_scrolls(opened, deep, scheme):
    page = opened(deep / "pages" / "compare.html", width=390, scheme=scheme)
    table = page.locator(".scroll").first
    table.scroll_into_view_if_needed()
    assert table.evaluate("e => e.scrollWidth > e.clientWidth + 40")
    background = edge_of(page, page.locator("h1"), "right")
    cropped, left = edge_of(page, table, "right"), edge_of(page, table, "left")
    table.evaluate("e => { e.scrollLeft = e.scrollWidth; }")
    at_end, before = edge_of(page, table, "right"), edge_of(page, table, "left")
    assert abs(cropped - background) > 15 < abs(before - background)
    assert abs(at_end - background) < 5 > abs(left - background)


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("name", ["queries", "explore"])
def test_a_tile_without_a_picture_shows_its_class_whole_and_its_level_is_read(
    opened, deep, name, width
):
    page = opened(deep / "pages" / f"{name}.html", width=width)
    page.wait_for_selector(".tile .nopicture")
    named = {
        f"folder/with/a/long/path/IMG_{n:05}.jpg": path_of(n % CLASSES)[-1] for n in range(ITEMS)
    }
    tiles = (
        "[e.dataset.item, e.querySelector('.nopicture').textContent, "
        "e.querySelector('.caption.item').textContent]"
    )
    for item, text, caption in each(page, "main .tile[data-item]", tiles):
        assert (text, caption) == (named[item], tail(item))
    fits = (
        "e.scrollHeight <= e.parentElement.clientHeight + 1 && e.scrollWidth <= "
        "e.parentElement.clientWidth + 1"
    )
    assert all(each(page, "main .tile .nopicture", fits))
    chips = each(
        page,
        "main .tile .level",
        "[e.lastChild.textContent.trim(), e.scrollWidth <= e.clientWidth, "
        "parseFloat(getComputedStyle(e).fontSize)]",
    )
    assert {level for level, *_ in chips} <= {*LEVELS, "unrelated"}
    assert all(whole and size >= 10 for _, whole, size in chips)
    asked = page.locator(".tile.query .nopicture, .asked .nopicture").first
    assert asked.text_content() in named.values()


def test_the_map_has_a_legend_of_what_its_colours_are(opened, deep):
    page = opened(deep / "pages" / "map.html")
    page.wait_for_selector("#map[data-ready]")
    assert (
        page.locator("figure #map-colored").inner_text() == "Colour: phylum"
    )  # of one kingdom there is nothing to tell
    assert page.locator("#map-legend li").all_inner_texts() == ["Phylum0", "Phylum1"]
    shown, colors = (
        set(each(page, "#map-picture .dot", "e.getAttribute('stroke')")),
        each(page, "#map-legend rect", "e.getAttribute('fill')"),
    )
    assert shown == set(colors)
    picture, legend = (
        page.locator(name).bounding_box() for name in ("#map-picture", "#map-legend")
    )
    assert legend["y"] + legend["height"] <= picture["y"] < legend["y"] + 80
    page.select_option("#map-color", "value")
    assert (
        page.locator("#map-colored").inner_text()
        == "Colour: H-AP, the mean of the queries of a class"
    )
    assert page.locator("#map-run option").all_text_contents() == ["…lvd142m", "…reg4_lvd142m"]


def test_scores_of_100_have_one_sided_intervals_and_idle_recalls_are_left_out(opened, deep):
    page = opened(deep / "pages" / "index.html")
    score = hbench.Report.read(deep / f"{MODELS[0]}.json").document.scores["AP/kingdom"]
    assert score.value == 1 > score.low
    cell = page.locator("[data-metric='AP/kingdom'][data-run='0'] + .interval")
    assert (cell.inner_text(), cell.get_attribute("title")) == (
        f"≥ {100 * score.low:.2f}",
        f"95 % interval ≥ {100 * score.low:.2f}",
    )
    assert page.locator("[data-metric^='R@1000']").count() == 0
    assert "only the smallest k is shown" in page.locator("main").inner_text()


def test_names_keep_what_differs():
    assert telling(["a", "b"]) == ["a", "b"]
    same = ["x" * 40 + "1" + "y" * 40, "x" * 40 + "2" + "y" * 40]
    assert telling(same) == same  # nothing shorter would tell them apart
    assert all(len(name) <= 24 for name in telling([f"{'resnet50_' * 9}{n}" for n in range(9)]))
