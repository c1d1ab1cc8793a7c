"""Own rows: made from real evaluations of real files, appended, read back, scored again; the
commands that do it.
"""

import json
import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from hbench.boards import Paper, Row, rank, read_board, read_board_file
from hbench.boards import runs as leaderboard_runs
from hbench.boards.proof.verification import GivenFile, refuse_differences, verify
from hbench.boards.reported import scores_under
from hbench.boards.runs import RowDetails, add, block, empty_board, recorded, row_of, target
from hbench.core.errors import (
    ComparisonError,
    ConfigError,
    HBenchError,
    SubmissionError,
    UnknownName,
)
from hbench.engine.settings import Settings
from hbench.evaluation.arrays import score
from hbench.evaluation.evaluate import evaluate
from hbench.records.document import Score
from hbench.submissions import embeddings
from tests.command_line import call, refusal, run

pytestmark = pytest.mark.fast

LABELS = [
    ["a", "a1"],
    ["a", "a1"],
    ["a", "a2"],
    ["a", "a2"],
    ["b", "b1"],
    ["b", "b1"],
    ["b", "b2"],
    ["b", "b2"],
]
IDS = [f"i{n}" for n in range(len(LABELS))]


@pytest.fixture
def place(tmp_path, empty_home, monkeypatch):
    """A working folder with a small dataset toy.csv and its embeddings emb.npz, and an own data
    folder.
    """
    monkeypatch.chdir(tmp_path)
    lines = [
        f"{item},{genus},{species}" for item, (genus, species) in zip(IDS, LABELS, strict=True)
    ]
    (tmp_path / "toy.csv").write_text("\n".join(["item,genus,species", *lines]) + "\n")
    write(tmp_path / "emb.npz", seed=0)
    return tmp_path


def write(path, *, seed):
    embeddings.write(
        path, IDS, np.random.default_rng(seed).normal(size=(len(IDS), 4)).astype(np.float32)
    )


@pytest.fixture
def document(place):
    return report(place)


@pytest.fixture
def board(document):
    return empty_board(document)


@pytest.fixture
def with_row(document, board):
    """The board with the row of the document."""
    return board.model_copy(update={"rows": (row_of(document, board),)})


def report(place, **options):
    return evaluate(place / "emb.npz", place / "toy.csv", method="mine", **options).document


def official(document):
    return empty_board(document).model_copy(update={"protocol": "official"})


# a report becomes a row


def test_a_row_holds_every_score_in_percent(document):
    row = row_of(document, empty_board(document))
    assert set(row.scores) == set(document.scores)
    assert abs(float(row.scores["H-AP"]) - 100 * (document.scores["H-AP"].value or 0)) <= 0.0005


def test_a_row_names_the_method_and_what_is_needed_to_score_it_again(document):
    row = row_of(document, empty_board(document), RowDetails(backbone="ResNet-50"))
    assert row.run is not None
    assert document.embedding is not None
    assert (row.method, row.backbone, row.dim, row.year) == (
        "mine",
        "ResNet-50",
        4,
        int(document.date[:4]),
    )
    assert (row.run.content, row.run.file) == (document.embedding.content, "emb.npz")
    assert (row.run.dataset_digest, row.run.queries) == (document.dataset_digest, 8)
    assert row.run.signature == document.signature


def test_a_leaderboard_of_published_rows_takes_the_official_scores_and_says_so_in_the_signature(
    place,
):
    document = report(place, also_official=True)
    row = row_of(document, official(document))
    assert document.official["H-AP"].value != document.scores["H-AP"].value
    assert float(row.scores["H-AP"]) == pytest.approx(
        100 * (document.official["H-AP"].value or 0), abs=0.0005
    )
    assert row.run is not None
    assert "protocol:official" in row.run.signature
    assert "protocol:paper" not in row.run.signature
    by_protocol = report(place, protocol="official")  # is taken as it is
    assert scores_under(official(by_protocol), by_protocol) == by_protocol.scores


def test_a_report_that_a_leaderboard_cannot_take_is_refused(place, document, board):
    arrays = score(np.eye(4, dtype=np.float32), [[0, 0], [0, 0], [1, 1], [1, 1]]).document
    by_protocol = report(place, protocol="official")
    refused = [
        (document, official(document), None, "--protocol official"),
        (by_protocol, board, None, "--protocol paper"),
        (document, read_board("sop"), None, r"expected: sop@1\n  found:    toy@"),
        (document, board.model_copy(update={"version": "2"}), None, "another dataset"),
        (document.model_copy(update={"method": None}), board, None, "--method"),
        (arrays, empty_board(arrays), "mine", "of arrays, not of a file"),
    ]
    for unfit, target_board, method, words in refused:
        with pytest.raises(SubmissionError, match=words):
            row_of(unfit, target_board, RowDetails(method=method))


def test_a_metric_that_no_query_defines_is_left_out_of_the_row(document, board):
    undefined = Score(value=None, low=None, high=None, queries=8, skipped=0)
    without = document.model_copy(update={"scores": dict(document.scores) | {"ASI": undefined}})
    assert "ASI" not in row_of(without, board).scores


# rows are appended


def test_a_row_is_read_back_as_it_was_added_below_the_text_that_was_there(place, document, board):
    row, path = row_of(document, board), place / "own" / "toy.toml"
    add(row, board, path)
    assert read_board_file(path).rows == (row,)
    assert rank(read_board("own/toy.toml"), "H-AP")[0].rows[0].method == "mine"
    before = leaderboard_runs.head(board) + "\n# my remark\n\n\n"
    path.write_text(before)
    add(row, board, path)
    assert path.read_text().startswith(before.rstrip("\n"))
    assert len(read_board_file(path).rows) == 1


def test_a_duplicate_and_a_broken_file_are_refused_and_the_file_stays(place, document, board):
    path, row = place / "toy.toml", row_of(document, board)
    add(row, board, path)
    whole = path.read_text()
    renamed = row_of(document, read_board_file(path), RowDetails(method="another name"))
    broken = "dataset = 'toy'\nversion ="
    for text, more, words in (
        (whole, row, "the run of mine is there already: nothing was added"),
        (whole, renamed, "the run of another name is there already, as mine"),
        (broken, row, "not TOML"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=words):
            add(more, board, path)
        assert path.read_text() == text
        assert [file.name for file in place.iterdir() if "toy.toml" in file.name] == ["toy.toml"]


def test_the_block_of_a_row_survives_any_text():
    name = 'a "quoted" \\ name with } , and = and ]] é'
    nasty = f"{name}\tand\nof two lines"
    row = Row(
        method=name,
        backbone=name,
        scores={"R@1": Decimal("30.10"), "AP/genus": Decimal("100")},
        unranked={"R@1": nasty},
        paper=Paper(citation=nasty, table="Tab. 1", doubt=nasty),
    )
    (values,) = tomllib.loads(block(row), parse_float=Decimal)["row"]
    assert values["method"] == name
    assert values["paper"]["doubt"] == nasty
    assert str(values["scores"]["R@1"]) == "30.10"


def test_rows_added_at_the_same_time_are_all_there(place, document, board):
    row = row_of(document, board)
    assert row.run is not None
    rows = [
        row.model_copy(
            update={"method": f"m{n}", "run": row.run.model_copy(update={"content": f"{n:064x}"})}
        )
        for n in range(12)
    ]
    with ThreadPoolExecutor(max_workers=6) as pool:
        for done in [pool.submit(add, each, board, place / "toy.toml") for each in rows]:
            done.result()
    assert {each.method for each in read_board_file(place / "toy.toml").rows} == {
        each.method for each in rows
    }


def test_own_rows_go_to_the_working_folder_where_it_has_the_file_and_to_the_users_otherwise(place):
    assert target("sop") == place / "home" / "data" / "leaderboards" / "sop.toml"
    Path("leaderboards").mkdir()
    Path("leaderboards/sop.toml").touch()
    assert target("sop") == Path("leaderboards/sop.toml")
    assert target("mine/x.toml") == Path("mine/x.toml")


# rows are scored again


def identity(document):
    return GivenFile(document.embedding.content, document.embedding.sha256)


def test_a_row_scored_again_under_its_conditions_is_equal(place):
    document = report(place, similarity="l2", ties="optimistic", alpha=2.0)
    board = empty_board(document)
    assert recorded(row_of(document, board), board) == Settings(
        None, "paper", "optimistic", "l2", "alpha", 2.0
    )
    board = board.model_copy(update={"rows": (row_of(document, board),)})

    def rescore(row):
        return report(place, **asdict(replace(recorded(row, board), metrics=list(row.scores))))

    assert document.embedding is not None
    checks = verify(board, "mine", identity(document), rescore)
    assert [check.field for check in checks] == list(document.scores)
    assert not any(check.differs for check in checks)
    refuse_differences(checks)


def test_a_published_row_is_compared_at_the_digits_it_is_printed_with(document):
    exact = Decimal(100 * (document.scores["H-AP"].value or 0))
    printed, off = round(exact, 1), round(exact, 1) + Decimal("0.1")
    board = empty_board(document)
    for value, differs in ((printed, False), (off, True)):
        row = Row(method="theirs", scores={"H-AP": value}, paper=Paper(citation="c", table="t"))
        checks = verify(
            board.model_copy(update={"rows": (row,)}),
            "theirs",
            identity(document),
            lambda _: document,
        )
        assert [check.differs for check in checks] == [differs]
    with pytest.raises(
        ComparisonError, match=f"1 of 1 scores differ.*\n.*H-AP {off}\n.*H-AP {exact:.3f}"
    ):
        refuse_differences(checks)


@pytest.mark.parametrize(("off", "is_said"), [("0.04", True), ("0.06", False)])
def test_a_small_difference_of_equal_content_is_said_to_be_of_another_processor(
    document, with_row, off, is_said
):
    (row,) = with_row.rows
    scores = row.scores | {"H-AP": row.scores["H-AP"] + Decimal(off)}
    board = with_row.model_copy(update={"rows": (row.model_copy(update={"scores": scores}),)})
    checks = verify(board, row.method, identity(document), lambda _: document)
    with pytest.raises(ComparisonError, match=r"1 of .* scores differ") as refused:
        refuse_differences(checks)
    assert ("another make of processor" in str(refused.value)) == is_said


def test_a_row_that_cannot_be_verified_is_refused_and_before_anything_is_scored_where_it_can_be(
    document, with_row
):
    assert document.embedding is not None
    given, changed = identity(document), document.model_copy(update={"dataset_digest": "0"})
    foreign = Row(
        method="theirs", scores={"AP50": Decimal(1)}, paper=Paper(citation="c", table="t")
    )
    boxes = with_row.model_copy(update={"foreign_metrics": {"AP50": "boxes"}, "rows": (foreign,)})

    def never(row):
        raise AssertionError("scored")

    with pytest.raises(UnknownName, match="did you mean 'mine'"):
        verify(with_row, "mien", given, never)
    with pytest.raises(ComparisonError, match="is not what it was"):
        verify(with_row, "mine", given, lambda _: changed)
    with pytest.raises(ComparisonError, match="no score of 'theirs'"):
        verify(boxes, "theirs", given, lambda _: document)


# the command line


def refused(*words):
    with pytest.raises(HBenchError) as refusal:
        call("leaderboard", *words)
    return refusal.value


@pytest.fixture
def added(place):
    """What the command said that added the report of emb.npz to the leaderboard toy."""
    evaluate(place / "emb.npz", place / "toy.csv", method="mine").write(place / "report.json")
    setup = ("--setup", "licence=CC0-1.0", "--setup", "parameters=2048")
    return call("leaderboard", "add", "toy", "report.json", "--backbone", "PCA", *setup).stderr


def test_a_row_is_placed_among_those_of_the_file_that_it_goes_to(place):
    write(place / "other.npz", seed=1)
    said = []
    for method, file in {"mine": "emb.npz", "other": "other.npz"}.items():
        report = evaluate(place / file, place / "toy.csv", method=method)
        report.write(place / f"{method}.json")
        details = ("--backbone", "PCA", "--method", method, "--to", "elsewhere.toml")
        said.append(call("leaderboard", "add", "toy", f"{method}.json", *details).stderr)
    assert "of 1 among the rows of toy and of elsewhere.toml" in said[0]
    assert "of 2 among" in said[1]


def test_a_row_with_the_scores_of_another_is_remarked(place):
    """The same vectors, each of them longer: other content, and every cosine is the same."""
    stored = np.load(place / "emb.npz", allow_pickle=False)
    np.savez(place / "longer.npz", ids=stored["ids"], vectors=2 * stored["vectors"])
    said = []
    for method, file in {"mine": "emb.npz", "longer": "longer.npz"}.items():
        evaluate(place / file, place / "toy.csv", method=method).write(place / f"{method}.json")
        said.append(call("leaderboard", "add", "toy", f"{method}.json", "--to", "own.toml").stderr)
    assert "same scores" not in said[0]
    assert "mine" in next(line for line in said[1].splitlines() if "same scores" in line)


def test_a_row_is_placed_by_a_metric_that_is_no_share(place):
    """hops@1 is a number of edges, few of which are better: a row prints it as it is."""
    write(place / "other.npz", seed=1)
    hops = {}
    for method, file in {"mine": "emb.npz", "other": "other.npz"}.items():
        report = evaluate(place / file, place / "toy.csv", method=method, metrics="hops@1")
        report.write(place / f"{method}.json")
        hops[method] = report.scores["hops@1"]
    better, worse = sorted(hops, key=hops.__getitem__)
    assert hops[better] < hops[worse]
    said = [
        call("leaderboard", "add", "toy", f"{method}.json", "--to", "elsewhere.toml").stderr
        for method in (better, worse)
    ]
    assert "place 1 of 1 among" in said[0]
    assert "place 2 of 2 among" in said[1]


def test_a_report_that_is_added_is_placed_and_shown_with_its_setup(added):
    assert "place 1 of 1 by H-AP, paper protocol" in added
    shown = json.loads(call("leaderboard", "show", "toy", "--json").stdout)
    assert [(row["place"], row["method"], row["backbone"]) for row in shown["rows"]] == [
        (1, "mine", "PCA")
    ]
    assert shown["rows"][0]["setup"] == {"licence": "CC0-1.0", "parameters": 2048}


@pytest.mark.usefixtures("added")
def test_a_run_that_is_there_and_a_mistyped_setup_are_not_added():
    assert "the run of mine is there already" in str(refused("add", "toy", "report.json"))
    assert (
        refused("add", "toy", "report.json", "--setup", "license=MIT").fix
        == "did you mean 'licence'?"
    )


@pytest.mark.usefixtures("added")
def test_a_run_of_the_board_may_stand_in_a_file_of_its_own_too():
    added = call("leaderboard", "add", "toy", "report.json", "--to", "sent.toml").stderr
    assert "place 1 of 1" in added
    again = refused("add", "toy", "report.json", "--to", "sent.toml")
    assert "--replace" in again.fix


@pytest.mark.usefixtures("added")
def test_a_row_is_verified_with_its_file_and_not_with_another(place):
    again = ("verify", "toy", "mine", "--dataset", "toy.csv", "--embeddings")
    checks = json.loads(call("leaderboard", *again, "emb.npz", "--json").stdout)
    assert {line["verdict"] for line in checks} == {"equal"}
    write(place / "other.npz", seed=1)
    assert isinstance(refused(*again, "other.npz"), ComparisonError)


@pytest.mark.usefixtures("added")
def test_another_container_of_the_same_vectors_is_the_rows_file(place):
    found = embeddings.read(place / "emb.npz")
    shuffled = np.random.default_rng(0).permutation(len(found))
    embeddings.write(
        place / "again.parquet",
        found.ids[shuffled],
        found.vectors[shuffled],
        metadata={"recipe": "of another version"},
    )
    again = ("verify", "toy", "mine", "--dataset", "toy.csv", "--embeddings")
    checks = json.loads(call("leaderboard", *again, "again.parquet", "--json").stdout)
    assert {line["verdict"] for line in checks} == {"equal"}


@pytest.mark.usefixtures("added")
def test_other_vectors_are_scored_all_the_same_and_it_is_said_how_far_they_are(place):
    found = embeddings.read(place / "emb.npz")
    vectors = found.vectors.copy()
    vectors[0] *= 2  # the same direction, so that every score is equal
    embeddings.write(place / "scaled.npz", found.ids, vectors)
    vectors[:4] = vectors[4:]
    embeddings.write(place / "moved.npz", found.ids, vectors)
    again = ("verify", "toy", "mine", "--dataset", "toy.csv", "--embeddings")
    scaled = str(refused(*again, "scaled.npz"))
    assert re.search(r"another file.*: (\d+) of \1 scores are equal$", scaled, re.MULTILINE)
    assert re.search(r"another file.*; H-AP by \d+\.\d{3}", str(refused(*again, "moved.npz")))


def test_a_row_of_a_former_version_knows_its_file_by_the_checksum_alone(document, board):
    row = row_of(document, board)
    former = row.run.model_copy(update={"content": None, "sha256": document.embedding.sha256})
    board = board.model_copy(update={"rows": (row.model_copy(update={"run": former}),)})
    refuse_differences(verify(board, "mine", identity(document), lambda _: document))
    other = identity(document)._replace(sha256="0" * 64)
    with pytest.raises(ComparisonError, match="another file") as refusal:
        refuse_differences(verify(board, "mine", other, lambda _: document))
    assert "--replace" in refusal.value.fix


@pytest.mark.usefixtures("added")
def test_what_verifying_lacks_is_asked_for():
    assert "--dataset" in str(refused("verify", "toy", "mine", "--embeddings", "emb.npz"))
    assert "did you mean 'mine'" in str(refused("verify", "toy", "mien", "--fetch"))


@pytest.mark.usefixtures("added")
def test_all_sources_that_exclude_each_other_are_named(tmp_path):
    words = ("--embeddings", "emb.npz", "--fetch", "--files", tmp_path)
    said = refusal("leaderboard", "verify", "toy", "mine", *words)
    assert "--fetch or --files or --embeddings" in said


@pytest.fixture
def toy(place):
    """The user's leaderboard of toy with rows of two methods and a remark between them, and
    another run of the first method as mine2.json.
    """
    for name, seed in (("mine", 0), ("other", 1), ("mine", 2)):
        write(place / f"{name}{seed}.npz", seed=seed)
        evaluate(place / f"{name}{seed}.npz", place / "toy.csv", method=name).write(
            place / f"{name}{seed}.json"
        )
    path = place / "home" / "data" / "leaderboards" / "toy.toml"
    call("leaderboard", "add", "toy", "mine0.json")
    path.write_text(path.read_text() + "\n# about the next\n")
    call("leaderboard", "add", "toy", "other1.json")
    return path


def test_a_row_is_replaced_by_a_new_run(toy):
    done = call("leaderboard", "add", "toy", "mine2.json", "--replace", "--backbone", "PCA")
    assert "replaced mine in" in done.stderr
    assert "of 2 by H-AP" in done.stderr
    assert [(row.method, row.backbone) for row in read_board_file(toy).rows] == [
        ("other", None),
        ("mine", "PCA"),
    ]
    assert toy.read_text().count("# about the next") == 1
    # the same run again
    assert "replaced mine" in call("leaderboard", "add", "toy", "mine2.json", "--replace").stderr


@pytest.fixture
def two_runs(toy):
    """The leaderboard with two runs of one method below the row of another."""
    call("leaderboard", "add", "toy", "mine2.json", "--replace", "--backbone", "PCA")
    assert "added mine" in call("leaderboard", "add", "toy", "mine0.json").stderr
    return toy


def test_one_run_of_several_is_removed_by_its_file(two_runs):
    assert "2 rows of" in str(refused("remove", "toy", "mine"))
    (first, _) = [row.run.digest for row in read_board_file(two_runs).rows if row.method == "mine"]
    assert "removed mine" in call("leaderboard", "remove", "toy", "mine", "--run", first[:8]).stderr
    call("leaderboard", "remove", "toy", "other")
    assert [(row.method, row.run.digest == first) for row in read_board_file(two_runs).rows] == [
        ("mine", False)
    ]
    assert "# about the next" in two_runs.read_text()


@pytest.mark.usefixtures("toy")
def test_rows_and_files_that_are_not_there_are_not_removed():
    assert "did you mean 'other'" in str(refused("remove", "toy", "othr"))
    assert "does not exist" in str(refused("remove", "sop", "HAPPIER"))


def test_rows_of_papers_and_files_of_another_form_are_not_removed(document, board, place):
    path = place / "b.toml"
    paper = Row(method="theirs", scores={"H-AP": Decimal(50)}, paper=Paper(citation="c", table="t"))
    text = (
        leaderboard_runs.head(board) + '[citations]\n"c" = { text = "C" }\n\n' + block(paper) + "\n"
    )
    path.write_text(text + block(row_of(document, board)))
    assert "theirs is a published row" in str(refused("remove", path, "theirs"))
    call("leaderboard", "remove", path, "mine")
    assert path.read_text() == text.rstrip("\n") + "\n\n"
    inline = block(row_of(document, board)).replace("[[row]]\n", "").strip().replace("\n", ", ")
    path.write_text(f"row = [{{ {inline} }}]\n" + leaderboard_runs.head(board))
    assert "in another form than hbench writes" in str(refused("remove", path, "mine"))


def test_a_mistyped_leaderboard_another_dimension_and_a_file_that_is_none_are_refused(place):
    evaluate(place / "emb.npz", place / "toy.csv", method="mine").write(place / "report.json")
    assert "did you mean 'toy'" in str(refused("add", "toyy", "report.json"))
    assert refused("add", "toy", "report.json", "--dim", "512").found == "--dim 512"
    assert "cannot be read" in str(refused("add", "toy", "report.json", "--to", "emb.npz"))
    text = (place / "report.json").read_text()
    date = json.loads(text)["date"]
    (place / "report.json").write_text(text.replace(date, "yesterday"))
    assert isinstance(refused("add", "toy", "report.json"), SubmissionError)
    assert not (place / "home").exists()


def test_a_tampered_score_is_found_and_its_difference_shown(place, document, board):
    row = row_of(document, board)
    raised = row.model_copy(update={"scores": row.scores | {"H-AP": row.scores["H-AP"] + 1}})
    add(raised, board, place / "toy.toml")
    found = run(
        "leaderboard",
        "verify",
        "./toy.toml",
        "mine",
        "--embeddings",
        "emb.npz",
        "--dataset",
        "toy.csv",
        code=7,
        folder=place,
    )
    assert f"H-AP {raised.scores['H-AP']}" in found.stderr
    assert found.stdout.count("differs") == 1
