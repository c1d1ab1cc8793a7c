"""The kernels of graphics cards, run by numba's simulator, against the ranking of the threads."""

import itertools

import numpy as np
import pytest
import torch

from hbench.core.errors import SubmissionError, UsageError
from hbench.engine.executors import gpu
from hbench.engine.executors.gpu import on_devices, together
from hbench.engine.job import Job, View
from hbench.engine.ranker import Ranker
from hbench.engine.sides import Side
from hbench.engine.similarity import dot
from hbench.engine.top_k import TopResults
from hbench.engine.values.fast_metrics import FAST
from hbench.evaluation.measurement import measure
from hbench.metrics.level_sequence import optimistic, pessimistic
from hbench.metrics.protocols import Scorer
from tests.command_line import python
from tests.engine.test_rank_positives import every_scorer, random_sides
from tests.engine.ways import MIXED, go, small_blocks

ROUNDING = 1e-12  # sums are added up in another order


def assert_alike(job, monkeypatch, blocks=None):
    """The same values, ties and levels by the kernels of cards and by those of the processor."""
    go(monkeypatch, MIXED)
    expected = measure(job, blocks=blocks)
    found = measure(job, execute=on_devices("cpu"), blocks=blocks)
    np.testing.assert_allclose(found.values, expected.values, rtol=0, atol=ROUNDING)
    for name in ("first_level", "counts", "tied"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


def scorers_of(depth, labels, every, lowest=1):
    """Some of all metrics; only sums over higher levels, whose lower positives are not listed,
    where `lowest` is one of these."""
    scorers = every_scorer(depth, labels, True)
    if lowest == 1:
        return scorers[::every]
    fast = [each for each in scorers if isinstance(each, Scorer) and each.name.base in FAST]
    return [each for each in fast if each.arguments.get("level", 1) >= lowest] or scorers


def whole_numbers(items, dim=3, seed=0):
    """Vectors whose products tie often, and have no last bits to differ in."""
    return np.random.default_rng(seed).integers(-3, 4, (items, dim)).astype(np.float32)


# by their seeds: partial labels, distractors, a gallery of its own, groups, several paths, copies
@pytest.mark.parametrize("seed", range(6))
def test_a_card_gives_the_values_of_the_threads(seed, monkeypatch):
    policy = (pessimistic, optimistic)[seed % 2]
    small_blocks(monkeypatch)
    rng = np.random.default_rng(seed)
    depth = 1 + seed % 3
    queries, gallery, own = random_sides(rng, depth)
    for side in (queries, gallery):
        if side is not None:
            side.vectors[:] = np.round(4 * side.vectors)
    ranker = Ranker(queries, gallery, self_rows=own, similarity=dot, tie_key=policy)
    scorers = every_scorer(depth, queries.labels, gallery is None)[seed % 8 :: 8]
    assert_alike(Job(ranker, scorers), monkeypatch, blocks=range(1))


@pytest.mark.parametrize("policy", [pessimistic, optimistic])
def test_metrics_of_finer_levels_list_only_those(policy, monkeypatch):
    labels = np.sort(np.random.default_rng(1).integers(9, size=(12, 1)), axis=0)
    labels = np.concatenate([labels // 3, labels], axis=1)
    labels = np.unique(labels, axis=0)[np.unique(labels, axis=0, return_inverse=True)[1].ravel()]
    ranker = Ranker(Side(whole_numbers(12), labels), similarity=dot, tie_key=policy)
    assert_alike(Job(ranker, scorers_of(2, labels, 1, lowest=2)), monkeypatch)


@pytest.mark.parametrize(
    "scores",
    [
        np.zeros(40),  # all equal
        np.concatenate([[1e6], np.random.default_rng(0).permutation(39) / 4]),  # in one bucket
        np.round(np.random.default_rng(0).normal(size=40), 1),
        np.concatenate([[-0.0, 0.0], -np.arange(38)]),
    ],
    ids=["equal", "skewed", "tied", "zeros"],
)
def test_positives_are_sorted_whatever_their_scores(scores, monkeypatch):
    labels = np.stack([np.arange(40) // 30, np.arange(40) // 10], axis=1)
    vectors = np.stack([scores, np.zeros(40)], axis=1).astype(np.float32)
    asked = Side(np.array([[1, 0], [-1, 0]], np.float32), labels[[3, 33]])
    ranker = Ranker(asked, Side(vectors, labels), similarity=dot)
    assert_alike(Job(ranker, scorers_of(2, asked.labels, 2)), monkeypatch)


def test_blocks_that_do_not_fit_the_card_at_once_are_ranked_in_turn(monkeypatch):
    monkeypatch.setattr(gpu, "ROWS_BYTES", 1)
    small_blocks(monkeypatch)
    labels = np.sort(np.random.default_rng(3).integers(5, size=(18, 1)), axis=0)
    ranker = Ranker(Side(whole_numbers(18), labels), similarity=dot)
    assert ranker.blocks > 1
    assert_alike(Job(ranker, scorers_of(1, labels, 9)), monkeypatch)


def test_a_block_has_the_same_bits_whichever_others_are_asked_for(monkeypatch):
    small_blocks(monkeypatch)
    go(monkeypatch, MIXED)
    labels = np.sort(np.random.default_rng(3).integers(5, size=(20, 1)), axis=0)
    vectors = np.random.default_rng(4).normal(size=(20, 5)).astype(np.float32)
    ranker = Ranker(Side(vectors, labels), similarity=dot)
    job = Job(ranker, scorers_of(1, labels, 9))
    execute = on_devices("cpu")
    whole, last = dict(execute(job, range(2))), dict(execute(job, [1]))
    assert np.array_equal(last[1].values, whole[1].values, equal_nan=True)


def test_other_trees_are_measured_in_the_same_pass(monkeypatch):
    labels = np.stack([np.arange(12) // 6, np.arange(12) // 3], axis=1)
    ranker = Ranker(Side(whole_numbers(12), labels), similarity=dot)
    scorers = scorers_of(2, labels, 9)
    shuffled = np.stack([labels[:, 1] % 2, labels[:, 1]], axis=1)
    job = Job(
        ranker,
        scorers,
        others=[View.of_labels(ranker, (shuffled, shuffled), scorers, pessimistic)],
    )
    go(monkeypatch, MIXED)
    expected, found = measure(job).others[0], measure(job, execute=on_devices("cpu")).others[0]
    np.testing.assert_allclose(found.values, expected.values, rtol=0, atol=ROUNDING)


def test_the_first_results_are_those_of_the_threads(monkeypatch):
    labels = np.arange(12)[:, None] // 3
    ranker = Ranker(Side(whole_numbers(12), labels), similarity=dot)
    tops = [TopResults(12, 4), TopResults(12, 4)]
    for top, execute in zip(tops, (None, on_devices("cpu")), strict=True):
        job = Job(ranker, scorers_of(1, labels, 9), top=top)
        measure(job, **({} if execute is None else {"execute": execute}))
    for name in ("items", "scores", "levels", "kept"):
        assert np.array_equal(*(getattr(top, name) for top in tops)), name


def test_several_cards_share_the_blocks():
    assert sorted(together([iter("ac"), iter("b"), iter("")])) == ["a", "b", "c"]


def test_an_error_of_one_of_several_cards_is_raised():
    def failing():
        yield 1
        raise SubmissionError("this card has failed")

    with pytest.raises(SubmissionError, match="this card"):
        list(together([failing(), iter(range(3))]))


def test_an_error_of_one_of_several_cards_stops_the_others():
    def failing():
        raise SubmissionError("this card has failed")
        yield 1

    with pytest.raises(SubmissionError, match="this card"):
        list(together([failing(), itertools.count()]))


@pytest.mark.parametrize("name", ["cuda", "cuda:7", "tpu"])
def test_a_device_that_is_not_there_is_refused(name):
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    with pytest.raises(UsageError, match=f"no device '{name}'"):
        on_devices(name)


LABELS = np.array([[0], [0], [1]])


# numpy counts for the simulator, and warns of what is no number
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("vectors", "error", "words"),
    [
        (np.random.default_rng(0).normal(size=(3, 2)), UsageError, "float32"),
        (np.array([[1e19, 0], [2e19, 0], [1, 1]], np.float32), SubmissionError, "overflow"),
        (np.array([[1e19, 1e19], [1e30, -1e30], [1, 1]], np.float32), SubmissionError, "overflow"),
    ],
)
def test_float64_and_products_that_overflow_on_a_card_are_refused(vectors, error, words):
    ranker = Ranker(Side(vectors, LABELS), similarity=dot)
    with pytest.raises(error, match=words):
        measure(Job(ranker, scorers_of(1, LABELS, 9)), execute=on_devices("cpu"))


def test_kernels_load_where_numpy_has_dropped_a_name_that_numba_asks_for():
    said = python(
        "import numpy as np\n"
        "del np.row_stack\n"
        "import hbench.engine.kernels.card.compiling\n"
        "print(np.row_stack is np.vstack)",
        NUMBA_ENABLE_CUDASIM="1",
    )
    assert said.split()[-1] == "True"
