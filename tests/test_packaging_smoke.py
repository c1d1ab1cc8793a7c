"""A user's first commands, with what is installed: run from an empty folder by `.ci/run` in the
smallest environment, with the lowest versions, on every interpreter, and from the wheel. Needs
nothing but pytest and an installed hbench."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

LOOK = all(importlib.util.find_spec(name) for name in ("matplotlib", "pandas", "jinja2", "sklearn"))
TORCH = importlib.util.find_spec("torch") is not None
NEEDS = "(in a clone of hbench: pip install '.[{extra}]')"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of 60 items in a tree of two levels, their embeddings, and a TREC run."""
    folder = tmp_path_factory.mktemp("smoke")
    rng = np.random.default_rng(0)
    species = np.arange(60) % 6
    names = [f"item-{number:02}" for number in range(60)]
    rows = [
        f"{name},genus {kind // 2},species {kind}"
        for name, kind in zip(names, species, strict=True)
    ]
    (folder / "birds.csv").write_text("\n".join(["item,genus,species", *rows]) + "\n")
    np.savez(
        folder / "birds.npz",
        ids=np.array(names),
        embeddings=np.eye(6)[species] + rng.normal(0, 0.4, (60, 6)),
    )
    run = [
        f"{query} Q0 {item} {place} {-place} smoke"
        for query in names
        for place, item in enumerate(other for other in names if other != query)
    ]
    (folder / "birds.run").write_text("\n".join(run) + "\n")
    return folder


@pytest.fixture
def hbench(folder):
    def run(*arguments, code=0, **options):
        environment = {**os.environ, "HBENCH_HOME": str(folder / "home"), "COLUMNS": "100"}
        done = subprocess.run(
            [sys.executable, "-m", "hbench", *arguments],
            capture_output=not options,
            text=True,
            check=False,
            cwd=folder,
            env=environment,
            **options,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

    return run


@pytest.fixture(scope="module")
def report(folder):
    environment = {**os.environ, "HBENCH_HOME": str(folder / "home")}
    command = (
        "evaluate birds.npz --dataset birds.csv --method smoke -o birds.json --by-query "
        "birds.by-query.parquet"
    )
    subprocess.run(
        [sys.executable, "-m", "hbench", *command.split()], check=True, cwd=folder, env=environment
    )
    return "birds.json"


def test_the_command_and_its_help(hbench):
    assert hbench("--version").stdout.startswith("hbench")
    assert "evaluate" in hbench("--help").stdout


def test_an_embedding_file_is_scored(hbench, report, folder):
    document = json.loads((folder / report).read_text())
    assert 0.2 < document["scores"]["H-AP"]["value"] < 1
    again = hbench("evaluate", "birds.npz", "-d", "birds.csv", "--json")
    assert (
        json.loads(again.stdout)["scores"]["H-AP"]["value"] == document["scores"]["H-AP"]["value"]
    )
    assert "H-AP" in hbench("compare", report, report).stdout


def test_arrays_are_scored():
    import hbench

    report = hbench.score([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]], [[0, 0], [0, 0], [1, 1]])
    assert report.scores["R@1"] == pytest.approx(2 / 3)


def test_a_ranking_is_scored(hbench):
    assert "R@10" in hbench("evaluate", "birds.run", "--dataset", "birds.csv").stdout


def test_a_leaderboard_is_read_and_added_to(hbench, report):
    hbench("leaderboard", "add", "birds", report)
    assert "smoke" in hbench("leaderboard", "show", "birds").stdout
    assert "HAPPIER" in hbench("leaderboard", "export", "sop", "--format", "markdown").stdout


def test_latex_is_written_or_its_extra_named(hbench):
    done = hbench("leaderboard", "export", "sop", "--format", "latex", code=0 if LOOK else 2)
    assert ("\\toprule" in done.stdout) if LOOK else (NEEDS.format(extra="look") in done.stderr)


def test_a_tree_is_shown_and_drawn(hbench, folder):
    assert "genus" in hbench("tree", "show", "birds.csv").stdout
    done = hbench("tree", "draw", "birds.csv", "-o", "birds.svg", code=0 if LOOK else 2)
    assert (
        ("<svg" in (folder / "birds.svg").read_text())
        if LOOK
        else (NEEDS.format(extra="look") in done.stderr)
    )


def test_datasets_are_listed(hbench):
    assert "cub200" in hbench("datasets").stdout


def test_a_closed_stdout_is_no_traceback(hbench, folder):
    for command in (["datasets"], ["evaluate", "birds.npz", "-d", "birds.csv"]):
        code = (
            "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', "
            "'hbench', *sys.argv[1:]])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, *command], stderr=-1, text=True, check=False, cwd=folder
        )
        assert "Traceback" not in done.stderr


def test_the_losses_are_listed_or_their_extra_named(hbench):
    done = hbench("losses", code=0 if TORCH else 2)
    assert ("sup_ap" in done.stdout) if TORCH else (NEEDS.format(extra="train") in done.stderr)


def test_the_demo_makes_its_picture_or_names_its_extra(hbench, folder):
    done = hbench("demo", "--out", "made", "--dim", "16", code=0 if LOOK else 2)
    if LOOK:
        assert "PCA (16)" in done.stdout
        assert (folder / "made" / "glyphs-pca.png").read_bytes().startswith(b"\x89PNG")
    else:
        assert NEEDS.format(extra="look") in done.stderr
