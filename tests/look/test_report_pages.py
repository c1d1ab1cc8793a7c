"""The pages of a report, opened in a real browser: their numbers are the Report's, names stay text,
nothing is loaded.
"""

import dataclasses
import json
import shutil
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import hbench
from hbench.core.errors import ComparisonError, DataError, SubmissionError, UsageError
from hbench.look.pages.folder import Pages, copy_assets, replacing_folder, write_script
from hbench.look.pages.tree_data import tree_data
from hbench.look.plots.confusion import confusion
from hbench.look.report.classes import class_means
from hbench.look.report.folder import write_report
from hbench.look.report.runs import read_runs, with_embeddings
from hbench.look.report.sprites import sprite_of, write_sprites
from hbench.records import document as reports
from hbench.records.shown import values_of, worth_showing
from hbench.tree import LabelTree
from tests.command_line import call
from tests.look.elements import check_page, each

NASTY = "</script><img src=x onerror=alert(1)>\u2028\"'"
PAGES = ("index", "queries", "classes", "compare", "explore", "tree", "map")
PATHS = [
    (f"{'ab'[n % 2]}{NASTY}", f"{n % 6}", "__proto__" if n == 5 else f"{n}{NASTY}")
    for n in range(12)
]
ITEMS = 144
OF_CLASS = ITEMS // 12
PAGE_OF_TREE = """<!doctype html><html lang="en"><meta charset="utf-8">
<link rel="stylesheet" href="assets/pages.css"><main>{{ trees.tree_picture() }}
<a id="tree-explore">x</a></main><script src="assets/store.js"></script><script src="assets/tree.js"></script>
<script src="assets/tree-page.js"></script></html>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs on a table whose names are as bad as names can be, with all that an evaluation
    keeps.
    """
    folder = tmp_path_factory.mktemp("report")
    classes = [PATHS[n % 12] for n in range(ITEMS)]
    columns = dict(
        zip(("level<b>&", "genus", "kind"), map(list, zip(*classes, strict=True)), strict=True)
    )
    items = [f"i{n}{NASTY}" for n in range(ITEMS)]
    pq.write_table(pa.table({"item": items, **columns}), folder / "own.parquet")
    data = hbench.load(folder / "own.parquet")
    test = next(iter(data.tests.values()))
    rng = np.random.default_rng(0)
    means = rng.normal(size=(12, 8))
    for name, noise in (("one", 1.2), ("two", 1.6)):
        vectors = means[test.labels[:, -1]] + noise * rng.normal(size=(ITEMS, 8))
        np.savez(
            folder / f"{name}.npz",
            ids=test.items.astype(str),
            embeddings=vectors.astype(np.float32),
        )
        call(
            "evaluate",
            folder / f"{name}.npz",
            "-d",
            folder / "own.parquet",
            "-o",
            folder / f"{name}.json",
            "--top-k",
            12,
            "--method",
            f"{name}{NASTY}",
        )
    return folder


@pytest.fixture(scope="module")
def reported(folder):
    """Both runs as pages read them."""
    return read_runs(
        [folder / "one.json", folder / "two.json"], dataset=str(folder / "own.parquet")
    )


@pytest.fixture(scope="module")
def pages(folder, reported, tmp_path_factory):
    """The pages of both runs, with the curve of the first, and a picture of every item, each of its
    own colour.
    """

    def picture(item):
        return Image.new("RGB", (40, 20), (len(item) * 7 % 255, 90, 30))

    data, out = reported.data, tmp_path_factory.mktemp("pages") / "pages"
    tests = {name: dataclasses.replace(test, picture=picture) for name, test in data.tests.items()}
    pictured = dataclasses.replace(reported, data=dataclasses.replace(data, tests=tests))
    write_report(with_embeddings(pictured, [folder / "one.npz"], 20), out)
    return out


@pytest.fixture(scope="module")
def documents(folder):
    """The reports of both runs."""
    return [reports.read(folder / f"{name}.json") for name in ("one", "two")]


def test_official_scores_that_only_the_second_run_has_are_shown(folder, tmp_path):
    files = [tmp_path / "paper.json", tmp_path / "both.json"]
    for file, also in zip(files, (False, True), strict=True):
        report = hbench.evaluate(folder / "one.npz", folder / "own.parquet", also_official=also)
        report.write(file)
    write_report(read_runs(files), tmp_path / "pages")
    assert 'id="official"' in (tmp_path / "pages" / "index.html").read_text()


def test_every_score_on_the_page_is_the_reports(opened, documents, pages):
    page = opened(pages / "index.html")
    cells = "section:not([aria-labelledby=official]) [data-metric]"
    read = each(page, cells, "[+e.dataset.run, e.dataset.metric, e.dataset.value, e.textContent]")
    names = worth_showing(
        [*documents[0].scores], [values_of(document.scores) for document in documents]
    )
    # of few queries, all are 100
    assert {name for name in documents[0].scores if "R@1000" in name} - set(names)
    families = {name.partition("/")[0] for name in names}
    shown = [name for name in documents[0].scores if name.partition("/")[0] in families]
    assert {(run, name) for run, name, *_ in read} == {
        (run, name) for run in (0, 1) for name in shown
    }
    for run, name, value, text in read:
        assert float(value) == documents[run].scores[name].value
        assert text == f"{100 * documents[run].scores[name].value:.2f}"


def test_mistakes_and_remarks_on_the_page_are_the_reports(opened, documents, pages):
    page = opened(pages / "index.html")
    counts = each(page, "[data-mistake]", "[+e.dataset.run, e.dataset.mistake, +e.dataset.value]")
    mistakes = [
        [run, *item] for run, own in enumerate(documents) for item in own.mistakes["test"].items()
    ]
    assert sorted(counts) == sorted(mistakes)
    remarks = [" ".join(text.split()) for document in documents for text in document.warnings]
    assert page.locator(".remarks dt").all_inner_texts() == remarks


def test_the_area_of_the_curve_on_the_page_is_h_ap(opened, documents, pages):
    """The curve is of all queries."""
    page = opened(pages / "index.html")
    area = float(page.locator("[data-area]").first.get_attribute("data-area"))
    assert area == pytest.approx(documents[0].scores["H-AP"].value, abs=1e-9)


def test_the_overview_begins_with_the_worst_and_the_best(opened, reported, pages):
    values, items = reported.runs[0].values["H-AP"], reported.manifest.items.tolist()
    page = opened(pages / "index.html")
    for key, extreme in (("worst", values.min()), ("best", values.max())):
        value = "[e.dataset.query, +e.querySelector('.about [data-value]').dataset.value]"
        shown = each(page, f"section[aria-labelledby=glimpse-{key}] .strip", value)
        assert len(shown) == 3
        assert shown[0][1] == extreme
        assert all(values[items.index(query)] == value for query, value in shown)
    top = page.locator("#headline").bounding_box()["y"]
    assert (
        top
        < page.locator(".glimpses").bounding_box()["y"]
        < page.locator("#scores").bounding_box()["y"]
    )


def test_the_marks_of_two_runs_lie_as_far_apart_as_their_scores(opened, documents, pages):
    page = opened(pages / "index.html")
    line = page.locator("section[aria-labelledby=scores] tbody tr").first
    low, high = map(int, line.locator(".ends span").all_inner_texts())  # printed on the scale
    scores = [100 * document.scores["H-AP"].value for document in documents]
    at = each(line, ".bar .at", "+e.getAttribute('x1')")
    assert at == pytest.approx([100 * (score - low) / (high - low) for score in scores], abs=0.01)


def test_wide_intervals_stay_within_their_cards_on_a_phone(opened, pages):
    page = opened(pages / "index.html", width=390)
    ends = each(
        page,
        ".headline .interval",
        "(e.textContent = '91.20 … 99.71', e.getBoundingClientRect().right)",
    )
    cards = each(page, ".headline .interval", "e.closest('div').getBoundingClientRect().right")
    assert all(end < card - 8 for end, card in zip(ends, cards, strict=True))


def test_every_metric_on_the_overview_leads_to_its_sentence(opened, pages):
    page = opened(pages / "index.html")
    links = each(page, "a[href^='#metric-']", "e.hash.slice(1)")
    assert {"metric-H-AP", "metric-R", "metric-NDCG"} <= set(links)
    assert all(page.locator(f'[id="{link}"]').count() == 1 for link in links)


def test_differences_are_those_of_compare(opened, folder, reported, pages):
    found = json.loads(call("compare", folder / "one.json", folder / "two.json", "--json").stdout)[
        "differences"
    ]
    expected = {row["metric"]: row["difference"] for row in found}
    page = opened(pages / "compare.html")
    shown = each(page, "[data-difference]", "[e.dataset.difference, +e.dataset.value]")
    assert "H-AP" in dict(shown)
    assert dict(shown) == {name: expected[name] for name, _ in shown}
    first, other = (run.values["H-AP"] for run in reported.runs)
    balance = page.locator("[data-balance]").all_inner_texts()
    assert balance == [
        str((first > other).sum()),
        str((first < other).sum()),
        str((first == other).sum()),
    ]
    wins = each(page, "section[aria-labelledby=changed-1-1] .strip", "e.dataset.query")
    assert wins[0] == reported.manifest.items[np.argmax(first - other)]


def test_corrected_p_values_are_those_of_compare(opened, folder, pages):
    found = json.loads(call("compare", folder / "one.json", folder / "two.json", "--json").stdout)[
        "differences"
    ]
    expected = {row["metric"]: row["corrected"] for row in found}
    page = opened(pages / "compare.html")
    rows = each(page, ".forest tbody tr", "[e.cells[0].innerText, e.cells[7].innerText]")
    assert rows
    for metric, corrected in rows:
        assert corrected.removeprefix("≤ ") == f"{expected[metric]:.4f}", metric


def wait_for_query(page, name):
    page.wait_for_function(
        "name => document.getElementById('shown')?.dataset.query === name", arg=name
    )


def explored(opened, path):
    page = opened(path)
    page.wait_for_selector("#shown[aria-busy=false]")
    return page


def test_the_explorer_walks_by_keys_and_shows_both_runs(opened, reported, pages):
    values, items = reported.runs[0].values["H-AP"], reported.manifest.items.tolist()
    by_value = [items[n] for n in np.argsort(values.round(4), kind="stable")]
    page = explored(opened, pages / "explore.html")
    page.select_option("#order", "low")
    wait_for_query(page, by_value[0])
    page.locator("h1").click()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    wait_for_query(page, by_value[2])
    assert page.locator("#place").inner_text() == f"3 of {ITEMS}"
    query = items.index(by_value[2])
    for number, own in enumerate(reported.runs):
        top = zip(own.top.items[query], own.top.levels[query], strict=True)
        shown = each(
            page.locator("#shown .found").nth(number),
            "[data-item]",
            "[e.dataset.item, +e.dataset.level]",
        )
        assert shown == [[items[n], int(level)] for n, level in top]
    page.keyboard.press("End")
    wait_for_query(page, by_value[-1])
    assert page.locator("#next").is_disabled()


@pytest.fixture(scope="module")
def few(folder, tmp_path_factory):
    """One run read with embeddings, and its pages with three results a query: most first right
    ones come later.
    """
    made = tmp_path_factory.mktemp("few")
    (made / "run.json").write_text(
        (folder / "one.json").read_text(encoding="utf-8"), encoding="utf-8"
    )
    shutil.copy(folder / "one.by-query.parquet", made / "run.by-query.parquet")
    runs = read_runs([made / "run.json"], dataset=str(folder / "own.parquet"))
    shown = with_embeddings(runs, [folder / "one.npz"], 3)
    write_report(shown, made / "pages")
    return shown, made / "pages"


def test_the_explorer_shows_the_first_right_result_and_copies_as_browsing_ranks_them(
    opened, folder, few
):
    shown, pages = few
    top, manifest = shown.runs[0].top, shown.manifest
    (query,) = np.flatnonzero(top.right.ranks == top.right.ranks.max())[:1].tolist()
    data = str(folder / "own.parquet")
    (strip,) = hbench.browse(
        folder / "one.npz", data, queries=[manifest.items[query]], k=3
    ).sheet.strips
    assert strip.rows[0].right.rank == top.right.ranks[query] > 3
    page = explored(opened, pages / "explore.html")
    page.evaluate("at => { location.hash = `item=${at}`; }", query)
    wait_for_query(page, manifest.items[query])
    assert page.locator("#shown [data-right]").get_attribute("data-right") == str(
        strip.rows[0].right.rank
    )
    names = page.locator("#shown .tile .name").all_inner_texts()
    assert names == [hit.name for hit in strip.rows[0].shown]
    captions = page.locator("#shown .tile .caption:not(.item)").all_inner_texts()
    scores = [caption.rpartition("· ")[2] for caption in captions]
    assert scores == [f"{hit.score:.3f}" for hit in strip.rows[0].shown]
    assert page.locator("#shown .copy").count() == sum(hit.copy for hit in strip.rows[0].hits)


def test_the_first_right_result_of_a_strip_leads_to_its_own_query(opened, few):
    shown, pages = few
    late = opened(pages / "queries.html").locator("section[aria-labelledby=worst] [data-right]")
    assert late.count() == 8
    late.first.locator("a").click()
    late.page.wait_for_function("() => document.getElementById('shown')?.dataset.query")
    item = late.page.locator("#shown").get_attribute("data-query")
    query = shown.manifest.items.tolist().index(item)
    assert late.page.url.endswith(f"explore.html#item={query}")
    late.page.go_back()
    assert "the right one is at rank" in late.first.inner_text()


def test_the_explorer_finds_a_class_and_makes_a_result_the_query(opened, pages):
    page = explored(opened, pages / "explore.html")
    page.keyboard.press("/")
    page.keyboard.type("__PRO")
    assert page.locator("#matches [role=option] span").all_inner_texts() == ["__proto__"]
    page.keyboard.press("ArrowDown")
    assert page.locator("#search").get_attribute("aria-activedescendant") == "match-0"
    page.keyboard.press("Enter")
    page.wait_for_function(
        f"() => document.getElementById('place').textContent === '1 of {OF_CLASS}'"
    )
    page.wait_for_function(
        "() => document.querySelector('#shown h2').textContent.endsWith('__proto__')"
    )
    before = page.locator("#shown").get_attribute("data-query")
    result = page.locator("#shown button.result").nth(2)
    name = page.locator("#shown [data-item]").nth(2).get_attribute("data-item")
    result.focus()
    page.keyboard.press("Enter")
    wait_for_query(page, name)
    address = page.url
    page.go_back()
    wait_for_query(page, before)
    again = opened(pages / "explore.html")
    again.goto(address)
    wait_for_query(again, name)


def node_means(reported, level, metric="H-AP", run=0):
    """Compute the mean over the queries of every node of a level, by loops."""
    manifest, found = reported.manifest, {}
    for item, value in zip(
        np.flatnonzero(manifest.query), reported.runs[run].values[metric], strict=True
    ):
        found.setdefault(manifest.tree.names[level][manifest.labels[item, level]], []).append(value)
    return {name: float(np.mean(own)) for name, own in found.items()}


@pytest.fixture
def tree_page(opened, pages):
    page = opened(pages / "tree.html")
    page.wait_for_selector("#tree[data-ready]")
    return page


def said_of_node(page, name, metric, mean):
    """Search a genus and wait until the page says its mean; return all that it says."""
    page.fill("#tree-search", name)
    page.wait_for_function(
        "words => document.getElementById('tree-said').textContent.endsWith(words)",
        arg=f"(genus): {2 * OF_CLASS} items, {metric} {100 * mean:.1f}",
    )
    return page.locator("#tree-said").inner_text()


def test_the_tree_shows_every_node_with_its_name(tree_page, reported):
    picture = tree_page.locator("#tree-picture")
    assert picture.locator(".node:not(.run)").count() == sum(map(len, reported.manifest.tree.names))
    assert all(
        len(text) > 5 or "…" not in text for text in picture.locator("text").all_text_contents()
    )


def test_the_tree_shows_the_means_of_any_metric(tree_page, reported):
    options = tree_page.locator("#tree-color option").all_inner_texts()
    assert sorted(options[1:]) == sorted(reported.runs[0].values)
    for metric, run in (("H-AP", 0), ("AP/genus", 1)):
        tree_page.select_option("#tree-color", metric)
        tree_page.select_option("#tree-run", str(run))
        for name, mean in node_means(reported, 1, metric, run).items():
            assert f"› {name} " in said_of_node(tree_page, name, metric, mean)


def test_the_tree_zooms_by_keys(tree_page, reported):
    tree_page.select_option("#tree-color", "H-AP")
    *_, (name, mean) = node_means(reported, 1).items()
    said_of_node(tree_page, name, "H-AP", mean)
    picture = tree_page.locator("#tree-picture")
    shown = picture.get_attribute("data-root")
    picture.focus()
    tree_page.keyboard.press("Escape")
    assert picture.get_attribute("data-root") == "0." + str(
        reported.manifest.tree.parents[1][int(shown[2:])]
    )
    tree_page.keyboard.press("Escape")
    assert picture.get_attribute("data-root") == ""
    tree_page.keyboard.press("ArrowDown")
    tree_page.keyboard.press("Enter")
    assert picture.get_attribute("data-root").startswith("0.")


def test_a_node_of_the_tree_leads_to_its_queries(tree_page):
    tree_page.fill("#tree-search", "__proto__")
    tree_page.locator("#tree-explore").click()
    tree_page.wait_for_selector("#shown[aria-busy=false]")
    tree_page.wait_for_function(
        "() => document.querySelector('#shown h2').textContent.endsWith('__proto__')"
    )
    assert "explore.html#class=" in tree_page.url


def test_a_cell_of_the_confusion_leads_to_its_queries(opened, reported, pages):
    manifest, top = reported.manifest, reported.runs[1].top
    own, first = manifest.labels[manifest.query, 0], manifest.labels[top.items[:, 0], 0]
    names = manifest.tree.names[0]
    page = opened(pages / "classes.html")
    page.locator("section[aria-labelledby=confusion-1] .matrix tbody tr").nth(0).locator(
        "td a"
    ).nth(1).click()
    page.wait_for_selector("#shown[aria-busy=false]")
    expected = {str(manifest.items[n]) for n in np.flatnonzero((own == 0) & (first == 1)).tolist()}
    assert page.locator("#place").inner_text() == f"1 of {len(expected)}"
    assert names[1] in page.locator("#filter").inner_text()
    seen = {page.locator("#shown").get_attribute("data-query")}
    for _ in range(len(expected) - 1):
        before = page.locator("#shown").get_attribute("data-query")
        page.locator("#next").click()
        page.wait_for_function(
            "q => document.getElementById('shown').dataset.query !== q", arg=before
        )
        seen.add(page.locator("#shown").get_attribute("data-query"))
    assert seen == expected
    page.locator("#filter button").click()
    ended = "text => document.getElementById('place').textContent.endsWith(text)"
    page.wait_for_function(ended, arg=f"of {(own == 0).sum()}")
    assert page.locator("#filter").is_hidden()
    page.goto((pages / "classes.html").as_uri())
    row = page.locator("section[aria-labelledby=confusion-0] table:not(.matrix) tbody tr").first
    count = row.locator("td").nth(1).inner_text()
    row.locator("a").click()
    page.wait_for_selector("#shown[aria-busy=false]")
    assert page.locator("#place").inner_text() == f"1 of {count}"


def test_classes_are_sorted_by_a_head_and_found_by_a_name(opened, pages):
    page = opened(pages / "classes.html")
    table = page.locator("table.classes").first
    means = "+e.querySelectorAll('[data-mean]')[1].dataset.mean"
    head = table.locator("thead th").nth(2)
    for order, reverse in (("ascending", False), ("descending", True)):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == order
        shown = each(table, "tbody tr", means)
        assert shown == sorted(shown, reverse=reverse)
    table.locator("thead button").first.click()
    names = table.locator("tbody th a").all_inner_texts()
    numbers = [int(name.split("<")[0]) for name in names if name[0].isdigit()]
    assert len(numbers) == 11
    assert numbers == sorted(numbers)
    page.fill("#class-search", "__PROTO")
    assert table.locator("tbody tr:visible").count() == 1
    assert page.locator("#class-said").inner_text().startswith("1 of")


def test_a_picture_leads_to_its_file(opened, tmp_path):
    images = tmp_path / "my images #1"
    for n in range(24):
        path = images / "ab"[n % 2] / f"c{n % 6}" / f"{n} ü#.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (300, 200), (n * 9, 90, 30)).save(path)
    items = sorted(str(path.relative_to(images)) for path in images.rglob("*.png"))
    rows = [f"{item},{item[0]},{item.split('/')[1]}\n" for item in items]
    (images / "own.csv").write_text("item,kind,class\n" + "".join(rows), encoding="utf-8")
    vectors = np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)
    np.savez(tmp_path / "e.npz", ids=items, embeddings=vectors)
    call(
        "evaluate",
        tmp_path / "e.npz",
        "-d",
        images / "own.csv",
        "-o",
        tmp_path / "e.json",
        "--top-k",
        5,
    )
    call("report", tmp_path / "e.json", "-d", images / "own.csv", "-o", tmp_path / "deep" / "pages")
    page = explored(opened, tmp_path / "deep" / "pages" / "explore.html")
    query = page.locator("#shown").get_attribute("data-query")
    queries = opened(tmp_path / "deep" / "pages" / "queries.html")
    links = [page.locator("#shown header a"), queries.locator(".query a").first]
    files = [Path(url2pathname(urlsplit(link.evaluate("e => e.href")).path)) for link in links]
    assert files[0] == images / query
    assert all(file.is_file() and file.is_relative_to(images) for file in files)


@pytest.fixture
def map_page(opened, pages):
    page = opened(pages / "map.html")
    page.wait_for_selector("#map[data-ready]")
    return page


def select_by_a_box(page):
    """Draw a box around all that the map shows."""
    frame = page.locator("#map-picture").bounding_box()
    page.locator("#select-box").click()
    page.mouse.move(frame["x"] + 1, frame["y"] + 1)
    page.mouse.down()
    page.mouse.move(frame["x"] + frame["width"] - 1, frame["y"] + frame["height"] - 1, steps=3)
    page.mouse.up()


def test_the_map_lists_the_classes_in_view_by_their_means(map_page, reported):
    means = node_means(reported, 2)
    assert map_page.locator(".dot").count() == 12
    map_page.locator("#select-view").click()
    rows = each(map_page, "#map-list tr", "[...e.cells].map(c => c.textContent)")
    assert [float(value) for _, value, _ in rows] == [
        round(100 * mean, 1) for mean in sorted(means.values())
    ]
    assert {int(items) for *_, items in rows} == {OF_CLASS}
    map_page.locator("#select-none").click()
    assert map_page.locator("#map-list tr").count() == 0


def test_the_map_zooms_by_keys_and_by_the_wheel(map_page):
    map_page.locator("#map-picture").focus()
    map_page.keyboard.press("+")
    assert map_page.locator("#map-picture").get_attribute("data-scale") == "1.500"
    map_page.keyboard.press("0")
    assert map_page.locator("#map-picture").get_attribute("data-scale") == "1.000"
    frame = map_page.locator("#map-picture").bounding_box()
    left, top, width, height = (frame[key] for key in ("x", "y", "width", "height"))
    map_page.mouse.move(left + width / 2, top + height / 2)
    map_page.mouse.wheel(0, -400)
    map_page.wait_for_function("() => +document.getElementById('map-picture').dataset.scale > 2")
    map_page.locator("#zoom-all").click()
    assert map_page.locator("#map-picture").get_attribute("data-scale") == "1.000"


def test_a_dot_of_the_map_is_shown_and_selected(map_page):
    spot = (
        map_page.locator(".dot")
        .nth(5)
        .evaluate("e => { const r = e.getBoundingClientRect(); return [r.x, r.y]; }")
    )
    map_page.mouse.move(*spot)
    assert f"{OF_CLASS} items, H-AP" in map_page.locator("#map-said").inner_text()
    assert map_page.locator("#map-shown svg").count() == 3
    map_page.mouse.down()
    map_page.mouse.up()
    assert map_page.locator("#map-list tr").count() == 1


def test_a_box_on_the_map_selects_the_classes_inside(map_page):
    select_by_a_box(map_page)
    assert map_page.locator("#map-list tr").count() == 12


def test_a_class_that_is_selected_on_the_map_is_pictured_and_leads_to_its_queries(map_page):
    select_by_a_box(map_page)
    map_page.select_option("#map-color", "value")
    assert map_page.locator("#map-legend li").count() == 6
    assert map_page.locator("#map-list svg").count() == 36
    map_page.locator("#map-list a").first.click()
    map_page.wait_for_selector("#shown[aria-busy=false]")


def test_a_tree_of_ten_thousand_leaves_is_drawn_whole_and_in_few_elements(opened, tmp_path):
    paths = [(f"a{n // 2_500}", f"b{n // 50}", f"c{n}") for n in range(10_000)]
    tree, _ = LabelTree.from_names(paths, levels=("a", "b", "c"))
    shared = {"version": "", "present": [], "runs": [], "document": None, "reported": None}
    copy_assets(tmp_path / "assets", "hbench.look.report")
    (tmp_path / "data").mkdir()
    write_script(
        tmp_path / "data", "tree", tree_data(tree, np.ones(10_000, np.int64)) | {"metrics": []}
    )
    template = '{% import "tree.jinja" as trees %}' + PAGE_OF_TREE
    page_text = Pages("hbench.look.report", shared).environment.from_string(template).render()
    (tmp_path / "tree.html").write_text(page_text, encoding="utf-8")
    page = opened(tmp_path / "tree.html")
    page.wait_for_selector("#tree[data-ready]")
    assert page.locator("#tree-picture *").count() < 3_000
    drawn = page.locator("#tree-picture .run").evaluate_all(
        "all => all.filter(e => e.getAttribute('y') === String(2 * e.ownerSVGElement.dataset.row))"
        ".reduce((sum, e) => sum + e.getBoundingClientRect().width, 0)"
    )
    picture = page.locator("#tree-picture").bounding_box()
    assert 600 < picture["y"] + picture["height"] < 900  # to the end of the window
    whole = page.locator("#tree-picture").evaluate("e => e.getBoundingClientRect().width")
    assert drawn == pytest.approx(whole, rel=0.01)
    page.fill("#tree-search", "c9876")
    assert page.locator("#tree-said").inner_text() == "a3 › b197 › c9876 (c): 1 item"
    page.locator("#tree-path button").nth(2).click()
    assert page.locator("#tree-picture .node[data-node^='2.']").count() == 50


def test_a_folder_that_lost_its_data_says_so(opened, pages, tmp_path):
    copy = shutil.copytree(pages, tmp_path / "copy")
    (copy / "data" / "run0-0.js").unlink()
    page = opened(copy / "explore.html", errors=True)
    page.wait_for_selector("#shown[aria-busy=false]")
    assert page.locator("#shown").inner_text() == "data/run0-0.js is missing from this folder"


def test_worst_queries_and_their_results_are_those_of_look(opened, folder, reported, pages):
    value = dict(
        zip(reported.manifest.items.tolist(), reported.runs[0].values["H-AP"].tolist(), strict=True)
    )
    page, worst = opened(pages / "queries.html"), "section[aria-labelledby=worst] .strip"
    shown = each(page, worst, "[e.dataset.query, e.querySelector('[data-value]').dataset.value]")
    assert shown[0][0] == min(value, key=value.__getitem__)
    assert [float(number) for _, number in shown] == [value[query] for query, _ in shown]
    first = page.locator(worst).first.locator("ol").first
    tiles = each(first, "[data-item]", "[e.dataset.item, +e.dataset.level]")
    arguments = (
        "look",
        folder / "one.npz",
        "-d",
        folder / "own.parquet",
        "--worst",
        1,
        "-k",
        10,
        "--json",
    )
    hits = json.loads(call(*arguments).stdout)[0]["results"]["one.npz"]
    assert tiles == [[hit["item"], hit["level"]] for hit in hits]
    levels = "+e.querySelector('[data-level]').dataset.level"
    severe = each(page, "section[aria-labelledby=severe] .strip", levels)
    assert severe == sorted(severe)
    assert severe[0] == 0


def test_classes_are_ranked_by_their_means(opened, reported, pages):
    values, manifest = reported.runs[0].values["H-AP"], reported.manifest
    expected = sorted(node_means(reported, 2).values())
    page = opened(pages / "classes.html")
    shown = each(page.locator("table.classes").first, "[data-mean]", "+e.dataset.mean")
    # the second of each pair is the other run's
    assert shown[::2] == pytest.approx(expected, abs=1e-12)
    assert [own.queries for own in class_means(manifest, [values], 2, metric="H-AP")] == [
        OF_CLASS
    ] * 12
    names = page.locator("table.classes").first.locator("th[scope=row]").all_inner_texts()
    assert any("__proto__" in name for name in names)
    counts = confusion(manifest, reported.runs[0].top)
    table = each(page.locator(".matrix").first, "[data-count]", "+e.dataset.count")
    assert table == counts.ravel().tolist()
    assert counts.sum() == ITEMS


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
def test_pages_fit_the_screen_and_names_from_outside_stay_text(
    opened, findings, pages, name, width, scheme
):
    page = opened(pages / f"{name}.html", width=width, scheme=scheme)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, dark[4:-1].split(","))) < 200) == (scheme == "dark")
    check_page(page, findings)


def test_every_picture_is_where_it_is_said_to_be(reported, tmp_path):
    """Items of one colour each, read back from the sheets."""
    manifest = reported.manifest
    color = {
        item: (number, 255 - number, 40) for number, item in enumerate(manifest.items[:50].tolist())
    }
    painted = dataclasses.replace(
        manifest, picture=lambda item: Image.new("RGB", (8, 8), color[item])
    )
    places = write_sprites(tmp_path, painted, np.arange(50))
    assert sorted(places[:50]) == list(range(50))
    assert set(places[50:]) == {-1}
    for item in range(50):
        place = sprite_of(int(places[item]))
        with Image.open(tmp_path / f"{place['sheet']}.webp") as sheet:
            seen = sheet.getpixel((place["x"] + 48, place["y"] + 48))
        assert np.abs(np.subtract(seen, color[manifest.items[item]])).max() < 12


def test_the_same_report_gives_the_same_files(folder, tmp_path):
    for name in ("a", "b"):
        call("report", folder / "one.json", "-d", folder / "own.parquet", "-o", tmp_path / name)
    first, second = (
        {
            p.relative_to(tmp_path / n): p.read_bytes()
            for p in (tmp_path / n).rglob("*")
            if p.is_file()
        }
        for n in "ab"
    )
    assert first == second


def test_doubts_stand_above_the_scores_as_facts(tmp_path):
    items = [f"i{n}" for n in range(240)]
    rows = [f"{item},{'ab'[n % 2]},{'ab'[n % 2]}{n % 10}\n" for n, item in enumerate(items)]
    (tmp_path / "own.csv").write_text("item,kind,class\n" + "".join(rows))
    vectors = np.random.default_rng(0).normal(size=(len(items), 8)).astype(np.float32)
    vectors[1:60:2] = vectors[0:60:2]  # copies under the other kind's classes
    np.savez(tmp_path / "e.npz", ids=items, embeddings=vectors)
    call("evaluate", tmp_path / "e.npz", "-d", tmp_path / "own.csv", "-o", tmp_path / "e.json")
    call("report", tmp_path / "e.json", "-d", tmp_path / "own.csv", "-o", tmp_path / "pages")
    page = (tmp_path / "pages" / "index.html").read_text(encoding="utf-8")
    doubt = (
        "25 % of the items have exactly the vector of an item of another class, as copies of a "
        "picture with"
    )
    assert (
        page.index(doubt)
        < page.index("another label have: 10 classes: a0 (6)")
        < page.index("In short")
    )
    assert "honest" not in page


def test_missing_parts_are_named_and_not_shown(opened, folder, tmp_path):
    (tmp_path / "bare.json").write_text(
        (folder / "one.json").read_text(encoding="utf-8"), encoding="utf-8"
    )
    done = call("report", tmp_path / "bare.json", "-o", tmp_path / "pages")
    assert "not on this disk" in done.output
    assert done.stdout.strip() == str(tmp_path / "pages" / "index.html")
    page = opened(tmp_path / "pages" / "queries.html")
    assert "--dataset" in page.locator("main").inner_text()
    call("report", tmp_path / "bare.json", "-d", folder / "own.parquet", "-o", tmp_path / "pages")
    assert "--top-k" in opened(tmp_path / "pages" / "index.html").locator("main").inner_text()


def test_results_are_made_from_embeddings_where_none_were_kept(folder, tmp_path):
    for name in ("one.json", "one.by-query.parquet"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    kept = read_runs([folder / "one.json"], dataset=str(folder / "own.parquet")).runs[0].top
    reported = read_runs([tmp_path / "one.json"], dataset=str(folder / "own.parquet"))
    made = with_embeddings(reported, [folder / "one.npz"], 12).runs[0].top
    np.testing.assert_array_equal(made.items, kept.items)
    np.testing.assert_array_equal(made.levels, kept.levels)
    np.testing.assert_allclose(made.scores, kept.scores, atol=1e-6)
    with pytest.raises(SubmissionError, match="not the file that was scored"):
        with_embeddings(reported, [folder / "two.npz"], 12)


def test_a_folder_of_others_and_another_dataset_are_refused(folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("all of it", encoding="utf-8")
    with pytest.raises(UsageError):
        call("report", folder / "one.json", "-o", tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    with pytest.raises(DataError, match="not the dataset of this report"):
        read_runs([folder / "one.json"], dataset="glyphs")
    other = json.loads((folder / "one.json").read_text(encoding="utf-8")) | {"signature": "another"}
    (tmp_path / "other.json").write_text(json.dumps(other), encoding="utf-8")
    with pytest.raises(ComparisonError):
        read_runs([folder / "one.json", tmp_path / "other.json"])


def test_a_fault_while_writing_leaves_the_former_pages(tmp_path):
    with replacing_folder(tmp_path / "pages", "report") as folder:
        (folder / "index.html").write_text("whole", encoding="utf-8")
    with pytest.raises(ZeroDivisionError), replacing_folder(tmp_path / "pages", "report") as folder:
        (folder / "index.html").write_text(str(1 / 0), encoding="utf-8")
    assert (tmp_path / "pages" / "index.html").read_text(encoding="utf-8") == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["pages"]
