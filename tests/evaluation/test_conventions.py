"""Explanations of printed values: values that loops make by one convention each are all named, and
no convention is named that loops do not give."""

import json
import math

import numpy as np
import pytest

import hbench
from hbench.core.errors import UsageError
from hbench.engine.similarity.unit_vectors import unit_vectors
from hbench.evaluation.evaluate import report_on
from hbench.evaluation.submission.embedding import EmbeddingSubmission
from hbench.evaluation.variants.conventions import Convention, PrintedValue, explained, tried
from hbench.metrics.names import MetricName
from hbench.submissions import embeddings
from tests.command_line import call, refusal

pytestmark = pytest.mark.fast

ITEMS = 40
IDS = [f"i{n:02}" for n in range(ITEMS)]
ORDERS = [n % 10 // 5 for n in range(ITEMS)]
SPECIES = [n % 10 for n in range(ITEMS)]
SEEDS = range(4)
HIT = "the query is kept in its own list as a hit"
MISS = "the query is kept in its own list as a miss"
DROPPED = "the first result beside the query is dropped too"
CENTRED = "cosine of vectors from their mean"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("conventions") / "own.csv"
    rows = [f"{i},o{o},s{s}\n" for i, o, s in zip(IDS, ORDERS, SPECIES, strict=True)]
    path.write_text("item,order,species\n" + "".join(rows))
    return hbench.load(path)


def vectors_of(seed):
    """Vectors around the species' centres, of unlike lengths, three of them twice."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(10, 5))
    vectors = centres[SPECIES] + 1.2 * random.normal(size=(ITEMS, 5)) + 0.7
    vectors *= random.uniform(0.3, 3, size=(ITEMS, 1))
    vectors[[5, 6, 7]] = vectors[[0, 11, 22]]
    return vectors.astype(np.float32)


def cosine(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True)) / (math.hypot(*x) * math.hypot(*y))


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def nearness(x, y):
    return -math.dist(x, y)


def lists(vectors, similarity=cosine, *, level=SPECIES, ties=1, own=None):
    """For each query whether each result is right, best first; of equal ones the wrong come first,
    or with ties = −1 the right. `own`: whether the query counts as right in its own list."""
    found = []
    for query, x in enumerate(vectors):
        scored = []
        for item, y in enumerate(vectors):
            if item != query:
                is_right = level[item] == level[query]
                # equal in the last digits of float32 is equal
                scored.append((-round(similarity(x, y), 6), ties * is_right, is_right))
        results = [is_right for *_, is_right in sorted(scored)]
        found.append(results if own is None else [own, *results])
    return found


def recall(found):
    return [float(results[0]) for results in found]


def average_precision(found):
    values = []
    for results in found:
        ranks = [rank for rank, is_right in enumerate(results, 1) if is_right]
        values.append(sum(n / rank for n, rank in enumerate(ranks, 1)) / len(ranks))
    return values


def mean(values):
    return sum(values) / len(values)


def over_classes(values):
    by_class = {}
    for value, name in zip(values, SPECIES, strict=True):
        by_class.setdefault(name, []).append(value)
    return mean([mean(own) for own in by_class.values()])


def by_loops(vectors, formula):
    """The value of every convention that is tried by this test."""
    centred = [[a - m for a, m in zip(x, vectors.mean(0), strict=True)] for x in vectors]
    plain = lists(vectors)
    return {
        "": mean(formula(plain)),
        "similarity dot": mean(formula(lists(vectors, dot))),
        "similarity l2": mean(formula(lists(vectors, nearness))),
        "ties optimistic": mean(formula(lists(vectors, ties=-1))),
        "mean over the classes of level species": over_classes(formula(plain)),
        HIT: mean(formula(lists(vectors, own=True))),
        MISS: mean(formula(lists(vectors, own=False))),
        DROPPED: mean(formula([results[1:] for results in plain])),
        CENTRED: mean(formula(lists(centred))),
        "of orders": mean(formula(lists(vectors, level=ORDERS))),
    }


FORMULAS = {"R@1": recall, "AP": average_precision}


@pytest.mark.parametrize("metric", FORMULAS)
@pytest.mark.parametrize("seed", SEEDS)
def test_each_convention_is_named_by_its_value_and_none_by_another(data, seed, metric):
    vectors = vectors_of(seed)
    given = EmbeddingSubmission(embeddings.joined(np.array(IDS, object), vectors))
    found = list(tried(given, data, MetricName.parse(metric).at(data.levels), report_on))
    loops = by_loops(vectors, FORMULAS[metric])
    loops[f"{metric}/order by the name of {metric}"] = loops.pop("of orders")
    values = {", ".join(each.changes): each.value for each in found}
    for words, value in loops.items():
        assert values[words] == pytest.approx(value, abs=1e-5), words
        printed = PrintedValue.parse(f"{100 * value:.2f}")
        named = explained(printed, found, metric).fitting
        # where fewer changes give the same value they are named instead
        made_by = set(filter(None, words.split(", ")))
        assert any(set(each.changes) <= made_by for each in named), words
        for each in named:
            assert abs(100 * each.value - printed.value) <= 0.005 + 1e-9
            if (own := ", ".join(each.changes)) in loops:
                assert f"{100 * loops[own]:.2f}" == f"{100 * value:.2f}"


def by_words(data, ids, vectors, metric):
    given = EmbeddingSubmission(embeddings.joined(np.array(ids, object), vectors))
    found = tried(given, data, MetricName.parse(metric).at(data.levels), report_on)
    return {each.words: each.value for each in found}


@pytest.mark.parametrize("own", [None, True])
def test_recall_may_be_the_share_of_all_right_results(data, own):
    """With the query itself as a right result, what mteb's recall@1 was: one over the class."""
    vectors = vectors_of(0)
    shares = [
        sum(results[:2]) / sum(results) for results in lists(vectors, own=own)
    ]  # of an item's class
    words = "TR@2 by the name of R@2" + (f", {HIT}" if own else "")
    assert by_words(data, IDS, vectors, "R@2")[words] == pytest.approx(mean(shares))


# Numbers in print that disagree with others, and by which convention each is likely to have come
# about: leaderboards/README.md and docs/which-sop.md tell of them.
PUBLISHED = {
    "mteb, MRR@1 of .9994 whatever the model": ("MRR", {}, HIT),
    "mteb, recall@1 of .188 whatever the model": ("R@1", {}, f"TR@1 by the name of R@1, {HIT}"),
    "mteb, hit_rate_at_1 near 1 before its correction": ("R@1", {}, HIT),
    "HAPPIER, H-AP on SOP by the released evaluator": (
        "H-AP", {"protocol": "official"}, "protocol official",
    ),
    "SupRank Tab. V, H-AP of HAPPIER_F on iNaturalist": (
        "H-AP", {"alpha": 3}, "the relevance has the exponent α = 3",
    ),
    "SupRank Tab. VIII, CLCD's mAP on DyML is mAP@R": (
        "AP", {"metrics": ["mAP@R"]}, "mAP@R by the name of AP",
    ),
    "SupRank, a level's R@1 among those of the finest": (
        "R@1", {"metrics": ["R@1/order"]}, "R@1/order by the name of R@1",
    ),
    "unnormalised vectors by dot product": ("R@1", {"similarity": "dot"}, "similarity dot"),
    "equal scores, the right one first": ("R@1", {"ties": "optimistic"}, "ties optimistic"),
}  # fmt: skip


@pytest.mark.parametrize("printed", PUBLISHED)
def test_a_published_disagreement_is_named(data, printed):
    metric, changed, words = PUBLISHED[printed]
    ids = np.array(IDS, object)
    vectors = vectors_of(2)
    if HIT in words:  # no option gives these: each query is nearest to itself, and right
        shares = [sum(results[:1]) / sum(results) for results in lists(vectors, own=True)]
        value = mean(shares) if "TR@1" in words else 1.0
    else:
        settings = {"metrics": [metric]} | changed
        (value,) = hbench.evaluate(
            EmbeddingSubmission(embeddings.joined(ids, vectors)).queries, data, **settings
        ).scores.values()
    found = list(
        tried(
            EmbeddingSubmission(embeddings.joined(ids, vectors)),
            data,
            MetricName.parse(metric).at(data.levels),
            report_on,
        )
    )
    named = explained(PrintedValue.parse(f"{100 * value:.2f}"), found, metric).fitting
    assert words in {each.words for each in named}


def test_a_run_of_1000_results_counts_what_it_does_not_list(tmp_path):
    number = 1040
    names = [f"i{n:04}" for n in range(number)]
    path = tmp_path / "many.csv"
    path.write_text("item,class\n" + "".join(f"{i},c{n % 4}\n" for n, i in enumerate(names)))
    vectors = np.random.default_rng(0).normal(size=(number, 3)).astype(np.float32)
    values = []
    unit = unit_vectors(vectors, np.float64)
    for query, scores in enumerate(unit @ unit.T):
        order = [item for item in np.argsort(-scores, kind="stable") if item != query]
        ranks = [r for r, item in enumerate(order[:1000], 1) if item % 4 == query % 4]
        # of 260 of a class one is the query
        values.append(sum(n / rank for n, rank in enumerate(ranks, 1)) / 259)
    found = by_words(hbench.load(path), names, vectors, "AP")
    words = "lists end after 1,000 results, and what is missing counts"
    assert found[words] == pytest.approx(mean(values), abs=1e-6)
    assert found[words] < found["as hbench evaluates it"]


def test_queries_with_a_gallery_may_have_been_ranked_among_all_or_among_themselves(tmp_path):
    path = tmp_path / "split.csv"
    rows = [
        f"{i},s{s},{'query' if n % 3 else 'gallery'}\n"
        for n, (i, s) in enumerate(zip(IDS, SPECIES, strict=True))
    ]
    path.write_text("item,species,split\n" + "".join(rows))
    vectors = vectors_of(1)
    found = by_words(hbench.load(path), IDS, vectors, "AP")
    asked = [n for n in range(ITEMS) if n % 3]
    alone = average_precision(lists(vectors[asked], level=[SPECIES[n] for n in asked]))
    words = "the queries are ranked among themselves, without the gallery"
    assert found[words] == pytest.approx(mean(alone), abs=1e-5)
    words = "all items of the test are asked, and ranked among themselves"
    assert found[words] == pytest.approx(mean(average_precision(lists(vectors))), abs=1e-5)


def test_a_value_may_be_cut_instead_of_rounded():
    found = [Convention((), "", 0.69079)]
    assert explained(PrintedValue.parse("69.0"), found, "AP") == (found, True, [])
    assert explained(PrintedValue.parse("69.1"), found, "AP") == (found, False, [])


def test_where_nothing_fits_the_nearest_three_are_shown():
    found = [Convention((str(n),), "", 0.1 * n) for n in range(6)]
    assert [each.changes for each in explained(PrintedValue.parse("33.3"), found, "AP").nearest] == [
        ("3",), ("4",), ("2",)
    ]  # fmt: skip


def test_changes_that_change_nothing_are_not_named():
    found = [Convention((), "", 0.5), Convention(("ties optimistic",), "", 0.5)]
    assert explained(PrintedValue.parse("50.0"), found, "AP").fitting == found[:1]


@pytest.mark.parametrize("text", ["", "69,0", "-1", "1e2", "nan", "69 %"])
def test_what_is_no_printed_number_is_refused(text):
    with pytest.raises(UsageError, match="no printed value"):
        PrintedValue.parse(text)


@pytest.fixture
def files(tmp_path):
    rows = [f"{i},o{o},s{s}\n" for i, o, s in zip(IDS, ORDERS, SPECIES, strict=True)]
    (tmp_path / "own.csv").write_text("item,order,species\n" + "".join(rows))
    embeddings.write(tmp_path / "v.npz", IDS, vectors_of(0))
    return tmp_path


def explain(files, metric, value, *words):
    return call(
        "explain", files / "v.npz", "-d", files / "own.csv", "-m", metric, "--value", value, *words
    ).stdout


def test_the_command_that_is_shown_gives_the_value(files):
    value = mean(average_precision(lists(vectors_of(0), dot)))
    document = json.loads(explain(files, "AP", f"{100 * value:.3f}", "--json"))
    (fitting,) = [each for each in document["fitting"] if each["convention"] == "similarity dot"]
    words = fitting["options"].split()
    report = call("evaluate", files / "v.npz", "-d", files / "own.csv", *words, "--json").stdout
    assert json.loads(report)["scores"]["AP"]["value"] == pytest.approx(value, abs=1e-5)


def test_a_fitting_convention_is_called_no_cause(files):
    plain = mean(recall(lists(vectors_of(0))))
    shown = explain(files, "R@1", f"{100 * plain:.1f}")
    assert "as hbench evaluates it" in shown
    assert "does not say that it was used" in shown


def test_bytes_that_may_be_bits_are_asked_about(files):
    np.savez(files / "b.npz", ids=np.array(IDS), embeddings=np.full((ITEMS, 2), 200, np.uint8))
    words = ("-d", files / "own.csv", "-m", "AP", "--value", "1.0")
    assert "packed bits" in refusal("explain", files / "b.npz", *words)


def test_edges_of_the_tree_are_no_percentage(files):
    nearest = explain(files, "hops@1", "9.99").splitlines()[2:]
    assert len(nearest) == 3
    assert all(0 < float(line.split("\t")[1]) <= 4 for line in nearest)


def test_rankings_have_nothing_to_try(files):
    (files / "run.txt").write_text("".join(f"{i} Q0 {j} 1 0.5 a\n" for i in IDS for j in IDS[:2]))
    words = ("-d", files / "own.csv", "-m", "AP", "--value", "1.0")
    assert "vectors" in refusal("explain", files / "run.txt", *words)
