"""Looking at results: the same ranking as by brute force, queries chosen as asked, strips that
escape and grade.
"""

import csv
import io
import json
import re
from html import unescape
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import hbench
from hbench.cli import group
from hbench.core.errors import UnknownName, UsageError
from hbench.datasets import manifest as manifests
from hbench.engine.settings import Settings
from hbench.evaluation.submission.embedding import EmbeddingSubmission
from hbench.look.palette import color_of, lightness_of, mark_of, text_color_on
from hbench.look.strips import Strip, StripRow, StripSheet, page_of, strip_of, write_strips
from hbench.look.strips.results import Results
from hbench.look.strips.retrievals import Hit, class_name, first_results, hits_of, right_of
from hbench.submissions import embeddings
from hbench.submissions.embeddings import Embeddings
from tests.command_line import call, python, refusal
from tests.look.elements import each
from tests.look.plotting import luminance

NASTY = "<img src=x onerror=alert(1)>"


def made(items=60, seed=0, queries=None):
    """A test of two levels, and embeddings with equal scores in it."""
    rng = np.random.default_rng(seed)
    fine = np.arange(items) % 12
    ids = [f"i{number:02}" for number in range(items)]
    asked = None if queries is None else np.arange(items) < queries
    ranked = None if queries is None else np.arange(items) >= queries // 2
    rows = [(f"g{kind // 3}", f"s{kind}") for kind in fine]
    manifest = manifests.from_names(
        ids, rows, levels=("genus", "species"), query=asked, gallery=ranked
    )
    vectors = rng.normal(size=(items, 3)).astype(np.float32)
    vectors[30:45] = vectors[10:25]
    return manifest, Embeddings(np.array(ids, dtype=object), vectors, "0" * 64, "made", "float32")


def by_force(manifest, vectors, query, similarity):
    """Every gallery item but the query itself, best first; among equal scores the lower level
    first.
    """
    score = {
        "cosine": lambda a, b: a @ b / np.linalg.norm(a) / np.linalg.norm(b),
        "dot": lambda a, b: a @ b,
        "l2": lambda a, b: -np.linalg.norm(a - b),
    }[similarity]
    v, found = vectors.astype(np.float64), []
    for item in np.flatnonzero(manifest.gallery):
        if item != query:
            level = int((manifest.labels[item] == manifest.labels[query]).sum())
            found.append((score(v[query], v[item]), level, manifest.items[item]))
    return sorted(found, key=lambda found: (-round(found[0], 6), found[1]))


@pytest.mark.parametrize("similarity", ["cosine", "dot", "l2"])
@pytest.mark.parametrize("queries", [None, 20])
def test_results_are_those_of_brute_force(similarity, queries):
    manifest, embeddings = made(queries=queries)
    chosen = Settings(metrics=["H-AP"], similarity=similarity).resolve(manifest.tree.levels)
    asked = np.array([7, 3, 11])
    top = first_results(manifest, EmbeddingSubmission(embeddings), asked, chosen, 15)
    for row, position in enumerate(asked.tolist()):
        query = np.flatnonzero(manifest.query)[position]
        hits, expected = (
            hits_of(manifest, top, row, query),
            by_force(manifest, embeddings.vectors, query, similarity)[:15],
        )
        assert [hit.rank for hit in hits] == list(range(1, 16))
        assert [hit.score for hit in hits] == pytest.approx(
            [score for score, *_ in expected], abs=1e-3
        )
        assert [hit.level for hit in hits] == [level for _, level, _ in expected]
        assert manifest.items[query] not in {hit.item for hit in hits}
        assert [hit.name for hit in hits] == [f"s{int(hit.item[1:]) % 12}" for hit in hits]
        everything = by_force(manifest, embeddings.vectors, query, similarity)
        ranks = [rank for rank, (_, level, _) in enumerate(everything, start=1) if level == 2]
        for shown in (1, 15):
            right = right_of(manifest, top, row, query, shown=shown)
            assert (None if right is None else right.rank) == (
                ranks[0] if ranks and ranks[0] > shown else None
            )


def test_copies_of_the_query_are_marked_and_a_mere_number_is_not_a_name():
    manifest, embeddings = made()
    chosen = Settings(metrics=["H-AP"]).resolve(manifest.tree.levels)
    hits = hits_of(
        manifest,
        first_results(manifest, EmbeddingSubmission(embeddings), np.array([10]), chosen, 3),
        0,
        10,
    )
    assert (hits[0].item, hits[0].copy) == (
        "i30",
        True,
    )  # the vectors from 30 on are those from 10 on
    assert not any(hit.copy for hit in hits[1:])
    numbered = manifests.from_names(["a"], [("chair", "123")], levels=("kind", "product"))
    assert class_name(numbered, 0) == "chair 123"


@pytest.fixture(scope="module")
def folder(letters_by_name, tmp_path_factory):
    """Embeddings of letters: random but for the class means, in two files."""
    folder = tmp_path_factory.mktemp("look")
    test = hbench.load("letters").tests["test"]
    rng = np.random.default_rng(0)
    means = rng.normal(size=(int(test.labels[:, -1].max()) + 1, 16))
    for name, noise in (("one", 1.0), ("two", 2.0)):
        vectors = means[test.labels[:, -1]] + noise * rng.normal(size=(len(test), 16))
        np.savez(
            folder / f"{name}.npz",
            ids=test.items.astype(str),
            embeddings=vectors.astype(np.float32),
        )
    return folder


def look(folder, *arguments, code=0):
    run = CliRunner().invoke(
        group, ["look", str(folder / "one.npz"), "-d", "letters", *map(str, arguments)]
    )
    assert run.exit_code == code, run.output
    return run


def test_worst_and_best_are_by_the_values_of_the_report_and_severe_by_first_levels(folder):
    report = hbench.evaluate(folder / "one.npz", "letters", metrics=["AP"])
    values = dict(zip(report.queries.tolist(), report.per_query["AP"].tolist(), strict=True))
    defined = sorted(value for value in values.values() if not np.isnan(value))
    for option, expected in (("--worst", defined[:3]), ("--best", defined[:-4:-1])):
        found = json.loads(look(folder, option, 3, "--by", "AP", "-k", 1, "--json").stdout)
        assert [values[strip["query"]] for strip in found] == expected
    severe = json.loads(look(folder, "--severe", 4, "-k", 2, "--json").stdout)
    assert [strip["results"]["one.npz"][0]["level"] for strip in severe] == [0] * 4


def test_a_class_is_found_at_any_level(folder):
    of_script = {
        strip["query"] for strip in json.loads(look(folder, "--class", "Armenian", "--json").stdout)
    }
    assert of_script
    assert all(query.startswith("armenian/") for query in of_script)


def test_a_query_is_found_by_its_id(folder):
    (worst,) = json.loads(look(folder, "--worst", 1, "--json").stdout)
    # none of its first results is right, so the first right one is shown below
    query = worst["query"]
    text = look(folder, "--item", query, "-k", 3).stdout
    assert text.startswith(f"{query}  (")
    assert len(text.strip().splitlines()) == 5
    assert text.strip().endswith("(the first right one)")


def test_an_unknown_class_or_id_is_refused(folder):
    query = hbench.load("letters").tests["test"].items[5]
    for option, unknown in (("--item", query[:-1]), ("--class", "Klingon")):
        run = look(folder, option, unknown, code=1)
        assert isinstance(run.exception, UnknownName)
        assert unknown in str(run.exception)


def test_csv_has_a_line_per_result_and_no_formula(folder):
    rows = list(csv.DictReader(io.StringIO(look(folder, "--random", 2, "-k", 5, "--csv").stdout)))
    assert [row["rank"] for row in rows] == list("12345") * 2
    assert set(rows[0]) == {"file", "query", "rank", "id", "score", "level", "shares"}
    strip = Strip("=1+1", 0, "", [StripRow("@file", (Hit(1, "-2", 0.5, 1, 0),))])
    (row,) = csv.DictReader(
        io.StringIO(Results(StripSheet([strip], ("genus", "species"), "", None)).csv())
    )
    assert (row["file"], row["query"], row["id"], row["shares"]) == (
        "'@file",
        "'=1+1",
        "-2",
        "genus",
    )


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".html", ".HTML", ".PNG"])
def test_strips_of_two_models_are_written_as_asked_and_the_same_again(folder, tmp_path, suffix):
    paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        look(folder, folder / "two.npz", "--random", 2, "-k", 3, "-o", path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    if suffix.lower() == ".png":
        with Image.open(paths[0]) as image:
            assert image.size[0] > 500


@pytest.mark.parametrize("k", [1, 3])
def test_neither_the_caption_nor_the_legend_of_few_results_leaves_the_picture(folder, tmp_path, k):
    look(folder, "--random", 1, "-k", k, "-o", tmp_path / "strip.png")
    with Image.open(tmp_path / "strip.png") as image:
        pixels = np.asarray(image.convert("L"))
    lines = np.concatenate([pixels[:40], pixels[-40:]])
    assert lines[:, [0, 1, -2, -1]].min() == 255  # white


def test_another_suffix_and_two_ways_to_choose_are_refused_before_anything_is_read(tmp_path):
    words = ("look", str(tmp_path / "none.npz"), "-d", "letters")
    for more, expected in (
        (("-o", "strip.docx"), ".html"),
        (("--worst", "2", "--best", "2"), "one way"),
    ):
        run = CliRunner().invoke(group, [*words, *more])
        assert run.exit_code == 2
        assert expected in run.output
    with pytest.raises(UsageError, match="one way"):
        hbench.browse(tmp_path / "none.npz", "letters", severe=2, best=3)
    for files, options in (([], {}), ("none.npz", {"k": 0}), ("none.npz", {"worst": -1})):
        with pytest.raises(UsageError, match=r"nothing to show|1 or more"):
            hbench.browse(files, "letters", **options)


@pytest.mark.parametrize("depth", [1, 2, 4, 7])
def test_colours_are_graded_in_grey_and_marks_say_the_level(depth):
    grey = [lightness_of(color_of(level, depth)) for level in range(depth + 1)]
    assert all(later - earlier > 10 for earlier, later in pairwise(grey))
    assert len({mark_of(level, depth) for level in range(depth + 1)}) == depth + 1
    for level in range(depth + 1):  # WCAG 2, for letters of any size
        color = color_of(level, depth)
        light, dark = sorted((luminance(color), luminance(text_color_on(color))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5
    assert text_color_on(color_of(0, depth)) == "#ffffff"
    assert text_color_on(color_of(depth, depth)) == "#000000"


def nasty_sheet(picture=None):
    manifest, embeddings = made()
    chosen = Settings(metrics=["H-AP"]).resolve(manifest.tree.levels)
    hits = hits_of(
        manifest,
        first_results(manifest, EmbeddingSubmission(embeddings), np.array([0]), chosen, 3),
        0,
        0,
    )
    rows = [
        StripRow(NASTY, tuple(hit._replace(item=NASTY) for hit in hits)),
        StripRow("b", hits, 1),
    ]
    strip = strip_of(manifest, 0, rows)._replace(query=NASTY, about=f"{NASTY} $x^2$")
    return StripSheet([strip], ("genus", NASTY), NASTY, picture)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_from_outside_are_text_in_a_page(opened, findings, scheme, tmp_path):
    sheet = nasty_sheet(lambda _item: Image.new("RGBA", (300, 20), "red"))
    write_strips(sheet, tmp_path / "strips.html")
    page = opened(
        tmp_path / "strips.html", width=390, scheme=scheme, within=(tmp_path.as_uri(), "data:")
    )
    assert page.locator("h2").inner_text() == f"{NASTY} $x^2$ {NASTY}"
    assert page.locator("img[src=x]").count() == 0
    levels = [hit.level for row in sheet.strips[0].rows for hit in row.hits]
    assert each(page, "li[data-level]", "+e.dataset.level") == levels
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert findings(page) == []


def test_items_without_a_picture_are_named(tmp_path):
    assert "<img" not in page_of(nasty_sheet()).replace("&lt;img", "")
    write_strips(nasty_sheet(), tmp_path / "s.png")
    with Image.open(tmp_path / "s.png") as image:
        assert image.size[0] > 300


def test_a_ranking_file_cannot_be_looked_at(folder, tmp_path):
    test = hbench.load("letters").tests["test"]
    lines = [f"{query} Q0 {test.items[0]} 1 1.0 run" for query in test.items[1:].tolist()]
    (tmp_path / "a.run").write_text("\n".join(lines))
    run = CliRunner().invoke(
        group, ["look", str(tmp_path / "a.run"), "-d", "letters", "--random", "1"]
    )
    assert "holds rankings" in str(run.exception)


SHOWS = """
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
import hbench
results = hbench.browse({file!r}, "letters", at_random=1, k=2)
results.show()
InteractiveShell.instance()
with capture_output() as captured:
    results.show()
print("<<<", captured.outputs[0].data["text/html"])
"""


def test_results_show_themselves_in_a_notebook_and_as_text_elsewhere(folder):
    text, _, shown = python(SHOWS.format(file=str(folder / "one.npz"))).partition("<<<")
    results = hbench.browse(folder / "one.npz", "letters", at_random=1, k=2)
    assert text.strip() == results.text() == repr(results)
    assert shown.strip() == results._repr_html_()
    srcdoc = re.fullmatch(r'<iframe sandbox="" [^>]*srcdoc="([^"]*)"></iframe>', shown.strip())[1]
    assert "<" not in srcdoc
    assert unescape(srcdoc) == page_of(results.sheet)


def test_the_frame_in_a_notebook_is_as_high_as_its_strips(opened, folder, tmp_path):
    results = hbench.browse([folder / "one.npz", folder / "two.npz"], "letters", severe=2, k=6)
    results.write(tmp_path / "s.html")
    page = opened(tmp_path / "s.html", width=1000, within=(tmp_path.as_uri(), "data:"))
    high = page.evaluate("document.documentElement.scrollHeight")
    frame = int(re.search(r"height:(\d+)px", results._repr_html_())[1])
    assert high <= frame < 1.3 * high


def test_what_python_browses_is_what_the_command_shows(folder):
    results = hbench.browse([folder / "one.npz", folder / "two.npz"], "letters", severe=2, k=3)
    assert (
        json.loads(look(folder, folder / "two.npz", "--severe", 2, "-k", 3, "--json").stdout)
        == results.records()
    )
    assert look(folder, folder / "two.npz", "--severe", 2, "-k", 3).stdout == results.text() + "\n"


def test_of_several_models_each_shows_its_own_value(folder):
    """Every place where a value stands: text, JSON, page; the queries are those of the first
    model."""
    found = json.loads(look(folder, folder / "two.npz", "--worst", 3, "-k", 2, "--json").stdout)
    text = look(folder, folder / "two.npz", "--worst", 3, "-k", 2).stdout
    page = page_of(
        hbench.browse([folder / "one.npz", folder / "two.npz"], "letters", worst=3, k=2).sheet
    )
    for name in ("one.npz", "two.npz"):
        report = hbench.evaluate(folder / name, "letters", metrics=["H-AP"])
        own = dict(zip(report.queries.tolist(), report.per_query["H-AP"].tolist(), strict=True))
        for strip in found:
            assert (strip["by"], strip["values"][name]) == ("H-AP", own[strip["query"]])
            words = f"{name} · H-AP {100 * own[strip['query']]:.1f}"
            assert words in text
            assert words in page
    assert all(len(set(strip["values"].values())) == 2 for strip in found)
    assert not any("H-AP" in strip["about"] for strip in found)
    (alone, *_) = json.loads(look(folder, "--worst", 1, "-k", 2, "--json").stdout)
    assert alone["about"].endswith(f"H-AP {100 * alone['values']['one.npz']:.1f}")


def test_files_that_share_their_name_keep_their_results_apart(folder, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.npz").write_bytes((folder / "one.npz").read_bytes())
    files = [tmp_path / "a" / "one.npz", tmp_path / "b" / "one.npz", tmp_path / "b" / "one.npz"]
    (record,) = hbench.browse(files, "letters", at_random=1, k=1).records()
    assert list(record["results"]) == ["a/one.npz", "b/one.npz (1)", "b/one.npz (2)"]


def test_neighbours_are_those_of_the_evaluation_by_its_report_or_by_name(tmp_path):
    """The dot product prefers the longest of vectors in one direction."""
    rows = "".join(f"{n},a,a{n % 2}\n" for n in range(6))
    (tmp_path / "d.csv").write_text(f"item,genus,species\n{rows}", encoding="utf-8")
    vectors = np.array([[1, 0], [1, 0.1], [1, 0.2], [9, 9], [1, 0.3], [1, 0.4]], np.float32)
    embeddings.write(tmp_path / "e.npz", [str(n) for n in range(6)], vectors)

    words = (tmp_path / "e.npz", "-d", tmp_path / "d.csv")
    call("evaluate", *words, "--similarity", "dot", "-o", tmp_path / "r.json")
    shown = []
    for more in ((), ("--similarity", "dot"), ("--report", tmp_path / "r.json")):
        (query,) = json.loads(call("look", *words, "--item", "0", "-k", 1, "--json", *more).stdout)
        shown.append(query["results"]["e.npz"][0]["item"])
    assert shown == ["1", "3", "3"]


def test_a_picture_without_queries_is_refused_and_the_advice_works(tmp_path):
    rows = "".join(f"{n},a{n},b{n}\n" for n in range(6))  # no query has a positive
    (tmp_path / "d.csv").write_text(f"item,genus,species\n{rows}", encoding="utf-8")
    vectors = np.eye(6, dtype=np.float32)
    embeddings.write(tmp_path / "e.npz", [str(n) for n in range(6)], vectors)

    results = hbench.browse(tmp_path / "e.npz", tmp_path / "d.csv")
    with pytest.raises(UsageError, match="no query"):
        results.write(tmp_path / "x.png")
    results.write(tmp_path / "x.html")
    hbench.browse(tmp_path / "e.npz", tmp_path / "d.csv", at_random=1).write(tmp_path / "x.png")


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """A table whose queries and gallery have embeddings in a file of all and in one file each."""
    folder = tmp_path_factory.mktemp("halves")
    rng = np.random.default_rng(0)
    rows = [f"i{n},f{n % 12 // 4},g{n % 12},{int(n < 24)},{int(n >= 24)}" for n in range(72)]
    (folder / "own.csv").write_text("\n".join(["item,family,genus,query,gallery", *rows]))
    vectors = rng.normal(size=(12, 4))[np.arange(72) % 12] + rng.normal(size=(72, 4))
    ids, vectors = [f"i{n}" for n in range(72)], vectors.astype(np.float32)
    for name, part in (("whole", slice(None)), ("q", slice(24)), ("g", slice(24, None))):
        embeddings.write(folder / f"{name}.npz", ids[part], vectors[part])
    return folder


def in_halves(halves):
    """The words that name the two files, and those that name the table."""
    two = ("--query", halves / "q.npz", "--gallery", halves / "g.npz")
    return two, ("-d", halves / "own.csv")


def test_queries_and_gallery_in_two_files_are_looked_at_as_from_one(halves):
    two, data = in_halves(halves)
    shown = json.loads(call("look", *two, *data, "--worst", 3, "--json").stdout)
    one = json.loads(call("look", halves / "whole.npz", *data, "--worst", 3, "--json").stdout)
    assert [query["results"]["q.npz + g.npz"] for query in shown] == [
        query["results"]["whole.npz"] for query in one
    ]
    assert [query["values"]["q.npz + g.npz"] for query in shown] == [
        query["values"]["whole.npz"] for query in one
    ]


def test_two_files_of_one_run_are_looked_at_beside_another(halves):
    two, data = in_halves(halves)
    both = call("look", halves / "whole.npz", *two, *data, "--item", "i3", "-k", 2).stdout
    assert both.count("whole.npz") == both.count("q.npz + g.npz") == 1


def test_queries_and_gallery_in_two_files_become_the_same_pages(halves, tmp_path):
    two, data = in_halves(halves)
    for name, files in (("two", two), ("one", (halves / "whole.npz",))):
        call(
            "evaluate",
            *files,
            *data,
            "-o",
            tmp_path / f"{name}.json",
            "--by-query",
            tmp_path / f"{name}.by-query.parquet",
        )
        given = two if name == "two" else ("--embeddings", *files)
        call("report", tmp_path / f"{name}.json", *data, *given, "-o", tmp_path / name)
    made = [(tmp_path / name / "data" / "map-0.js").read_text() for name in ("one", "two")]
    assert made[0] == made[1]
    assert "is not the file that was scored" in refusal(
        "report", tmp_path / "one.json", *data, *two, "-o", tmp_path / "p"
    )


def test_files_that_are_swapped_and_an_id_in_the_place_of_queries_name_what_to_say(halves):
    _, data = in_halves(halves)
    swapped = ("--query", halves / "g.npz", "--gallery", halves / "q.npz")
    assert "swapped" in refusal("look", *swapped, *data)
    assert "To choose a query by its id, say --item ID" in refusal(
        "look", halves / "whole.npz", *data, "--query", "i3"
    )
    assert "Give FILES of embeddings, or --query" in refusal("look", *data)


def test_names_that_form_no_tree_are_mended_for_every_verb_that_opens_a_table(tmp_path):
    rows = [f"i{n},f{n % 2},g{n % 3}" for n in range(60)]  # every genus is in both families
    table, vectors = tmp_path / "own.csv", tmp_path / "e.npz"
    table.write_text("\n".join(["item,family,genus", *rows]))
    np.savez(
        vectors,
        ids=[f"i{n}" for n in range(60)],
        embeddings=np.random.default_rng(0).normal(size=(60, 4)),
    )
    mended = ("-d", table, "--policy", "by-path")
    call("evaluate", vectors, *mended, "--top-k", 3, "-o", tmp_path / "r.json")
    assert "i0  (f0 › g0 (f0)" in call("look", vectors, *mended, "--item", "i0").stdout
    assert (
        "queries:60|batch:20"
        in json.loads(call("gap", vectors, *mended, "--batch", 20, "--json").stdout)["signature"]
    )
    call("report", tmp_path / "r.json", *mended, "-o", tmp_path / "pages")
    assert (tmp_path / "pages" / "queries.html").is_file()
