"""The page of naming: its counts are those of loops over the items, and it opens anywhere."""

import json
from collections import Counter

import numpy as np
import pytest

import hbench
from hbench.datasets import manifest
from hbench.datasets.dataset import Dataset, Protocol
from hbench.look.naming import agreement_of, confusion_of, surest_of, write_page
from hbench.look.plots.trust import read_curve
from hbench.look.trusting import nodes_of
from hbench.records.document import Score
from tests.command_line import call, refusal
from tests.look.elements import check_page, each
from tests.look.plotting import NASTY

LEVELS = ["family", "species"]


def named_of(species, seed=0, each_has=5):
    """Items of some species in families of three, named by noisy vectors of the finest nodes."""
    rng = np.random.default_rng(seed)
    rows = [(f"{NASTY}{n // 3}", f"s{n}") for n in range(species) for _ in range(each_has)]
    ids = [f"i{n}.png" for n in range(len(rows))]
    data = Dataset(
        "zoo", "1", Protocol(), None, {"test": manifest.from_names(ids, rows, levels=LEVELS)}
    )
    centres = rng.normal(size=(species, 4))
    vectors = np.repeat(centres, each_has, axis=0) + rng.normal(size=(len(rows), 4))
    nodes = {f"s{n}": centre for n, centre in enumerate(centres)}
    return hbench.name(vectors, data, nodes, ids=ids), rows


@pytest.mark.parametrize("species", [7, 40])
@pytest.mark.parametrize("level", [0, 1])
def test_confusions_are_those_of_loops(species, level):
    named, rows = named_of(species)
    paths = [tuple(path.split(" > ")) for path in named.table["path"].to_pylist()]
    pairs = Counter((row[level], path[level]) for row, path in zip(rows, paths, strict=True))
    of_class = Counter(row[level] for row in rows)

    found = confusion_of(named, level)
    assert found.right == sum(n for (a, b), n in pairs.items() if a == b) / len(rows)
    wrong = {pair: n for pair, n in pairs.items() if pair[0] != pair[1]}
    assert [pair[2] for pair in found.pairs] == sorted(wrong.values(), reverse=True)[:12]
    for own, other, number, share in found.pairs:
        assert (number, share) == (pairs[own, other], pairs[own, other] / of_class[own])
    cells = {
        (found.names[a], found.names[b]): cell[0]
        for a, row in enumerate(found.matrix)
        for b, cell in enumerate(row)
        if cell[0]
    }
    assert cells == (dict(pairs) if len(of_class) <= 24 else {})


def test_agreement_is_counted_at_its_own_level():
    named, rows = named_of(9)
    paths = [path.split(" > ") for path in named.table["path"].to_pylist()]
    agreed = named.table["agreed_to"].to_pylist()
    expected = []
    for place, level in enumerate(["", *LEVELS]):
        here = [n for n, each_one in enumerate(agreed) if each_one == level]
        right = [rows[n][place - 1] == paths[n][place - 1] for n in here]
        if here:
            # where nothing is agreed, nothing can be right
            share = pytest.approx(np.mean(right)) if place else None
            expected.append((level, len(here), share))
    assert agreement_of(named) == expected
    assert sum(number for _, number, _ in expected) == len(rows)


def test_the_surest_mistakes_come_first_one_for_each_pair_of_classes():
    named, rows = named_of(9)
    best = {}
    paths = named.table["path"].to_pylist()
    for row, path, share in zip(rows, paths, named.table["mass"].to_pylist(), strict=True):
        if path != " > ".join(row):
            best[row, path] = max(best.get((row, path), 0), share)
    found = surest_of(named)
    assert [each_one.share for each_one in found] == sorted(best.values(), reverse=True)[:20]
    assert all(best[one.path, " > ".join(one.named)] == one.share for one in found)


@pytest.mark.parametrize("level", [0, 1])
def test_nodes_are_counted_as_by_loops_the_most_often_wrong_first(level):
    named, rows = named_of(9)
    trusted = named.trust(0.5, unit="query")
    said = [tuple(path.split(" > ")) for path in named.table["path"].to_pylist()]
    expected = {}
    for row, path, depth in zip(rows, said, trusted.levels.tolist(), strict=True):
        expected.setdefault(row[level], [0] * 5)[0] += 1
        counts = expected.setdefault(path[level], [0] * 5)
        is_right = path[: level + 1] == row[: level + 1]
        counts[1] += 1
        counts[2] += is_right
        counts[3] += depth > level
        counts[4] += is_right and depth > level
    found = nodes_of(named, level, trusted)
    assert {row.name: list(row[1:]) for row in found.rows} == expected
    wrong = [row.named - row.right for row in found.rows]
    assert wrong == sorted(wrong, reverse=True)
    assert {row[4:] for row in nodes_of(named, level, None).rows} == {(None, None)}


def test_the_surest_wrong_answers_are_those_of_the_threshold():
    named, rows = named_of(40, each_has=9)
    trusted = named.trust(0.1, unit="query")
    wrong = {
        (rows[n], trusted.nodes[n]): 0.0
        for n in np.flatnonzero((trusted.levels > 0) & trusted.known & ~trusted.right)
    }
    for n, (row, node) in enumerate(zip(rows, trusted.nodes, strict=True)):
        if (row, node) in wrong:
            wrong[row, node] = max(wrong[row, node], trusted.masses[n])
    found = surest_of(named, trusted)
    assert [one.share for one in found] == sorted(wrong.values(), reverse=True)[:20]
    assert {(one.path, " > ".join(one.named)) for one in found} <= set(wrong)
    assert found


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
def test_the_page_shows_the_scores_and_fits_the_screen(opened, findings, tmp_path, width, scheme):
    named, _ = named_of(7)
    write_page(named, tmp_path / "named.html")
    page = opened(tmp_path / "named.html", width=width, scheme=scheme)
    read = each(page, "[aria-labelledby=scores] td", "e.dataset.value")
    shown = [
        scores[value].value for value in named.scores["sum"] for scores in named.scores.values()
    ]
    assert list(map(float, read)) == shown
    check_page(page, findings)


def test_another_suffix_is_refused_before_any_work(tmp_path):
    (tmp_path / "x.npz").touch()
    words = ("-d", "glyphs", "--nodes", tmp_path / "x.npz", "--page", tmp_path / "names.pdf")
    assert "end its name in .html" in refusal("name", tmp_path / "x.npz", *words)


def test_the_page_of_predictions_shows_reliability_the_line_and_what_is_answered(
    opened, findings, tmp_path
):
    rows = [(f"i{n}", f"g{n // 12}", f"s{n // 4}") for n in range(48)]
    lines = ["item,genus,species", *map(",".join, rows)]
    (tmp_path / "items.csv").write_text("\n".join(lines) + "\n")
    said = ["item,path,score"]
    for n, (item, genus, species) in enumerate(rows):
        # right, above the truth, a name that the tree lacks, and nothing at all
        path = (f"{genus} > {species}", genus, f"{genus} > {NASTY}", "")[n % 4]
        said.append(f'{item},"{path.replace(chr(34), chr(34) * 2)}",{0.5 + n % 5 / 10}')
    (tmp_path / "said.csv").write_text("\n".join(said) + "\n")
    named = hbench.name(tmp_path / "said.csv", tmp_path / "items.csv")
    trusted = named.trust(0.6, unit="query")
    write_page(named, tmp_path / "page.html", trusted)

    page = opened(tmp_path / "page.html", width=390)
    shown = each(page, "[aria-labelledby=reliability] td", "+e.dataset.items")
    counted = zip(*named.reliability().values(), strict=True)
    assert shown == [one.items for bins in counted for one in bins]
    shown = each(page, "[aria-labelledby=risk] td", "+e.dataset.value")
    outcomes = (trusted.outcome, trusted.fixed)
    assert shown == [value for each_one in outcomes for value in (each_one.coverage, each_one.risk)]
    shares = each(page, "[aria-labelledby=answered] td[data-value]", "+e.dataset.value")
    assert [sum(shares[n : n + 3]) for n in range(0, 12, 3)] == pytest.approx([1] * 4)
    areas = each(page, "[aria-label='Answered at'] li", "e.textContent")
    assert areas == ["nothing", "genus", "species"]
    named_right = each(page, "[aria-labelledby=nodes] td[data-value]", "+e.dataset.value")
    assert sum(named_right[::4]) == sum(
        row.named for n in (0, 1) for row in nodes_of(named, n, None).rows
    )
    wrong = sorted((one.share for one in surest_of(named)), reverse=True)
    assert [one.share for one in surest_of(named)] == wrong
    check_page(page, findings)


def test_half_of_an_uneven_interval_is_not_shown_behind_its_score(tmp_path):
    named, _ = named_of(7)
    whole = Score(value=1.0, low=0.668, high=1.0, queries=35, skipped=0)
    named.scores["sum"]["consistent"] = whole
    write_page(named, tmp_path / "named.html")
    assert "100.00 <small>≥ 66.80</small>" in (tmp_path / "named.html").read_text()


def test_the_area_and_the_axes_of_the_line_are_in_percent(tmp_path):
    named, _ = named_of(7)
    write_page(named, tmp_path / "named.html")
    text = (tmp_path / "named.html").read_text()
    assert f"hAURC, is {100 * named.trust(0.8).haurc:.1f} %" in text
    assert 'text-anchor="middle">50 %</text>' in text


@pytest.fixture
def answers(tmp_path):
    """The answers of a naming in JSON, as `hbench name --json` prints them, and its curve."""
    named, _ = named_of(40, each_has=9)
    trusted = named.trust(0.1)
    path = tmp_path / "answers.json"
    document = {"signature": named.signature, "trust": trusted.document()}
    path.write_text(json.dumps(document))
    return path, trusted


def test_a_curve_is_drawn_from_the_answers_that_were_printed(answers):
    path, trusted = answers
    curve = read_curve(path, "mine")
    assert curve.line[0].tolist() == [0, 0]
    assert curve.line[-1].tolist() == [trusted.curve.coverage[-1], trusted.curve.risk[-1]]
    assert set(map(tuple, curve.line.tolist())) <= set(
        zip(trusted.curve.coverage.tolist(), trusted.curve.risk.tolist(), strict=True)
    )
    assert curve.chosen.tolist() == [trusted.coverage, trusted.risk]


def test_curves_of_several_namings_are_one_picture(answers, tmp_path):
    path, _ = answers
    out = tmp_path / "trust.svg"
    call("plot", "trust", path, path, "--name", "mine", "--name", NASTY, "-o", out)
    assert out.read_text().startswith("<?xml")


def test_curves_of_several_datasets_are_refused(answers, tmp_path):
    path, _ = answers
    other = tmp_path / "other.json"
    other.write_text(path.read_text().replace('"signature": "', '"signature": "other@1|'))
    said = refusal("plot", "trust", path, other, "-o", tmp_path / "trust.svg")
    assert "other@1" in said


def test_a_file_without_a_curve_is_refused_with_the_command_that_makes_one(tmp_path):
    path = tmp_path / "report.json"
    path.write_text('{"scores": {}}')
    said = refusal("plot", "trust", path, "-o", tmp_path / "trust.svg")
    assert "--trust" in said
