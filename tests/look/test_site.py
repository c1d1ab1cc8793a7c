"""The leaderboards as pages, in a real browser: numbers, places and fronts are those of the
leaderboards.
"""

import csv
import itertools
import json
from typing import NamedTuple

import pytest
import tomli_w

from hbench import boards as leaderboard
from hbench.boards import as_one, joined, rank
from hbench.boards.resolution import resolution
from hbench.core.errors import UnknownName, UsageError
from hbench.look.plots.boards import front_of, lower_fence, points_of
from hbench.look.site.folder import slug_of, write_site
from tests.command_line import call
from tests.look.elements import Opened, check_page, each

NASTY = "</script><img src=x onerror=alert(1)>"
SHIPPED = leaderboard.board_names()
BAD = {
    "dataset": f"../{NASTY}", "version": "1", "protocol": "paper",
    "levels": ["coarse", "__proto__"], "metric": "R@1",
    "notes": NASTY, "citations": {NASTY: {"text": f"{NASTY} & 100 %", "later": True}},
    "row": [
        {"method": f"=HYPERLINK(1){NASTY}", "backbone": NASTY, "setup": {"family": "__proto__"},
         "scores": {"R@1": 50.0, "AP": 12.5, "AP/coarse": 60.0},
         "paper": {"citation": NASTY, "table": NASTY, "doubt": NASTY}},
        {"method": "plain", "scores": {"R@1": 50.0, "AP": 13.5}, "unranked": {"AP": NASTY},
         "paper": {"citation": NASTY, "table": "Tab. 1"}},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages of all shipped leaderboards, and of one whose texts are as bad as texts can be."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "bad.toml").write_text(tomli_w.dumps(BAD), encoding="utf-8")
    done = call("site", *SHIPPED, folder / "bad.toml", "-o", folder / "site")
    assert done.stdout.strip() == str(folder / "site" / "index.html")
    return folder / "site"


def rows_of(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def ready(page):
    page.wait_for_selector("body[data-ready]")
    return page


def shown_rows(page, *keys):
    """Return the cells of every visible row under these headers."""
    return page.evaluate(
        """keys => {
          const heads = [...document.querySelectorAll('#board thead th')].map(each => each.dataset.sort);
          const text = cell => cell.dataset.text ?? cell.textContent;
          return [...document.querySelectorAll('#board tbody tr')].filter(row => !row.hidden)
            .map(row => keys.map(key => text(row.cells[heads.indexOf(key)])));
        }""",
        list(keys),
    )


def places_of(board, metric):
    """What `hbench leaderboard show --all` ranks: place, method and score of every result."""
    ranked = [(own.place, own.rows[0].method, own.score) for own in rank(board, metric)]
    return [
        [str(place or "–"), method, "" if score is None else str(score)]
        for place, method, score in ranked
    ]


class Seen(NamedTuple):
    """What the page of a leaderboard shows as it is opened."""

    said: str  # titles, too
    folds: bool  # whether columns of the table can be folded
    numbers: list  # of every row
    standings: list  # place, method and score by the metric of the leaderboard
    widths: list  # of the cells of text


@pytest.fixture(scope="module")
def every_board(context, site):
    """What the page of every shipped leaderboard shows, each opened once."""
    found = {}
    opened = Opened(context.new_page(), (site / "index.html").as_uri(), (site.as_uri(),))
    for name in SHIPPED:
        opened.page.goto((site / f"board-{name}.html").as_uri())
        page = ready(opened.page)
        found[name] = Seen(
            page.locator("main").evaluate(
                "e => e.textContent + [...e.querySelectorAll('[title]')].map(e => e.title)"
            ),
            page.locator("#fold-line").is_visible(),
            each(
                page,
                "#board tbody tr",
                "[...e.querySelectorAll('[data-value]')].map(cell => cell.textContent)",
            ),
            shown_rows(page, "place", "method", leaderboard.read_board(name).metric),
            each(page, "#board td.text", "e.getBoundingClientRect().width"),
        )
    opened.close("every-board")
    opened.page.close()
    return found


def test_the_index_has_the_best_score_of_every_leaderboard(opened, site):
    page = opened(site / "index.html")
    best = each(page, "[data-board]", "[e.dataset.board, e.querySelector('.best').textContent]")
    assert [name for name, _ in best] == [*SHIPPED, "bad"]
    for name, score in best[:-1]:
        board = leaderboard.read_board(name)
        assert score == str(rank(board, board.metric)[0].score)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_number_of_every_leaderboard_is_on_its_page(every_board, name):
    board, seen = leaderboard.read_board(name), every_board[name]
    results = list(map(as_one, joined(board.rows)))
    given, kept = (
        {(row.method, key) for row in rows for key in row.scores} for rows in (board.rows, results)
    )
    assert given == kept
    expected = [
        [str(row.scores[key]) for key in board.metrics if key in row.scores] for row in results
    ]
    assert sorted(seen.numbers) == sorted(expected)
    assert seen.standings == places_of(board, board.metric)
    assert max(seen.widths) < 300  # wide text wraps inside of its column


@pytest.mark.parametrize(
    ("name", "metric"), [("sop", "R@1"), ("dyml-animal", "ASI"), ("glyphs", "AP/script")]
)
def test_rows_are_ranked_by_a_metric_as_the_leaderboard_ranks_them(opened, site, name, metric):
    board = leaderboard.read_board(name)
    page = ready(opened(site / f"board-{name}.html"))
    family, _, level = metric.partition("/")
    page.select_option("#metric", family)
    if level:
        page.select_option("#level", level)
    assert shown_rows(page, "place", "method", metric) == places_of(board, metric)
    assert page.locator("#board thead [aria-sort]").get_attribute("data-sort") == "place"
    page.locator(f'#board thead [data-sort="{metric}"] button').click()
    assert shown_rows(page, "method") == [[method] for _, method, _ in places_of(board, metric)]
    address = page.url
    page.goto((site / "index.html").as_uri())
    page.goto(address)
    assert shown_rows(ready(page), "place", "method", metric) == places_of(board, metric)


@pytest.fixture
def filtered(opened, site):
    """The page of SOP with four filters set."""
    page = ready(opened(site / "board-sop.html"))
    page.select_option("#backbone", "ResNet-50")
    page.select_option("#year", "2022")
    page.select_option("#family", "hierarchical")
    page.select_option("#source", "HAPPIER, ECCV 2022")
    return page


def test_rows_are_filtered_by_all_that_is_chosen(filtered):
    board = leaderboard.read_board("sop")
    expected = [
        result[0].method
        for result in joined(board.rows)
        if {row.backbone for row in result} == {"ResNet-50"}
        and 2022 in {row.year for row in result}
        and "hierarchical" in {row.setup.family for row in result}
        and "HAPPIER, ECCV 2022" in {row.paper.citation for row in result}
    ]
    assert expected
    assert sorted(method for (method,) in shown_rows(filtered, "method")) == sorted(expected)
    assert (
        filtered.locator("#count")
        .inner_text()
        .startswith(f"{len(expected)} of {len(joined(board.rows))} results")
    )
    filtered.locator("#tools button[type=reset]").click()
    assert len(shown_rows(filtered, "method")) == len(joined(board.rows))


def test_the_rows_that_are_shown_are_sorted_by_keys_and_saved_as_they_stand(filtered, tmp_path):
    filtered.locator('#board thead [data-sort="method"] button').focus()
    filtered.keyboard.press("Enter")
    methods = [method for (method,) in shown_rows(filtered, "method")]
    assert methods == sorted(methods, key=str.lower)
    filtered.keyboard.press("Enter")
    assert [method for (method,) in shown_rows(filtered, "method")] == methods[::-1]
    with filtered.expect_download() as download:
        filtered.locator("#save").click()
    download.value.save_as(tmp_path / "rows.csv")
    saved = rows_of(tmp_path / "rows.csv")
    assert [line["method"] for line in saved] == methods[::-1]
    assert [line["H-AP"] for line in saved] == [score for (score,) in shown_rows(filtered, "H-AP")]


def test_rows_are_filtered_by_what_was_trained_on_and_by_a_name_in_any_case(opened, site):
    board = leaderboard.read_board("sop")
    page = ready(opened(site / "board-sop.html"))
    page.select_option("#trained_on", "nothing (zero-shot)")
    shown = {method for (method,) in shown_rows(page, "method")}
    assert shown == {
        row.method for row in board.rows if row.setup.trained_on == "nothing (zero-shot)"
    }
    page.select_option("#trained_on", "")
    page.fill("#method", "happier")
    assert {"happier" in method.lower() for (method,) in shown_rows(page, "method")} == {True}


@pytest.mark.parametrize("metrics", [("AP", "H-AP"), ("R@1", "R@10")])
@pytest.mark.parametrize("name", ["sop", "glyphs"])
def test_the_front_is_that_of_the_print_picture(opened, site, name, metrics):
    page = ready(opened(site / f"board-{name}.html"))
    page.select_option("#x-metric", metrics[0])
    page.select_option("#y-metric", metrics[1])
    points = points_of(leaderboard.read_board(name), metrics)
    front = [point.row.scores for point in front_of(points)]
    expected = [", ".join(f"{metric} {scores[metric]}" for metric in metrics) for scores in front]
    shown = page.locator("#front li").all_inner_texts()
    assert [text.split(": ")[-1].partition(";")[0] for text in shown] == expected
    left, below = (lower_fence([point[axis] for point in points]) for axis in (0, 1))
    seen = [point for point in points if point.x >= left and point.y >= below]
    assert page.locator("#scatter .point").count() == len(seen)
    page.locator("#scatter [tabindex='0']").focus()
    said = page.locator("#scatter-said").inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator("#scatter-said").inner_text() != said
    page.keyboard.press("Enter")
    assert page.locator("#board details[open]").count() == 1


def test_sources_and_doubts_stand_with_the_rows(opened, site):
    board = leaderboard.read_board("sop")
    page = ready(opened(site / "board-sop.html"))
    doubts = sorted(row.paper.doubt for row in board.rows if row.paper.doubt)
    assert doubts
    shown = page.locator("#board .doubts li").all_text_contents()
    assert {text.partition(": ")[2] for text in shown if "not ranked" not in text} == set(doubts)
    sources = page.locator(".sources li").all_inner_texts()
    for key in {row.paper.citation for row in board.rows}:
        assert any(text.startswith(f"{key}: {board.citations[key].text}") for text in sources)
    page.locator("#board tbody a").first.click()
    assert page.locator(".sources li:target").count() == 1


def test_the_contents_lead_to_every_section_and_keep_the_view(opened, site):
    page = ready(opened(site / "board-sop.html"))
    page.fill("#method", "HAPPIER")
    shown = shown_rows(page, "method")
    links = page.locator("nav.contents a")
    headings = each(page, "main h2", "'#' + e.id")
    assert each(page, "nav.contents a", "e.getAttribute('href')") == headings
    links.nth(2).click()
    assert page.url.endswith(headings[2])
    assert shown_rows(page, "method") == shown


@pytest.mark.parametrize(
    ("name", "metric"), [("glyphs", "R@1"), ("sop", "AP"), ("dyml-animal", "ASI")]
)
def test_places_that_may_be_chance_are_marked(opened, site, name, metric):
    board = leaderboard.read_board(name)
    page = opened(site / "index.html")
    page.goto(f"{(site / f'board-{name}.html').as_uri()}#metric={metric}")
    ready(page)
    chance = resolution(board, metric)
    ranked = [standing for standing in rank(board, metric) if standing.place]
    gaps = [float(above.score - below.score) for above, below in itertools.pairwise(ranked)]
    near = each(page, "#board tbody tr", "e.cells[0].classList.contains('near')")
    assert near == [
        False,
        *(chance is not None and gap < chance for gap in gaps),
        *[False] * (len(near) - len(ranked)),
    ]
    assert any(near) == (chance is not None)
    assert bool(page.locator("#chance").inner_text()) == (chance is not None)


def test_the_tree_of_the_dataset_is_searched(opened, site):
    page = ready(opened(site / "board-glyphs.html"))
    page.wait_for_selector("#tree[data-ready]")
    page.fill("#tree-search", "Greek small")
    assert page.locator("#tree-path").inner_text().split("\n")[:2] == ["whole tree", "Greek"]
    assert "Greek › Greek small (case)" in page.locator("#tree-said").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
@pytest.mark.parametrize("name", ["index", "board-sop", "board-glyphs", "board-bad"])
def test_pages_fit_and_are_accessible_and_texts_stay_texts(
    opened, findings, site, name, width, scheme
):
    page = opened(site / f"{name}.html", width=width, scheme=scheme)
    if name != "index":
        ready(page)
    check_page(page, findings)


def test_downloads_are_the_exports_and_no_formula(site):
    for name in SHIPPED:
        document = json.loads((site / "downloads" / f"{name}.json").read_text(encoding="utf-8"))
        assert len(document["rows"]) == len(leaderboard.read_board(name).rows)
        text = (site / "downloads" / f"{name}.bib").read_text(encoding="utf-8")
        assert text.count("\n}\n") == len(leaderboard.read_board(name).citations)
        assert text.count("author = {") == text.count("\n}\n") - text.count("@misc{")
    rows = rows_of(site / "downloads" / "bad.csv")
    assert {row["method"] for row in rows} == {f"'=HYPERLINK(1){NASTY}", "plain"}
    assert r"100 \%" in (site / "downloads" / "bad.bib").read_text(encoding="utf-8")


def test_the_site_is_small_and_the_same_every_time(site, tmp_path):
    sizes = {
        path.relative_to(site): path.stat().st_size for path in site.rglob("*") if path.is_file()
    }
    assert sum(sizes.values()) < 2_000_000
    again = tmp_path / "again"
    write_site([*SHIPPED, str(site.parent / "bad.toml")], again)
    assert {path.relative_to(again) for path in again.rglob("*") if path.is_file()} == set(sizes)
    assert all((again / name).read_bytes() == (site / name).read_bytes() for name in sizes)


def test_other_folders_and_unknown_leaderboards_are_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / ".hbench-report").touch()
    with pytest.raises(UsageError):
        call("site", "-o", tmp_path / "mine")
    with pytest.raises(UnknownName):
        write_site(["nothing"], tmp_path / "site")
    with pytest.raises(UsageError, match="a separate page"):
        write_site(["sop", "elsewhere/sop.toml"], tmp_path / "site")
    assert not (tmp_path / "site").exists()
    assert slug_of("../a b.toml") == "a-b"


def heads_of(page):
    """The metrics in the head of the table, as far as they are shown."""
    heads = "all => all.filter(e => !e.hidden && e.dataset.metric).map(e => e.dataset.metric)"
    return page.locator("#board thead th").evaluate_all(heads)


def test_many_columns_fold_to_a_table_that_fits(opened, site):
    board = leaderboard.read_board("glyphs")
    page = ready(opened(site / "board-glyphs.html"))
    assert heads_of(page) == list(board.metrics[:8])
    assert (
        page.locator("#fold-said").inner_text() == f"8 of {len(board.metrics)} metrics are shown."
    )
    assert page.evaluate(
        "(e => e.scrollWidth <= e.clientWidth)(document.getElementById('board').parentElement)"
    )


def test_rows_are_low(opened, site):
    page = ready(opened(site / "board-glyphs.html"))
    heights = each(page, "#board tbody tr", "e.getBoundingClientRect().height")
    assert sorted(heights)[len(heights) // 2] < 40  # one line
    assert max(heights) < 64  # a long name takes two


def test_what_ranks_is_shown_wherever_it_stands_and_when_columns_fold_again(opened, site):
    board = leaderboard.read_board("glyphs")
    page = ready(opened(site / "board-glyphs.html"))
    page.select_option("#metric", "R@1")
    page.select_option("#level", "script")
    assert heads_of(page) == [*board.metrics[:8], "R@1/script"]
    page.locator("#fold").click()
    assert heads_of(page) == list(board.metrics)
    page.locator("#fold").click()
    assert len(heads_of(page)) == 9


def test_columns_that_were_unfolded_stay_so_when_the_page_is_loaded_again(opened, site):
    board = leaderboard.read_board("glyphs")
    page = ready(opened(site / "board-glyphs.html"))
    page.select_option("#metric", "R@1")
    page.select_option("#level", "script")
    page.locator("#fold").click()
    assert page.locator("#fold").get_attribute("aria-expanded") == "true"
    assert "columns=all" in page.url
    page.reload()
    assert heads_of(page) == list(board.metrics)
    page.locator("#fold").click()
    assert len(heads_of(page)) == 9


def test_backticks_are_code(opened, site, every_board):
    page = ready(opened(site / "board-glyphs.html"))
    assert page.locator("main code").first.inner_text() == "hbench demo"
    for name, seen in every_board.items():
        assert "`" not in seen.said, name


def test_only_tables_of_many_metrics_fold(every_board):
    for name, seen in every_board.items():
        assert seen.folds == (len(leaderboard.read_board(name).metrics) > 12), name


def test_columns_that_are_empty_in_all_shown_rows_go_and_come_back(opened, site):
    page = ready(opened(site / "board-sop.html"))
    heads = "all => all.filter(e => !e.hidden).map(e => e.dataset.sort)"
    assert "AP/super_class" in page.locator("#board thead th").evaluate_all(heads)
    page.fill("#method", "HAPPIER")
    shown = page.locator("#board thead th").evaluate_all(heads)
    for key in shown[1:]:
        assert any(text for (text,) in shown_rows(page, key)), key
    gone = set(leaderboard.read_board("sop").metrics) - set(shown)
    assert gone
    assert not any(text for key in gone for (text,) in shown_rows(page, key))
    page.fill("#method", "")
    assert "AP/super_class" in page.locator("#board thead th").evaluate_all(heads)


def test_the_decimals_of_a_column_line_up(opened, site):
    page = ready(opened(site / "board-sop.html"))
    # the places after the point, with the blanks behind them, are as many for all
    digits = (
        "(e.dataset.value.split('.')[1] ?? '').length + (e.dataset.pad ?? "
        "'').replace('\\u2008', '').length"
    )
    places = each(page, "#board td[data-value]", f"[e.cellIndex, {digits}]")
    of_column = dict(places)
    assert all(of_column[column] == number for column, number in places)


def test_arxiv_ids_are_links(opened, site):
    page = ready(opened(site / "board-sop.html"))
    links = page.locator("a[href^='https://arxiv.org/abs/']")
    assert links.count()
    assert all(
        f"arXiv {link.get_attribute('href').rsplit('/', 1)[1]}" == link.text_content()
        for link in links.all()
    )
