"""Rankings instead of embeddings: three forms, the official landmark metric, and trec_eval on the
same run.
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from hbench.core.errors import SubmissionError
from hbench.datasets import manifest as manifests
from hbench.engine.ranker import Ranker
from hbench.engine.sides import Side
from hbench.engine.similarity import dot
from hbench.evaluation import evaluate
from hbench.metrics import definitions
from hbench.metrics.level_sequence import optimistic, pessimistic
from hbench.submissions import embeddings
from hbench.submissions.rankings import files as run_files
from hbench.submissions.rankings import level_sequences as run_levels
from tests.embedding_formats import FORMATS

pytestmark = pytest.mark.fast

LISTS = {"q1": ["a", "b", "c"], "q2": ["c"], "q3": []}


def landmarks(path, lists=LISTS):
    path.write_text(
        "id,images\n" + "".join(f"{query},{' '.join(items)}\n" for query, items in lists.items())
    )
    return path


def lines(lists=LISTS):
    """(query, item, rank, score) with one item per line."""
    return [
        (q, item, rank, 1 / rank)
        for q, items in lists.items()
        for rank, item in enumerate(items, start=1)
    ]


def trec(path, rows):
    path.write_text(
        "".join(f"{q} Q0 {item}\t{rank}  {score!r} system\n" for q, item, rank, score in rows)
    )
    return path


def rows_file(path, rows, value="score"):
    query, item, rank, score = zip(*rows, strict=True)
    pq.write_table(
        pa.table({"query": query, "item": item, value: score if value == "score" else rank}), path
    )
    return path


def as_lists(ranking):
    bounds = zip(ranking.offsets[:-1], ranking.offsets[1:], strict=True)
    lists = [ranking.names[ranking.items[start:end]].tolist() for start, end in bounds]
    return dict(zip(ranking.queries, lists, strict=True))


def test_a_landmark_submission_is_read_as_it_is_ranked(tmp_path):
    found = run_files.read(landmarks(tmp_path / "submission.csv"))
    assert as_lists(found) == LISTS
    assert (found.scores, found.depth, found.source) == (None, 3, "submission.csv")


def test_neither_odd_ids_nor_blanks_quotes_and_a_byte_order_mark_matter(tmp_path):
    lists = {"NA": ["nan", "null"], "None": ["NULL", "#N/A", "-1", "1e5"], "nan": []}
    assert as_lists(run_files.read(landmarks(tmp_path / "submission.csv", lists))) == lists
    (tmp_path / "s.csv").write_bytes('\ufeff"id","images"\r\nq1,"a  b "\r\nq2,\r\n'.encode())
    assert as_lists(run_files.read(tmp_path / "s.csv")) == {"q1": ["a", "b"], "q2": []}


@pytest.mark.parametrize("order", [lambda rows: rows, lambda rows: rows[::-1]])
def test_runs_and_rows_are_ranked_by_score_whatever_the_order_of_the_lines(tmp_path, order):
    rows = order(lines())
    expected = {query: items for query, items in LISTS.items() if items}
    for path in (
        trec(tmp_path / "run.txt", rows),
        rows_file(tmp_path / "score.parquet", rows),
        rows_file(tmp_path / "rank.parquet", rows, "rank"),
    ):
        found = run_files.read(path)
        assert dict(sorted(as_lists(found).items())) == expected
        assert (np.diff(found.scores[: int(found.offsets[1])]) <= 0).all()


def test_the_rank_column_of_a_run_says_nothing_and_equal_scores_lie_in_the_order_of_names(tmp_path):
    rows = [("q", "a", 1, 0.1), ("q", "b", 2, 0.9), *(("p", name, 1, 0.5) for name in "cadb")]
    assert as_lists(run_files.read(trec(tmp_path / "run", rows))) == {
        "q": ["b", "a"],
        "p": list("abcd"),
    }


def test_a_file_is_known_by_its_content(tmp_path):
    rankings = [
        landmarks(tmp_path / "x"),
        trec(tmp_path / "y.csv", lines()),
        rows_file(tmp_path / "z.parquet", lines()),
    ]
    (tmp_path / "parts").mkdir()
    rows_file(tmp_path / "parts" / "part-0.parquet", lines())
    assert {run_files.kind_of(path) for path in [*rankings, tmp_path / "parts"]} == {"ranking"}
    assert as_lists(run_files.read(tmp_path / "parts"))["q1"] == ["a", "b", "c"]


@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
def test_embedding_files_are_not_taken_for_rankings(tmp_path, write):
    path = write(tmp_path, ["a", "b"], np.ones((2, 3), np.float32))
    assert run_files.kind_of(path) == "embeddings"
    assert run_files.kind_of(tmp_path / "missing.npz") == "embeddings"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("s.csv", b"id,images\n", "is empty"),
        ("s.csv", b"id,images\nq1,a\nq1,b\n", "lists 1 query more than once"),
        ("s.csv", b"id,images\nq1,a,b\n", "cannot be read"),
        ("s.csv", b"query,images\nq1,a\n", "is not a ranking"),
        ("s.csv", b"", "is not a ranking"),
        ("s.bin", b"\xff\xfe\x00\x01", "is not a ranking"),
        ("run", b"q Q0 a 1 0.5 t\nq Q0 b 2 0.4\n", "1 line without six columns"),
        ("run", b"q Q0 a 1 0.5 t\nq Q0 b 2 0.4 t t\n", "1 line without six columns"),
        ("run", b"q Q0 a 1 0.5 t\nq Q0 b 2 0.4 t t t\n", "six columns"),
        ("run", b"q Q0 a 1 0.5 t\nq Q0 b 2 high t\n", "1 score that is no finite number"),
        (
            "run",
            b"q Q0 a 1 0.5 t\nq Q0 b 2 nan t\nq Q0 b 2 inf t\n",
            "2 scores that are no finite number",
        ),
        ("qrels", b"q 0 a 1\n", "is not a ranking"),
    ],
)
def test_files_that_are_not_rankings_are_refused(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SubmissionError) as caught:
        run_files.read(tmp_path / name)
    assert words in caught.value.problem
    assert name in caught.value.problem
    assert caught.value.exit_code == 3


def test_missing_and_broken_rankings_are_refused(tmp_path):
    path = rows_file(tmp_path / "s.parquet", lines())
    cut = path.read_bytes()[:-5]
    without_query = pa.table({"query": ["q", None], "item": ["a", "b"], "score": [1.0, 2.0]})
    of_words = pa.table({"query": ["q"], "item": ["a"], "score": ["high"]})
    refused = [
        (path.unlink, "does not exist"),
        (lambda: path.write_bytes(cut), "is not a ranking"),
        (lambda: pq.write_table(without_query, path), "without a query"),
        (lambda: pq.write_table(of_words, path), "cannot be read"),
    ]
    for make, words in refused:
        make()
        with pytest.raises(SubmissionError, match=words):
            run_files.read(path)


def apart(queries=2, gallery=8, classes=3, depth=2, seed=0):
    """A manifest whose queries are not in the gallery."""
    rng = np.random.default_rng(seed)
    names = [*(f"q{i}" for i in range(queries)), *(f"g{i}" for i in range(gallery))]
    fine = rng.integers(0, classes, len(names))
    rows = [[str(label // 2 ** (depth - 1 - level)) for level in range(depth)] for label in fine]
    asks = np.arange(len(names)) < queries
    return manifests.from_names(
        names, rows, levels=[f"l{level}" for level in range(depth)], query=asks, gallery=~asks
    )


def ranking_of(lists, scores=None):
    items = np.array([item for listed in lists.values() for item in listed], dtype=str)
    names, codes = np.unique(items, return_inverse=True)
    offsets = np.cumsum([0, *map(len, lists.values())])
    queries = np.array(list(lists), dtype=object)
    return run_files.Ranking(queries, names.astype(object), offsets, codes, scores, "0" * 64, "run")


def official_landmark_map(lists, truth, cut=100):
    """Google Landmarks' mAP@100 as its rules read: a repeated prediction keeps its place and is
    never correct.
    """
    total = 0.0
    for query, correct in truth.items():
        hits, precision, seen = 0, 0.0, set()
        for place, item in enumerate(lists.get(query, [])[:cut], start=1):
            if item not in seen and item in correct:
                hits += 1
                precision += hits / place
            seen.add(item)
        total += precision / min(len(correct), cut)
    return total / len(truth)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_mean_average_precision_is_the_official_one_of_google_landmarks(data):
    test = apart(queries=4, gallery=12, seed=data.draw(st.integers(0, 50)))
    items = st.sampled_from([*test.items.tolist(), "elsewhere"])
    lists = st.lists(items, max_size=15)
    listed = data.draw(
        st.dictionaries(st.sampled_from(["q0", "q1", "q2", "q3"]), lists, min_size=1)
    )
    listed = {query: [item for item in found if item != query] for query, found in listed.items()}
    cut = data.draw(st.sampled_from([3, 100]))
    fine = test.labels[:, -1]
    gallery = list(zip(test.items[4:], fine[4:], strict=True))
    truth = {
        test.items[row]: {item for item, label in gallery if label == fine[row]} for row in range(4)
    }
    with tempfile.TemporaryDirectory() as folder:
        submitted = run_files.read(landmarks(Path(folder) / "submission.csv", listed))
    sequences = run_levels.levels_of(submitted, test)
    values = [definitions.map_at_k(sequence, level=2, cut=cut) for sequence in sequences]
    answered = {query: correct for query, correct in truth.items() if correct}
    assert np.isnan(values).sum() == len(truth) - len(answered)
    if answered:
        assert np.nanmean(values) == pytest.approx(
            official_landmark_map(listed, answered, cut), abs=1e-12
        )


def test_trec_eval_agrees_on_the_same_run(tmp_path):
    test = apart(queries=6, gallery=60, classes=6, seed=3)
    rng = np.random.default_rng(4)
    chosen = [(q, g) for q in test.items[:6] for g in rng.choice(test.items[6:], 40, replace=False)]
    rows = [(q, g, 0, float(rng.random())) for q, g in chosen]
    run = {
        query: {item: score for own, item, _, score in rows if own == query}
        for query in test.items[:6]
    }
    fine = dict(zip(test.items, test.labels[:, 1], strict=True))
    qrel = {q: {g: int(fine[q] == fine[g]) for g in test.items[6:]} for q in run}
    theirs = pytrec_eval.RelevanceEvaluator(qrel, {"P.5,10", "success.1,5", "recall.20"}).evaluate(
        run
    )
    sequences = run_levels.levels_of(run_files.read(trec(tmp_path / "run", rows)), test)
    for query, sequence in zip(test.items, sequences, strict=False):
        assert definitions.p_at_k(sequence, level=2, cut=5) == pytest.approx(theirs[query]["P_5"])
        assert definitions.p_at_k(sequence, level=2, cut=10) == pytest.approx(theirs[query]["P_10"])
        assert definitions.r_at_k(sequence, level=2, cut=1) == theirs[query]["success_1"]
        assert definitions.r_at_k(sequence, level=2, cut=5) == theirs[query]["success_5"]
        recall = definitions.tr_at_k(sequence, level=2, cut=20, norm=lambda cut, total: total)
        assert recall == pytest.approx(theirs[query]["recall_20"])


@pytest.mark.parametrize("ties", [pessimistic, optimistic])
@pytest.mark.parametrize("keeps_last", [True, False])
def test_a_full_run_gives_the_level_sequences_of_the_vectors(tmp_path, ties, keeps_last):
    rng = np.random.default_rng(5)
    test = apart(queries=10, gallery=30, classes=5, depth=3)
    if keeps_last:
        everyone = np.ones(40, bool)
        test = manifests.Manifest(test.items, test.labels, test.tree, everyone, everyone)
    # whole numbers: exact scores, many of them equal
    vectors = rng.integers(-1, 2, (40, 3)).astype(np.float32)
    asked, ranked = np.flatnonzero(test.query), np.flatnonzero(test.gallery)
    rows = [
        (test.items[q], test.items[g], 0, float(vectors[q] @ vectors[g]))
        for q in asked
        for g in ranked
    ]
    run = run_files.read(trec(tmp_path / "run", rows))
    found = run_levels.levels_of(run, test, ties=ties)
    own = None if keeps_last else Side(vectors[ranked], test.labels[ranked])
    ranker = Ranker(Side(vectors[asked], test.labels[asked]), own, similarity=dot, tie_key=ties)
    for query, expected in zip(ranker.rows(0), ranker.block(0), strict=True):
        sequence = found[query]
        assert sequence.ranks.tolist() == expected.ranks.tolist()
        assert sequence.levels.tolist() == expected.levels.tolist()
        assert sequence.counts.tolist() == expected.counts.tolist()
        assert sequence.tied == expected.tied
    assert run_levels.is_full(run, test)


@pytest.mark.parametrize("protocol", ["paper", "official"])
@pytest.mark.parametrize("asked", [80, 20])
def test_a_full_run_is_scored_like_the_embeddings_it_came_from(tmp_path, asked, protocol):
    rng = np.random.default_rng(6)
    fine, query = rng.integers(0, 12, 80), np.arange(80) < asked
    test = manifests.from_names(
        [f"i{row}" for row in range(80)],
        [[str(label // 4), str(label)] for label in fine],
        levels=["coarse", "fine"],
        query=query,
        gallery=query if asked == 80 else ~query,
    )
    test.write(tmp_path / "test.parquet")
    vectors = rng.standard_normal((80, 6))
    embeddings.write(tmp_path / "emb.npz", list(test.items), vectors)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs = np.argwhere(~np.eye(80, dtype=bool) & test.query[:, None] & test.gallery)
    rows = [(test.items[q], test.items[g], 0, float(unit[q] @ unit[g])) for q, g in pairs]
    run = rows_file(tmp_path / "run.parquet", rows)
    by_vectors, by_ranking = (
        evaluate.evaluate(file, tmp_path / "test.parquet", protocol=protocol)
        for file in (tmp_path / "emb.npz", run)
    )
    assert by_ranking.scores == pytest.approx(by_vectors.scores, abs=1e-12)
    assert {"H-AP", "ASI", "NDCG", "AP", "mAP@R/coarse"} <= set(by_ranking.scores)


def photos(**options):
    return manifests.from_names(
        list("abcde"), [["x"], ["y"], ["x"], ["x"], ["y"]], levels=["class"], **options
    )


def test_the_query_itself_and_its_ignore_group_are_left_out_and_the_rest_moves_up():
    listed = ranking_of({"a": ["b", "a", "c", "d", "e"]})
    (first, *_) = run_levels.levels_of(listed, photos())
    assert (first.ranks.tolist(), first.counts.tolist()) == ([2, 3], [2, 2])
    grouped = photos()
    grouped = manifests.Manifest(
        grouped.items,
        grouped.labels,
        grouped.tree,
        grouped.query,
        grouped.gallery,
        np.array([7, 7, 7, -1, -1]),
    )
    (first, *_) = run_levels.levels_of(listed, grouped)
    assert (first.ranks.tolist(), first.counts.tolist()) == ([1], [1, 1])


def test_repeats_and_strangers_hold_their_rank_and_count_for_nothing():
    gallery = np.array([True, True, True, False, True])
    (first, *_) = run_levels.levels_of(
        ranking_of({"a": ["stranger", "d", "b", "b", "c", "c"]}), photos(gallery=gallery)
    )
    assert (first.ranks.tolist(), first.counts.tolist()) == ([5], [2, 1])


@pytest.mark.parametrize("uncounted", [["a"], ["-1", "-1"]], ids=["query", "padding"])
def test_the_depth_counts_neither_the_query_nor_padding(uncounted):
    assert ranking_of({"b": ["c"], "a": ["b", "c", *uncounted]}).depth == 2


def test_the_depth_counts_a_repeat_which_holds_a_rank():
    assert ranking_of({"a": ["b", "c", "c"]}).depth == 3


def test_metrics_of_runs_that_list_their_queries_are_cut_where_the_lists_end(tmp_path):
    lists = {query: [query, *(item for item in "abcde" if item != query)][:3] for query in "abcde"}
    photos().write(tmp_path / "test.parquet")
    run = landmarks(tmp_path / "run.csv", lists)
    assert "mAP@2" in list(evaluate.evaluate(run, tmp_path / "test.parquet").scores)


def test_a_query_without_a_list_scores_0_and_one_cut_short_counts_what_it_lacks():
    short = ranking_of({"a": ["c"], "b": []})
    sequences = run_levels.levels_of(short, photos())
    assert [len(sequence.ranks) for sequence in sequences] == [1, 0, 0, 0, 0]
    assert [definitions.map_at_k(sequence, level=1, cut=100) for sequence in sequences] == [
        1 / 2,
        0,
        0,
        0,
        0,
    ]
    assert [definitions.r_at_k(sequence, level=1, cut=1) for sequence in sequences] == [
        1,
        0,
        0,
        0,
        0,
    ]
    assert not run_levels.is_full(short, photos())
    assert not run_levels.is_full(ranking_of({"a": ["c", "b", "e"]}), photos())


def test_scores_decide_and_ties_go_against_the_positives():
    scores = np.array([0.9, 0.5, 0.5, 0.1])
    (first, *_) = run_levels.levels_of(ranking_of({"a": ["e", "c", "b", "d"]}, scores), photos())
    assert (first.ranks.tolist(), first.tied) == ([3, 4], True)
    (first, *_) = run_levels.levels_of(
        ranking_of({"a": ["e", "c", "b", "d"]}, scores), photos(), ties=optimistic
    )
    assert (first.ranks.tolist(), first.tied) == ([2, 4], True)


def told(found):
    return {problem.kind: (problem.count, problem.examples, problem.fatal) for problem in found}


def test_every_problem_of_a_ranking_is_reported_at_once_and_a_sound_one_has_none():
    full = {query: [item for item in "abcde" if item != query] for query in "abcde"}
    assert run_levels.problems(ranking_of(full), photos()) == []
    gallery = np.array([True, True, True, False, True])
    lists = {"a": ["b", "b", "a", "stranger", "d"], "z": ["c"], "b": ["train.png"]}
    found = run_levels.problems(ranking_of(lists), photos(gallery=gallery), known=["train.png"])
    assert told(found) == {
        "queries without a list": (3, ("c", "d", "e"), False),
        "unknown queries": (1, ("z",), False),
        "unknown items": (1, ("stranger",), True),
        "items that are not in the gallery": (2, ("d", "train.png"), False),
        "items listed again for the same query": (1, ("a",), False),
        "queries in their own list": (1, ("a",), False),
    }


def test_misspelt_queries_and_items_are_explained():
    full = {f"{query}.png": [f"img/{item}" for item in "abcde"] for query in "abcde"}
    found = {problem.kind: problem for problem in run_levels.problems(ranking_of(full), photos())}
    assert found["unknown queries"].fatal
    assert found["unknown queries"].fix.startswith("ids have an extra ending '.png'")
    assert found["unknown items"].fix.startswith("ids have an extra beginning 'img/'")


def test_an_unknown_item_is_found_in_the_list_of_its_query():
    (problem,) = run_levels.problems(
        ranking_of({query: ["c" if query != "c" else "nope.jpg"] for query in "abcde"}), photos()
    )[:1]
    assert "nope.jpg is in the list of c" in problem.fix


def test_json_without_any_list_is_refused_as_a_ranking(tmp_path):
    (tmp_path / "empty.json").write_text("{}")
    photos().write(tmp_path / "test.parquet")
    with pytest.raises(SubmissionError, match="holds no ranking"):
        evaluate.evaluate(tmp_path / "empty.json", tmp_path / "test.parquet")


def test_a_ranking_of_other_queries_is_a_fault():
    found = told(run_levels.problems(ranking_of({"other": ["a"]}), photos()))
    assert found["unknown queries"] == (1, ("other",), True)
