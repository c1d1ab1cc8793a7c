"""What smaller vectors cost: each size is what loops make of the vectors, the whole is the plain
evaluation, and what is lost is counted query by query."""

import csv
import io
import json
import math
import re

import numpy as np
import pytest
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

import hbench
from hbench.core.errors import UsageError
from hbench.engine.settings import Settings
from hbench.evaluation.evaluate import report_on
from hbench.evaluation.submission.embedding import EmbeddingSubmission
from hbench.evaluation.variants.smaller import (
    Components,
    VectorSize,
    score_smaller,
    shrunk,
    sizes_of,
    whole_size,
)
from hbench.submissions import embeddings
from tests.command_line import call, refusal

pytestmark = pytest.mark.fast

ITEMS = 48
IDS = [f"i{n:02}" for n in range(ITEMS)]
ROWS = [(f"order {n % 12 // 6}", f"species {n % 12}") for n in range(ITEMS)]
WHOLE = VectorSize(10, 32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of 2 orders and 12 species, and noisy vectors around the species' centres."""
    folder = tmp_path_factory.mktemp("smaller")
    with (folder / "own.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("item", "order", "species")])
        csv.writer(file).writerows((i, *row) for i, row in zip(IDS, ROWS, strict=True))
    embeddings.write(folder / "v.npz", IDS, vectors())
    embeddings.write(folder / "train.npz", [f"t{n}" for n in range(60)], vectors(60, seed=5))
    return folder


def vectors(items=ITEMS, seed=0):
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(9).normal(size=(12, 10))
    return (centres[np.arange(items) % 12] + random.normal(size=(items, 10))).astype(np.float32)


def scored(folder, *, dims=(), bits=(), components=None, similarity="cosine", metrics=None):
    """Every size, by its words, of the vectors of the folder."""
    given = EmbeddingSubmission(embeddings.read(folder / "v.npz"))
    sizes = sizes_of(whole_size(given), dims, bits, with_components=components is not None)
    found = score_smaller(
        given,
        hbench.load(folder / "own.csv"),
        Settings(metrics, similarity=similarity),
        sizes,
        components=components,
        report=report_on,
    )
    return {str(each.size): each for each in found}


def evaluated(folder, vectors, **options):
    options = {"metrics": "H-AP,R@1/species,R@1/order"} | options
    return hbench.evaluate(vectors, folder / "own.csv", ids=IDS, **options)


def test_the_whole_has_the_bits_of_a_plain_evaluation(folder):
    whole = scored(folder, dims=[4])["10 × 32 bits"].report
    plain = evaluated(folder, vectors())
    assert whole.values.keys() == plain.values.keys()
    assert all((whole.values[name] == plain.values[name]).all() for name in plain.values)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "l2"])
def test_fewer_dimensions_are_the_first_coordinates(folder, similarity):
    small = scored(folder, dims=[4], similarity=similarity)["4 × 32 bits"].report
    assert small.scores == evaluated(folder, vectors()[:, :4], similarity=similarity).scores


def test_bytes_are_whole_numbers_of_which_the_largest_is_an_end():
    for row, made in zip(vectors(), shrunk(vectors(), VectorSize(10, 8)), strict=True):
        largest = max(abs(float(value)) for value in row)
        by_hand = [round(float(value) / largest * 127) * largest / 127 for value in row]
        assert made.tolist() == pytest.approx(by_hand, rel=1e-6)


def test_a_vector_of_zeros_stays_one():
    assert not shrunk(np.zeros((2, 3), np.float32), VectorSize(3, 8)).any()


def test_one_bit_ranks_by_the_signs_that_differ(folder):
    found = scored(folder, bits=[1])["10 × 1 bit"].report
    signs = vectors() > 0
    for query in range(ITEMS):
        others = [item for item in range(ITEMS) if item != query]
        apart = {item: sum(signs[query] != signs[item]) for item in others}
        nearest = [item for item in others if apart[item] == min(apart.values())]
        # of equal ones the worst comes first
        is_right = all(ROWS[item][1] == ROWS[query][1] for item in nearest)
        assert found.values["R@1"][list(found.queries).index(IDS[query])] == is_right


def test_half_floats_are_those_of_numpy(folder):
    halves = vectors().astype(np.float16)
    assert (
        scored(folder, bits=[16])["10 × 16 bits"].report.scores == evaluated(folder, halves).scores
    )


def test_components_are_those_of_another_library(folder):
    train = vectors(60, seed=5)
    ours = Components.of(train, of_directions=False).rotated(vectors())
    # in doubles, like ours: of single ones the last digits differ between processors
    theirs = PCA().fit(train.astype(np.float64)).transform(vectors().astype(np.float64))
    assert np.abs(ours) == pytest.approx(np.abs(theirs), rel=1e-9, abs=1e-9)


def test_components_have_the_same_bits_whatever_the_number_of_threads():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(600, 512)) @ rng.normal(size=(512, 512))
    fitted = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            components = Components.of(vectors, of_directions=False)
            fitted.append((components.axes, components.rotated(vectors)))
    for of_one, of_two in zip(*fitted, strict=True):
        np.testing.assert_array_equal(of_one, of_two)


def test_all_components_rank_as_the_vectors_from_their_mean(folder):
    train = vectors(60, seed=5)
    components = Components.of(train, of_directions=False)
    found = scored(folder, dims=[10], components=components, similarity="l2")
    rotated = found["10 components × 32 bits"].report
    assert rotated.scores["H-AP"] == pytest.approx(
        evaluated(folder, vectors(), similarity="l2").scores["H-AP"]
    )


def test_what_is_lost_is_counted_query_by_query(folder):
    found = scored(folder, dims=[3])
    whole = found["10 × 32 bits"].report
    small = found["3 × 32 bits"]
    for level in ("order", "species"):
        before = whole.per_query[f"R@1/{level}"].tolist()
        after = small.report.per_query[f"R@1/{level}"].tolist()
        pairs = list(zip(before, after, strict=True))
        assert dict(small.lost)[level] == pairs.count((1, 0)) / ITEMS
        assert dict(small.gained)[level] == pairs.count((0, 1)) / ITEMS
    assert small.lost[1][1] > 0


def test_the_differences_are_those_of_a_paired_comparison(folder):
    (small,) = [each for each in scored(folder, dims=[4]).values() if each.differences]
    paired = hbench.compare(evaluated(folder, vectors()[:, :4]), evaluated(folder, vectors()))
    assert list(small.differences) == list(paired.differences)


def test_sizes_are_all_of_both_each_once_and_without_the_whole():
    sizes = sizes_of(WHOLE, [10, 4], [32, 1], with_components=True)
    assert list(map(str, sizes)) == [
        "10 × 1 bit", "4 × 32 bits", "4 × 1 bit", "10 components × 32 bits",
        "10 components × 1 bit", "4 components × 32 bits", "4 components × 1 bit",
    ]  # fmt: skip
    assert [size.bytes for size in sizes[:3]] == [2, 16, 1]  # a byte is not shared


@pytest.mark.parametrize(("dims", "bits"), [([11], []), ([0], []), ([], [7]), ([], [64])])
def test_sizes_that_cannot_be_are_refused(dims, bits):
    with pytest.raises(UsageError):
        sizes_of(WHOLE, dims, bits, with_components=False)


def test_vectors_of_hyperbolic_space_are_not_cut(folder):
    with pytest.raises(UsageError, match="cannot be cut"):
        scored(folder, dims=[4], similarity="lorentz")


def on_command_line(folder, *words):
    return call("evaluate", folder / "v.npz", "-d", folder / "own.csv", *words)


def test_the_command_says_what_each_size_loses(folder):
    done = on_command_line(folder, "--dims", "10,4", "--bits", "32,8")
    assert [line.split("\t")[:2] for line in done.stdout.splitlines()[2:]] == [
        ["10 × 32 bits", "40"], ["10 × 8 bits", "10"], ["4 × 32 bits", "16"], ["4 × 8 bits", "4"]
    ]  # fmt: skip
    assert "4 × 8 bits: of 100 queries" in done.stderr


def test_every_size_is_made_of_the_vectors_as_they_were(folder, tmp_path):
    # of many items in an order of their own, whose vectors an evaluation of a file may move
    test = hbench.load("glyphs").tests["test"]
    order = np.random.default_rng(0).permutation(len(test.items))
    centres = np.random.default_rng(1).normal(size=(len(test.tree.names[-1]), 64))
    of_class = centres[test.labels[order, -1]].astype(np.float32)
    embeddings.write(tmp_path / "v.parquet", test.items[order], of_class)
    words = ("--bits", "32,16", "--metrics", "H-AP", "--json")
    done = call("evaluate", tmp_path / "v.parquet", "-d", "glyphs", *words)
    whole, halves = (size["scores"]["H-AP"]["value"] for size in json.loads(done.stdout)["sizes"])
    assert whole == pytest.approx(halves, abs=1e-3)


def test_json_csv_and_the_picture_have_the_same_scores(folder, tmp_path):
    words = ("--dims", "4", "--metrics", "R@1,H-AP")
    document = json.loads(
        on_command_line(folder, *words, "--json", "-o", tmp_path / "sizes.json").stdout
    )
    assert json.loads((tmp_path / "sizes.json").read_text()) == document
    table = list(
        csv.DictReader(io.StringIO(on_command_line(folder, *words, "--format", "csv").stdout))
    )
    for row, size in zip(table, document["sizes"], strict=True):
        assert float(row["R@1"]) == size["scores"]["R@1"]["value"]
        assert int(row["bytes"]) == size["bytes"]
    call("plot", "sizes", tmp_path / "sizes.json", "-o", tmp_path / "sizes.svg", "-m", "R@1")
    assert "bytes of a vector" in (tmp_path / "sizes.svg").read_text()


def test_csv_has_numbers_that_programs_read(folder):
    words = ("--dims", "2", "--metrics", "AP", "--format", "csv")
    rows = csv.DictReader(io.StringIO(on_command_line(folder, *words).stdout))
    (smaller,) = [row for row in rows if row["dims"] == "2"]
    assert float(smaller["AP low"]) <= float(smaller["AP difference"]) < 0


def test_the_page_has_the_table_and_the_picture_and_loads_nothing(folder, tmp_path):
    words = ("--dims", "4", "--metrics", "R@1,H-AP", "--page", tmp_path / "sizes.html")
    done = on_command_line(folder, *words)
    page = (tmp_path / "sizes.html").read_text()
    for line in done.stdout.splitlines()[2:]:
        size, bytes_, *cells = line.split("\t")
        assert f">{size}</th><td>{bytes_}</td>" in page
        assert all(cell.partition(" ")[0] in page for cell in cells)
    assert "of 100 queries" in page
    assert 'src="data:image/svg+xml' in page
    assert not re.search(r'(src|href)="(?!data:|#)', page)


def test_a_larger_distance_is_worse_on_the_page(folder, tmp_path):
    page = tmp_path / "sizes.html"
    on_command_line(folder, "--dims", "1", "--metrics", "R@1,HD@1", "--page", page)
    assert re.findall(r'<td class="(\w+)"', page.read_text()) == ["worse", "worse"]


@pytest.mark.parametrize(("bits", "is_said"), [("1", True), ("8", False)])
def test_the_page_says_how_signs_are_ranked(folder, tmp_path, bits, is_said):
    on_command_line(folder, "--bits", bits, "--page", tmp_path / "sizes.html")
    assert ("(hamming)" in (tmp_path / "sizes.html").read_text()) == is_said


def test_components_are_fitted_on_other_items_than_those_of_the_test(folder):
    words = ("--dims", "4", "--components")
    of_test = refusal(
        "evaluate", folder / "v.npz", "-d", folder / "own.csv", *words, folder / "v.npz"
    )
    assert f"{ITEMS} of the test" in of_test
    shown = on_command_line(folder, *words, folder / "train.npz").stdout
    assert "4 components × 32 bits" in shown


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--dims", "4", "--check"], "--check"),
        (["--bits", "8", "--row", "a.toml", "--method", "a"], "--method"),
        (["--dims", "4", "--format", "hub"], "hub"),
        (["--components", "train.npz"], "--dims"),
        (["--dims", "4,x"], "4,x"),
        (["--page", "sizes.html"], "--dims or --bits"),
        (["--dims", "4", "--page", "sizes.pdf"], ".html"),
    ],
)
def test_options_of_one_report_are_refused_beside_sizes(folder, words, named):
    assert named in refusal("evaluate", folder / "v.npz", "-d", folder / "own.csv", *words)


def test_bits_of_a_whole_byte_are_counted():
    assert VectorSize(13, 1).bytes == math.ceil(13 / 8)
