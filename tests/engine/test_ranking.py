"""Ranking against sorted lists, and its promises: self by identity, ties by policy, the same bits
in any order.
"""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hbench.core.compiled import MIN_COMPILED
from hbench.core.errors import SubmissionError
from hbench.engine import score_blocks
from hbench.engine.executors.kept_blocks import kept_in
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Job
from hbench.engine.ranker import Ranker
from hbench.engine.scan import scan
from hbench.engine.settings import Settings
from hbench.engine.sides import Side, duplicates
from hbench.engine.similarity import Rows, SelectedRows, cosine, dot, l2
from hbench.engine.similarity.rows import move_rows
from hbench.evaluation.arrays import score
from hbench.evaluation.measurement import measure, scorers_of
from hbench.metrics.level_sequence import canonical_order, optimistic, pessimistic
from hbench.tree import LabelTree
from tests import oracle

pytestmark = pytest.mark.fast


def random_problem(seed, items=40, depth=3, spread=3, dim=3):
    """Nested labels (N, L) and small-integer vectors, so that ties and duplicates abound and every
    product is exact.
    """
    rng = np.random.default_rng(seed)
    columns = rng.integers(spread, size=(items, depth))
    labels = np.stack(
        [columns[:, : level + 1] @ spread ** np.arange(level + 1) for level in range(depth)], axis=1
    )
    vectors = rng.integers(-2, 3, size=(items, dim)).astype(np.float32)
    return vectors, LabelTree.from_labels(labels)[1]


def sequences(ranker):
    found = [None] * len(ranker.queries)
    for block in range(ranker.blocks):
        for query, sequence in zip(ranker.rows(block), ranker.block(block), strict=True):
            found[query] = sequence
    return found


def ranked_levels(sequence):
    levels = np.zeros(sequence.counts.sum(), np.uint8)
    levels[sequence.ranks - 1] = sequence.levels
    return levels.tolist()


@given(st.integers(0, 10**6), st.integers(1, 8), st.booleans())
def test_a_query_sees_the_others_sorted_by_score_then_by_the_ties_policy(seed, depth, worst):
    vectors, labels = random_problem(seed, items=24, depth=depth)
    policy = pessimistic if worst else optimistic
    found = sequences(Ranker(Side(vectors, labels), similarity=dot, tie_key=policy))
    for query, sequence in enumerate(found):
        others = [item for item in range(len(vectors)) if item != query]
        levels = [oracle.level_of(labels[query], labels[item]) for item in others]
        scores = [float(vectors[query] @ vectors[item]) for item in others]
        assert ranked_levels(sequence) == oracle.rank_levels(scores, levels, pessimistic=worst)
        assert sequence.tied == (
            oracle.rank_levels(scores, levels, pessimistic=True)
            != oracle.rank_levels(scores, levels, pessimistic=False)
        )


@given(st.integers(0, 10**6), st.sampled_from(["dot", "l2", "cosine"]))
def test_every_similarity_ranks_a_separate_gallery_as_its_definition(seed, name):
    vectors, labels = random_problem(seed, items=50)
    # no ties, nor scores that float32 may take for equal: definitions round differently
    vectors += np.random.default_rng(seed).normal(size=vectors.shape).astype(np.float32)
    queries, gallery = Side(vectors[:10], labels[:10]), Side(vectors[10:], labels[10:])
    found = sequences(
        Ranker(queries, gallery, similarity={"dot": dot, "l2": l2, "cosine": cosine}[name])
    )
    for query, sequence in enumerate(found):
        q, g = vectors[query].astype(float), vectors[10:].astype(float)
        scores = {
            "dot": g @ q,
            "l2": -((g - q) ** 2).sum(1),
            "cosine": g @ q / np.sqrt((g**2).sum(1)),
        }[name]
        assume(np.diff(np.sort(scores)).min() > 1e-5 * np.abs(scores).max())
        levels = [oracle.level_of(labels[query], path) for path in labels[10:]]
        assert ranked_levels(sequence) == oracle.rank_levels(scores.tolist(), levels)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scores_are_the_same_bits_in_any_item_order_and_for_any_number_of_threads(dtype):
    rng = np.random.default_rng(5)
    labels = np.stack([rng.integers(3, size=700), rng.integers(40, size=700)], axis=1)
    labels[:, 1] += 40 * labels[:, 0]
    vectors = rng.normal(size=(700, 24)).astype(dtype)
    vectors[::7] = vectors[::7][0]
    order = rng.permutation(700)
    first = score(vectors, labels, threads=1)
    second = score(vectors[order], labels[order], threads=3)
    assert first.document.scores == second.document.scores
    for name in first.values:
        assert np.array_equal(first.values[name][order], second.values[name], equal_nan=True), name


@pytest.mark.parametrize("name", ["cosine", "dot", "l2"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_vectors_that_may_be_moved_have_the_scores_of_those_that_stay(name, dtype):
    rng = np.random.default_rng(0)
    labels = LabelTree.from_labels(rng.integers(5, size=(300, 1)) // np.array([3, 1]))[1]
    file, rows = rng.normal(size=(330, 7)).astype(dtype), rng.permutation(330)[:300]
    similarity, given = {"cosine": cosine, "dot": dot, "l2": l2}[name], file.copy()
    stay = Ranker(Side(SelectedRows(file, rows), labels), similarity=similarity)
    move = Ranker(Side(SelectedRows(given, rows, movable=True), labels), similarity=similarity)
    moved = name != "l2" and dtype != np.float16
    assert stay.digest == move.digest
    assert np.shares_memory(given, move.scores.kept) == moved
    assert np.array_equal(given, file) != moved
    assert not np.shares_memory(file, stay.scores.kept)
    for block in range(stay.blocks):
        assert np.array_equal(stay.scores.whole(block), move.scores.whole(block))


def test_vectors_of_a_mapped_file_and_rows_given_twice_are_not_moved(tmp_path):
    np.save(tmp_path / "v.npy", np.eye(3))
    for mode in ("r", "c"):
        assert not SelectedRows(
            np.load(tmp_path / "v.npy", mmap_mode=mode), np.arange(3), movable=True
        ).movable
    assert not SelectedRows(np.eye(3), np.array([0, 1, 1]), movable=True).movable
    assert not SelectedRows(np.eye(3)[:, ::-1], np.arange(3), movable=True).movable
    assert SelectedRows(np.eye(3), np.array([2, 0]), movable=True).movable


@given(st.permutations(range(9)), st.integers(0, 9))
def test_rows_that_are_moved_keep_their_positions(permuted, taken):
    vectors, order = np.arange(360.0).reshape(9, 40), np.array(permuted)
    moved = vectors.copy()
    move_rows(moved, order)  # as large arrays are moved
    assert np.array_equal(moved, vectors[order])
    selected = SelectedRows(vectors, order[:taken], movable=True)
    before, wanted = selected[:], np.argsort(order[:taken] % 4, kind="stable")
    assert np.array_equal(selected.move(wanted), before[wanted])
    assert np.array_equal(selected[:], before)


def test_another_block_size_moves_a_metric_by_rounding_noise_only():
    rng = np.random.default_rng(6)
    vectors, labels = rng.normal(size=(900, 64)).astype(np.float32), rng.integers(30, size=(900, 1))
    sizes = [
        Ranker(Side(vectors, labels), memory=memory).scores.block_size for memory in (None, 1 << 20)
    ]
    assert sizes[0] > 2 * sizes[1]
    whole, narrow = (score(vectors, labels, memory=memory) for memory in (None, 1 << 20))
    assert np.abs(narrow.values["H-AP"] - whole.values["H-AP"]).max() < 5e-6


def test_equal_vectors_share_one_score_and_negative_zero_is_zero():
    vectors = np.array([[1, 0.0], [2, 1], [1, -0.0], [2, 1]], np.float32)
    keys = scan(vectors).keys
    assert keys[0] == keys[2]
    order = canonical_order(np.zeros((4, 1), np.int32), keys)
    copies, originals = duplicates(vectors, order, keys)
    assert sorted(
        sorted(order[pair].tolist()) for pair in np.stack([copies, originals], axis=1)
    ) == [[0, 2], [1, 3]]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_scan_of_selected_rows_is_that_of_the_rows_whether_the_whole_was_read_before_or_not(
    dtype,
):
    vectors = np.random.default_rng(0).normal(size=(1500, 7)).astype(dtype)
    vectors[3], vectors[4, 0] = 0, np.inf
    rows = np.random.default_rng(1).permutation(1500)[:1100]
    before, later = (
        SelectedRows(vectors, rows, whole=scan(vectors)).scan,
        SelectedRows(vectors, rows).scan,
    )
    assert before.squares.tobytes() == later.squares.tobytes()
    assert np.array_equal(before.keys, later.keys)
    assert before.squares == pytest.approx(
        (vectors[rows].astype(float) ** 2).sum(axis=1), rel=1e-12
    )


def test_norms_that_are_all_equal_leave_exact_products_exact():
    # 3-4-5 vectors: every norm is 5, so cosines of small integers keep their exact ties
    vectors = np.array([[3, 4], [4, 3], [5, 0], [0, 5], [-3, 4]], np.float32)
    labels = np.arange(5)[:, None] % 2
    by_cosine = sequences(Ranker(Side(vectors, labels.astype(np.int32))))
    by_dot = sequences(Ranker(Side(vectors, labels.astype(np.int32)), similarity=dot))
    for a, b in zip(by_cosine, by_dot, strict=True):
        assert ranked_levels(a) == ranked_levels(b)


def test_the_float64_audit_mode_ranks_alike_where_float32_is_exact():
    vectors, labels = random_problem(3)
    for policy in (pessimistic, optimistic):
        single = sequences(Ranker(Side(vectors, labels), similarity=dot, tie_key=policy))
        double = sequences(
            Ranker(Side(vectors.astype(np.float64), labels), similarity=dot, tie_key=policy)
        )
        for a, b in zip(single, double, strict=True):
            assert ranked_levels(a) == ranked_levels(b)
            assert a.tied == b.tied


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_have_the_same_bits_by_numpy_and_by_compiled_code(dtype):
    """Compiled code pays for all of these values, and not for a part of them."""
    rng = np.random.default_rng(3)
    many, few, dim = MIN_COMPILED // 64 + 1, 700, 64
    vectors = rng.normal(size=(many, dim)).astype(dtype)
    scale = rng.normal(size=many).astype(np.float64 if dtype is np.float64 else np.float32)
    order = np.concatenate([rng.permutation(few), np.arange(few, many)])
    by_numpy, by_compiled = (
        Rows(vectors[:few], scale[:few]).read(order[:few]),
        Rows(vectors, scale).read(order)[:few],
    )
    assert by_numpy.tobytes() == by_compiled.tobytes()


def rows_that_are_alike(kind, dtype):
    """Distinct rows that differ as little as embeddings do: in signs, in the order of their
    columns, in the last bits.
    """
    rng = np.random.default_rng(0)
    signs = np.unique(rng.choice([-1, 1], size=(3000, 24)), axis=0)
    rows = {
        "signs": signs,
        "two flipped signs": np.where(np.arange(24)[None] // 2 == np.arange(12)[:, None], -1, 1),
        "permuted columns": np.unique(np.stack([rng.permutation(8) for _ in range(2000)]), axis=0),
        "halves": rng.normal(size=(3000, 8)).astype(np.float16),
        "powers of two": 2.0 ** np.unique(rng.integers(-8, 8, size=(3000, 6)), axis=0),
    }[kind]
    return rows.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "kind", ["signs", "two flipped signs", "permuted columns", "halves", "powers of two"]
)
def test_rows_that_differ_have_other_keys_and_another_digest(kind, dtype):
    rows = rows_that_are_alike(kind, dtype)
    assert len(set(scan(rows).keys.tolist())) == len(np.unique(rows, axis=0))
    labels = np.zeros((len(rows), 1), np.int32)
    digests = {
        Ranker(Side(each, labels)).digest
        for each in (rows, rows[::-1], np.concatenate([rows[1:], -rows[:1]]))
    }
    assert len(digests) == 2  # the order of the rows alone is nothing


def test_a_resumed_evaluation_of_flipped_signs_is_its_own(tmp_path):
    rng = np.random.default_rng(0)
    labels = (np.arange(200) % 20)[:, None] // np.array([5, 1])
    first = rng.choice([-1.0, 1.0], size=(200, 16))
    second = first.copy()
    second[:, :2] *= -1
    second[::2, 2:4] *= -1

    def values(vectors, execute):
        job = Job(
            Ranker(Side(vectors, labels)),
            scorers_of(Settings().resolve(["c", "f"]), labels, keeps_last=True),
        )
        return measure(job, execute=execute).values

    kept = kept_in(tmp_path, on_threads)
    for vectors in (first, second, first):
        assert np.array_equal(values(vectors, kept), values(vectors, on_threads), equal_nan=True)
    assert len(list(tmp_path.iterdir())) == 2


def test_every_finite_float16_is_converted_exactly():
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)].reshape(-1, 32)
    rows = np.random.default_rng(0).permutation(len(halves))
    found = Rows(halves).read(rows)
    assert (
        found.view(np.uint32).tolist() == halves.astype(np.float32)[rows].view(np.uint32).tolist()
    )


def test_more_memory_than_the_default_makes_blocks_larger_and_the_default_itself_does_not():
    items = 300_000
    vectors, labels, default = (
        np.ones((items, 1), np.float32),
        np.zeros((items, 1), np.int64),
        score_blocks.SCORES,
    )
    one = Side(vectors[:1_000], labels[:1_000])
    sizes = {
        memory: Ranker(one, Side(vectors, labels), memory=memory).scores.block_size
        for memory in (None, default + (31 << 20), 8 * default)
    }
    assert sizes[None] == score_blocks.block_size(4 * items, default, 1_000)
    assert sizes[default + (31 << 20)] == sizes[None] < sizes[8 * default]


@given(st.integers(1, 10**5), st.integers(1, 10**4), st.integers(0, 10**8))
def test_blocks_are_few_and_the_last_one_is_hardly_padded(queries, row, spare):
    most = (row + spare) // row
    size = score_blocks.block_size(row, row + spare, queries)
    assert 1 <= size <= min(most, score_blocks.BLOCK)
    if most >= score_blocks.BLOCK_STEP:
        sizes = range(
            score_blocks.BLOCK_STEP, min(most, score_blocks.BLOCK) + 1, score_blocks.BLOCK_STEP
        )
        cost = {each: -(-queries // each) * (each + score_blocks.PACKING) for each in sizes}
        assert cost[size] == min(cost.values())


@pytest.mark.parametrize("queries", [3, 500])
def test_products_that_overflow_are_refused(queries):
    vectors = np.full((queries, 4), 1e19, np.float32)
    vectors[::2] /= 2
    labels = np.arange(queries)[:, None] // np.array([2])
    with pytest.raises(SubmissionError, match=r"overflow[\s\S]*queries of up to 1\.0e\+19"):
        score(vectors, labels, similarity="dot")
    # of which only the queries' norms are left
    assert score(vectors, labels, similarity="cosine").document.scores
