"""Pages of names as queries: every value is the report's, the tab stands beside those of items."""

import numpy as np
import pytest

import hbench
from hbench.core.errors import ComparisonError
from hbench.look.report.folder import write_report
from hbench.look.report.runs import read_runs
from hbench.submissions import embeddings
from tests.look.elements import check_page, each
from tests.look.plotting import NASTY

SPECIES = 70  # more than one table lists in full


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A report of items, and two by name, with values of every query."""
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    rows = [(f"family{n % 7}", f"{NASTY}{n}") for n in range(SPECIES)] * 3
    lines = ["item,family,species", *(f"i{n},{a},{b}" for n, (a, b) in enumerate(rows))]
    (folder / "zoo.csv").write_text("\n".join(lines))
    data = hbench.load(folder / "zoo.csv")
    centres = rng.normal(size=(SPECIES, 8))
    vectors = np.tile(centres, (3, 1)) + rng.normal(size=(len(rows), 8))
    ids = [f"i{n}" for n in range(len(rows))]
    embeddings.write(folder / "items.parquet", ids, vectors.astype(np.float32))

    named = {f"{a} > {b}": vector for (a, b), vector in zip(rows, centres, strict=False)}
    named |= {f"family{n}": centres[n::7].mean(axis=0) for n in range(7)}
    for name, noise in (("sharp", 0.0), ("vague", 1.0)):
        nodes = {key: vector + noise * rng.normal(size=8) for key, vector in named.items()}
        report = hbench.evaluate(folder / "items.parquet", data, nodes=nodes, method=name)
        report.write(folder / f"{name}.json")
        report.write_by_query(folder / f"{name}.by-query.parquet")
    report = hbench.evaluate(folder / "items.parquet", data, method="items")
    report.write(folder / "items.json")
    report.write_by_query(folder / "items.by-query.parquet")
    return folder


def pages_of(runs, names, folder, **how):
    files = [runs / f"{name}.json" for name in names]
    return write_report(read_runs(files, dataset=str(runs / "zoo.csv"), **how), folder).parent


def test_the_page_of_names_has_the_values_of_the_report_worst_first(opened, runs, tmp_path):
    pages = pages_of(runs, ["sharp"], tmp_path / "pages")
    report = hbench.Report.read(runs / "sharp.json")
    own = dict(zip(report.queries, report.values["H-AP"], strict=True))
    page = opened(pages / "names.html")
    rows = "[e.cells[0].textContent, +e.cells[1].querySelector('[data-mean]').dataset.mean]"
    families, species = (
        each(page, f"[aria-labelledby=names-{n}] tbody tr:not(.gap)", rows) for n in (1, 2)
    )
    assert len(families) == 7
    assert len(species) == 38  # of many, the worst and the best
    for name, value in [*families, *species]:
        assert value == own[name.replace(" › ", " > ")]
    values = [value for _, value in species]
    assert values == sorted(values)
    assert values[0] == min(own[name] for name in own if " > " in name)


def test_names_alone_have_an_overview_and_no_pages_of_items(runs, tmp_path):
    pages = pages_of(runs, ["sharp", "vague"], tmp_path / "pages")
    assert {path.name for path in pages.glob("*.html")} == {"index.html", "names.html"}
    assert "At each depth" in (pages / "index.html").read_text("utf-8")


def test_several_runs_stand_beside_each_other(opened, runs, tmp_path):
    pages = pages_of(runs, ["sharp", "vague"], tmp_path / "pages", by="AP")
    page = opened(pages / "names.html")
    heads = page.locator("[aria-labelledby=names-1] thead th").all_inner_texts()
    assert heads == ["family", "sharp", "vague"]
    vague = hbench.Report.read(runs / "vague.json")
    own = dict(zip(vague.queries, vague.values["AP"], strict=True))
    row = "[e.cells[0].textContent, +e.cells[2].querySelector('[data-mean]').dataset.mean]"
    for name, value in each(page, "[aria-labelledby=names-1] table tbody tr", row):
        assert value == own[name]


def test_a_report_of_items_gets_a_tab_of_names(opened, runs, tmp_path):
    pages = pages_of(runs, ["items", "sharp"], tmp_path / "pages")
    page = opened(pages / "queries.html")
    page.get_by_role("link", name="Names").click()
    assert page.locator("h1").inner_text() == "Names as queries"
    foot = page.locator("footer").inner_text()
    for name in ("items", "sharp"):
        assert hbench.Report.read(runs / f"{name}.json").signature in foot


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
def test_the_page_fits_the_screen(opened, findings, runs, tmp_path, width, scheme):
    pages = pages_of(runs, ["items", "sharp"], tmp_path / "pages")
    check_page(opened(pages / "names.html", width=width, scheme=scheme), findings)


def test_names_asked_of_another_dataset_are_refused(runs, tmp_path):
    (tmp_path / "other.csv").write_text("item,kind\na,x\nb,x\n")
    ids = ["a", "b"]
    hbench.evaluate(np.eye(2), tmp_path / "other.csv", ids=ids).write(tmp_path / "other.json")
    with pytest.raises(ComparisonError, match="another dataset"):
        read_runs([tmp_path / "other.json", runs / "sharp.json"])


def test_without_kept_values_the_page_says_how_to_keep_them(runs, tmp_path):
    (tmp_path / "sharp.json").write_bytes((runs / "sharp.json").read_bytes())
    pages = write_report(read_runs([tmp_path / "sharp.json"]), tmp_path / "pages").parent
    assert "--by-query" in (pages / "names.html").read_text("utf-8")
