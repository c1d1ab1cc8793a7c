"""Rows verified by the files that they name, which a server on 127.0.0.1 has: honest ones pass,
forged ones do not.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import hbench
from hbench.boards import read_board_file
from hbench.boards.proof.addresses import TRUSTED
from hbench.boards.proof.fetched import ABSENT, DIFFERS, VERIFIED, verdict_on
from hbench.boards.runs import RowDetails, add, empty_board, row_of
from hbench.core.paths import cache_home
from hbench.datasets.download import Patience, Requester, session
from hbench.submissions import embeddings
from tests.command_line import run
from tests.file_server import FileServer

ROOT = Path(__file__).parents[2]
ITEMS = np.array([f"{n:03}.png" for n in range(160)])
SPECIES = np.arange(160) // 4
REQUESTER = Requester(session(), Patience(pause=0.01))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A server, and a data folder with the dataset toy: 40 species of 8 genera, all of the test."""
    folder = tmp_path_factory.mktemp("world")
    lines = [
        f"{item},g{species // 5},s{species}" for item, species in zip(ITEMS, SPECIES, strict=True)
    ]
    (folder / "toy.csv").write_text("\n".join(["item,genus,species", *lines]))
    with pytest.MonkeyPatch.context() as patch, FileServer() as server:
        for variable in ("HBENCH_HOME", "HBENCH_DATA", "HBENCH_CACHE"):
            patch.setenv(variable, str(folder / variable))
        patch.setenv(TRUSTED, server.address.removeprefix("http://"))
        patch.chdir(folder)
        hbench.build("toy", source=hbench.OwnSource(folder / "toy.csv", ["genus", "species"]))
        yield folder, server


def vectors_of(seed):
    """Return vectors as a model might give them: species lie around their centres."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(40, 16))
    return (centres[SPECIES] + rng.normal(size=(160, 16))).astype(np.float32)


def published(world, vectors, name, *, ids=ITEMS):
    """The row of these vectors, whose file the server has."""
    folder, server = world
    embeddings.write(folder / f"{name}.npz", ids.tolist(), vectors)
    server.files[f"{name}.npz"] = (folder / f"{name}.npz").read_bytes()
    document = hbench.evaluate(folder / f"{name}.npz", "toy", method=name).document
    board = empty_board(document)
    return row_of(document, board, RowDetails(url=server.url(f"{name}.npz"))), board


def with_run(row, **changes):
    return row.model_copy(update={"run": row.run.model_copy(update=changes)})


def labels_as_vectors(world, seed):
    vectors = np.eye(40, dtype=np.float32)[SPECIES]
    row, board = published(world, vectors * np.float32(1 + seed), f"labels{seed}")
    return with_run(row, doubt=None), board


def labels_with_noise(world, seed):
    noise = np.random.default_rng(seed).normal(size=(160, 40)).astype(np.float32)
    row, board = published(
        world, np.eye(40, dtype=np.float32)[SPECIES] + np.float32(1e-3) * noise, f"noise{seed}"
    )
    return with_run(row, doubt=None), board


def copied_items(world, seed):
    vectors = vectors_of(seed)
    vectors[20:60] = vectors[:40]  # forty items have the vector of an item of another class
    row, board = published(world, vectors, f"copied{seed}")
    return with_run(row, doubt=None), board


def another_file(world, seed):
    row, board = published(world, vectors_of(seed), f"replaced{seed}")
    published(world, 2 * vectors_of(seed), f"replaced{seed}")  # which has the same scores
    return row, board


def sha_of_another(world, seed):
    better, _ = published(
        world, vectors_of(seed) + np.eye(40, 16, dtype=np.float32)[SPECIES], f"better{seed}"
    )
    row, board = published(world, vectors_of(seed), f"lesser{seed}")
    return with_run(better, url=row.run.url), board


def edited_figure(world, seed):
    row, board = published(world, vectors_of(seed), f"edited{seed}")
    return row.model_copy(update={"scores": {**row.scores, "H-AP": row.scores["H-AP"] + 1}}), board


def another_split(world, seed):
    row, board = published(world, vectors_of(seed), f"half{seed}")
    folder, server = world
    embeddings.write(folder / "half.npz", ITEMS[:80].tolist(), vectors_of(seed)[:80])
    server.files[f"half{seed}.npz"] = (folder / "half.npz").read_bytes()
    return with_run(row, content=embeddings.read(folder / "half.npz").content), board


def another_dataset(world, seed):
    row, board = published(world, vectors_of(seed), f"labelled{seed}")
    return with_run(row, dataset_digest="0" * 64), board


def another_head(world, seed):
    row, board = published(world, vectors_of(seed), f"head{seed}")
    changed = {"averaged": ("fine", "coarse")} if seed % 2 else {"levels": ("species", "genus")}
    return row, board.model_copy(update=changed)


def published_as_new(world, seed):
    return published(world, vectors_of(seed), f"new{seed}")


def without_address(world, seed):
    row, board = published_as_new(world, seed)
    return with_run(row, url=None), board


FORGERIES = [
    labels_as_vectors, labels_with_noise, copied_items, another_file, sha_of_another, edited_figure,
    another_split, another_dataset, another_head,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_an_honest_row_is_verified(world, seed):
    row, board = published(world, vectors_of(seed), f"honest{seed}")
    assert verdict_on(row, board, REQUESTER, on_progress=lambda _: None).verdict == VERIFIED


@pytest.mark.parametrize("seed", range(100, 103))
@pytest.mark.parametrize("forged", FORGERIES, ids=lambda forgery: forgery.__name__)
def test_a_forged_row_differs(world, forged, seed):
    row, board = forged(world, seed)
    assert verdict_on(row, board, REQUESTER, on_progress=lambda _: None).verdict == DIFFERS


def test_a_doubt_that_the_row_says_is_shown_and_passes(world):
    row, board = published(world, np.eye(40, dtype=np.float32)[SPECIES], "doubted")
    verdict = verdict_on(row, board, REQUESTER, on_progress=lambda _: None)
    assert (verdict.verdict, "as labels have" in verdict.detail) == (VERIFIED, True)


def test_a_file_that_cannot_be_had_is_not_a_difference(world):
    row, board = published(world, vectors_of(30), "gone")
    world[1].files.pop("gone.npz")
    unfit_files = [
        with_run(row, file=name) for name in ("a.npy, a.ids.txt", "q.npz + g.npz", "a.pt")
    ]
    for unfit in (row, with_run(row, url=None), *unfit_files):
        assert verdict_on(unfit, board, REQUESTER, on_progress=lambda _: None).verdict == ABSENT


def test_a_mark_beside_a_file_that_cannot_be_had_is_a_difference(world):
    row, board = published(world, vectors_of(32), "marked")
    world[1].files.pop("marked.npz")
    for claimed in (
        with_run(row, verified="2026-01-01"),
        with_run(row, verified="2026-01-01", url=None),
    ):
        verdict = verdict_on(claimed, board, REQUESTER, on_progress=lambda _: None)
        assert (
            verdict.verdict,
            verdict.detail.startswith("the row says that it was verified"),
        ) == (DIFFERS, True)


def test_a_damaged_file_of_the_cache_is_fetched_by_the_next_run(world):
    row, board = published(world, vectors_of(34), "cached")
    verdicts = []
    for _ in range(3):
        verdicts.append(verdict_on(row, board, REQUESTER, on_progress=lambda _: None).verdict)
        if len(verdicts) == 1:
            embeddings.write(
                cache_home() / "rows" / f"{row.run.content}.npz", ITEMS.tolist(), vectors_of(35)
            )
    assert verdicts == [VERIFIED, DIFFERS, VERIFIED]


def test_labels_that_a_branch_brings_itself_are_not_taken(world):
    row, board = published(world, vectors_of(33), "own-labels")
    for name in ("toy.csv", "./toy.csv", "../toy"):
        other = board.model_copy(update={"dataset": name})
        assert verdict_on(row, other, REQUESTER, on_progress=lambda _: None).verdict == ABSENT


def test_what_a_branch_changes_beside_its_rows_is_a_difference(world, tmp_path):
    """The head, rows of others, whole files; and marks are taken away before anything is
    verified."""
    path = tmp_path / "leaderboards/toy.toml"
    first, board = published(world, vectors_of(50), "kept")
    second, _ = published(world, vectors_of(51), "claimed")
    add(first, board, path)
    before = path.read_text(encoding="utf-8")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "rows"]):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True
        )
    words = ("leaderboard", "verify", "--fetch", "--changed-since", "HEAD")
    paper = (
        '\n[citations]\nMe = { text = "Me, 2026" }\n\n[[row]]\nmethod = "|x|"\nscores = { H-AP '
        "= 99.9 }\n"
    )
    paper += 'paper = { citation = "Me", table = "Tab. 1" }\n'
    for text, code, said in (
        (before, 0, "nothing to verify"),
        (
            before.replace('metric = "H-AP"', 'metric = "R@1"'),
            7,
            "| (head) | differs | changed: metric |",
        ),
        (
            before + paper,
            6,
            "| &#124;x&#124; | cannot be had | a published row: a person compares it",
        ),
        (before.split("[[row]]")[0], 7, "| kept | differs | the row is gone |"),
        (before.replace(f"H-AP = {first.scores['H-AP']}", "H-AP = 1e2"), 7, "plain decimal"),
    ):
        path.write_text(text, encoding="utf-8")
        assert said in run(*words, folder=tmp_path, code=code).stdout
    path.unlink()
    assert "its file is gone" in run(*words, folder=tmp_path, code=7).stdout
    refused = run(*words[:-1], "nowhere", folder=tmp_path, code=2).stderr
    assert "no such revision" in refused
    assert "nowhere" in refused
    path.write_text(before, encoding="utf-8")
    add(with_run(second, verified="2020-01-01, hbench 0.1.0"), board, path)
    run(*words, "--mark", folder=tmp_path)
    assert "2020-01-01" not in path.read_text(encoding="utf-8")
    path.write_text(before, encoding="utf-8")
    add(with_run(second, verified="2020-01-01, hbench 0.1.0", queries=9), board, path)
    run(*words, "--mark", folder=tmp_path, code=7)
    assert [row.run.verified for row in read_board_file(path).rows] == [None, None]


def test_a_dataset_that_is_not_here_is_not_a_difference(world):
    row, board = published(world, vectors_of(31), "elsewhere")
    other = board.model_copy(update={"dataset": "not-built"})
    assert verdict_on(row, other, REQUESTER, on_progress=lambda _: None).verdict == ABSENT


def test_the_command_verifies_what_changed_and_marks_it(world):
    folder, _ = world
    path = Path("leaderboards/toy.toml")
    path.parent.mkdir(exist_ok=True)
    first, board = published(world, vectors_of(10), "first")
    second, _ = published(world, vectors_of(11), "second")
    add(first, board, path)
    for words in (["init", "-q"], ["add", str(path)], ["commit", "-qm", "rows"]):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True
        )
    add(second, board, path)
    done = run(
        "leaderboard",
        "verify",
        "toy",
        "--fetch",
        "--changed-since",
        "HEAD",
        "--mark",
        folder=folder,
    )
    assert ("| second | verified |" in done.stdout, "| first |" in done.stdout) == (True, False)
    marks = [row.run.verified for row in read_board_file(path).rows]
    assert (marks[0], "hbench" in marks[1]) == (None, True)
    path.write_text(path.read_text().replace(str(first.scores["H-AP"]), "99.0"))
    assert (
        "| first | differs |"
        in run("leaderboard", "verify", "toy", "--fetch", folder=folder, code=7).stdout
    )
    run(
        "leaderboard",
        "verify",
        "toy",
        "--fetch",
        "--changed-since",
        "nowhere",
        folder=folder,
        code=2,
    )
    assert "1 of 1 rows are verified" in done.stdout
    for words in ([], ["--mark"], ["--fetch", "--embeddings", "first.npz"]):
        run("leaderboard", "verify", "toy", *words, folder=folder, code=2)


def test_how_many_rows_are_verified_is_said_and_the_exit_code_follows(world, tmp_path):
    folder, _ = world
    path = tmp_path / "toy.toml"
    rows = [published(world, vectors_of(seed), f"counted{seed}") for seed in (40, 41, 42)]
    for row, board in rows:
        add(row, board, path)
    words = ("leaderboard", "verify", path, "--fetch")
    assert "\n3 of 3 rows are verified\n" in run(*words, folder=folder).stdout
    path.unlink()
    for row, board in rows:
        add(with_run(row, url=None), board, path)
    done = run(*words, folder=folder, code=6)
    assert "\n0 of 3 rows are verified\n" in done.stdout
    assert "3 × the row does not say where its file is" in done.stderr
    assert "0 of 3 rows are verified" in run(*words, "--json", folder=folder, code=6).stderr
    path.write_text("\n".join(path.read_text(encoding="utf-8").split("[[row]]")[:1]))
    assert "nothing to verify" in run(*words, folder=folder).stdout


def test_the_script_of_the_action_writes_the_table_and_fails_on_a_difference(world, tmp_path):
    action = yaml.safe_load(
        (ROOT / ".github/actions/verify-rows/action.yml").read_text(encoding="utf-8")
    )
    script = action["runs"]["steps"][-1]["run"]
    path, summary = tmp_path / "leaderboards/toy.toml", tmp_path / "summary.md"
    path.parent.mkdir()
    first, board = published(world, vectors_of(12), "before")
    add(first, board, path)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "rows"]):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True
        )
    environment = {
        **os.environ, "SINCE": "HEAD", "GITHUB_STEP_SUMMARY": str(summary),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    shell = [
        "bash",
        "--noprofile",
        "--norc",
        "-eo",
        "pipefail",
        "-c",
        script,
    ]  # as composite actions are run
    kinds = (
        (13, published_as_new, 0, "verified"),
        (15, without_address, 0, "cannot be had"),
        (14, edited_figure, 7, "differs"),
    )
    for seed, made, code, verdict in kinds:
        row, _ = made(world, seed)
        add(row, board, path)
        done = subprocess.run(
            shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert (
            done.returncode,
            f"| {row.method} | {verdict} |" in summary.read_text(encoding="utf-8"),
        ) == (code, True)
    assert [row.run.verified is not None for row in read_board_file(path).rows] == [
        False,
        True,
        False,
        False,
    ]


def test_a_submission_is_checked_and_its_row_printed(world):
    folder, _ = world
    published(world, vectors_of(20), "mine")
    published(world, vectors_of(21), "other")
    hbench.evaluate(folder / "mine.npz", "toy", method="mine").write(folder / "mine.json")
    url = "https://example.org/mine.npz"
    done = run(
        "leaderboard",
        "submit",
        "mine.json",
        "--embeddings",
        "mine.npz",
        "--url",
        url,
        folder=folder,
    )
    assert all(
        text in done.stdout
        for text in ("[[row]]", 'method = "mine"', "https://example.org/mine.npz")
    )
    run("leaderboard", "submit", "mine.json", "--embeddings", "other.npz", folder=folder, code=7)
    published(world, np.eye(40, dtype=np.float32)[SPECIES], "labels")
    report = hbench.evaluate(folder / "labels.npz", "toy", method="labels")
    document = report.document.model_copy(update={"doubts": ()})
    (folder / "labels.json").write_text(document.model_dump_json(by_alias=True))
    run("leaderboard", "submit", "labels.json", "--embeddings", "labels.npz", folder=folder, code=3)


def test_the_workflow_runs_what_was_there_before_the_pull_request():
    """hbench and the action are those of the base revision, the rows those of the head, and no text
    of the head is a command.
    """
    workflow = yaml.safe_load((ROOT / ".github/workflows/rows.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["verify"]["steps"]
    by_path = {
        step["with"]["path"]: step["with"] for step in steps if "checkout" in step.get("uses", "")
    }
    assert by_path["base"]["ref"] == "${{ github.event.pull_request.base.sha }}"
    assert "ref" not in by_path["head"]
    assert {checkout["persist-credentials"] for checkout in by_path.values()} == {False}
    (action,) = (step for step in steps if step.get("uses", "").startswith("./"))
    assert (action["uses"], action["with"]["rows"]) == (
        "./base/.github/actions/verify-rows",
        "head",
    )
    described = yaml.safe_load(
        (ROOT / ".github/actions/verify-rows/action.yml").read_text(encoding="utf-8")
    )
    scripts = [step["run"] for step in (*steps, *described["runs"]["steps"]) if "run" in step]
    assert not [script for script in scripts if "${{" in script]
    (installed,) = (
        step for step in described["runs"]["steps"] if "pip install" in step.get("run", "")
    )
    assert installed["env"]["HBENCH"].startswith("${{ github.action_path }}/")


def test_only_names_of_datasets_leave_the_changed_files(tmp_path):
    workflow = yaml.safe_load((ROOT / ".github/workflows/rows.yml").read_text(encoding="utf-8"))
    (script,) = (
        step["run"] for step in workflow["jobs"]["verify"]["steps"] if step.get("id") == "changed"
    )
    (tmp_path / "leaderboards").mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["commit", "-qm", "none", "--allow-empty"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    for name in (
        "sop",
        "inat18-base",
        "glyphs",
        "--help",
        "$(touch x)",
        "a b",
        "x;touch y",
        "UPPER",
        "*",
    ):
        (tmp_path / "leaderboards" / f"{name}.toml").touch()
    subprocess.run([*git, "add", "."], cwd=tmp_path, check=True)
    environment = {**os.environ, "SINCE": "HEAD", "GITHUB_OUTPUT": str(tmp_path / "output")}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    subprocess.run(shell, cwd=tmp_path, env=environment, check=True)
    assert set((tmp_path / "output").read_text().removeprefix("datasets=").split()) == {
        "sop",
        "inat18-base",
    }
    assert {path.name for path in tmp_path.iterdir()} == {".git", "leaderboards", "output"}
