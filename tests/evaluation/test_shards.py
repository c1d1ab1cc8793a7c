"""Parts and resumed runs against the whole: the same report to the bit, and nothing merged that does not belong together."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

from hbench.core import files
from hbench.core.errors import ComparisonError, SubmissionError, UsageError
from hbench.engine.executors.kept_blocks import kept_in
from hbench.engine.executors.threads import on_threads
from hbench.engine.score_blocks import BLOCK
from hbench.engine.settings import Settings
from hbench.evaluation import shards
from hbench.evaluation.evaluate import examine, report_on
from hbench.evaluation.shards import Part
from tests import zoo
from tests.command_line import call, refusal, run

BLOCKS = -(-2_300 // BLOCK)  # of zoo's items


@pytest.fixture(scope="module")
def examined(zoo_folder):
    return examine(zoo_folder / zoo.FILE, zoo_folder / zoo.DATASET, also_official=True)


@pytest.fixture(scope="module")
def whole(examined):
    return report_on(examined)


@pytest.fixture(scope="module")
def parts(examined, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    paths = [folder / f"{number}.npz" for number in (1, 2, 3)]
    for number, path in enumerate(paths, start=1):
        shards.write(path, examined, Part(number, 3))
    return paths


def test_the_parts_in_any_order_make_the_report_of_the_whole_also_where_some_are_empty(
    examined, parts, whole, tmp_path
):
    assert zoo.same(shards.merge([parts[2], parts[0], parts[1]]), whole)
    paths = [tmp_path / f"one-of-many-{number}.npz" for number in range(1, 9)]  # more than there are blocks
    for number, path in enumerate(paths, start=1):
        shards.write(path, examined, Part(number, 8), execute=partial(on_threads, threads=1))
    assert zoo.same(shards.merge(paths), whole)


def test_missing_repeated_and_no_parts_are_refused(parts):
    with pytest.raises(SubmissionError, match="missing 2"):
        shards.merge([parts[0], parts[2]])
    with pytest.raises(SubmissionError, match="twice 1"):
        shards.merge([parts[0], parts[0], parts[1], parts[2]])
    with pytest.raises(UsageError, match="no shards are given"):
        shards.merge([])


@pytest.mark.parametrize("key", ["part", "tests", "evaluation"])
@pytest.mark.parametrize("value", [None, 5, 1.5, "x", [], {}, [[1]], [1.0, 2.5], [0, 2]])
def test_a_header_of_other_types_is_refused(parts, tmp_path, key, value):
    header, arrays = files.read(parts[0])
    files.write(tmp_path / "part.npz", {**header, key: value}, arrays)
    with pytest.raises(SubmissionError, match="is not a shard"):
        shards.merge([tmp_path / "part.npz"])


@pytest.mark.parametrize(
    "array", [np.float64(1), np.zeros(0), np.array(["x"] * 9), np.zeros((9, 3)), np.zeros(9, "M8[s]")]
)
def test_arrays_of_other_types_or_shapes_are_refused(parts, tmp_path, array):
    header, arrays = files.read(parts[0])
    for name in (name for name in arrays if "/names" not in name):  # other names are names, too
        files.write(tmp_path / "part.npz", {**header, "part": [1, 1]}, {**arrays, name: array})
        with pytest.raises(SubmissionError, match="lacks an array, or holds one of another type"):
            shards.merge([tmp_path / "part.npz"])


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("values", np.inf, "values that are infinite"),
        ("first_level", 255, "a first level beyond"),
        ("counts", -1, "a negative number of items"),
        ("ids", "the same", "a query twice"),
    ],
)
def test_parts_with_impossible_values_are_refused(examined, parts, tmp_path, field, value, said):
    for path in parts:
        header, arrays = files.read(path)
        lies = {name: np.full_like(array, value) for name, array in arrays.items() if name.endswith(f"/{field}")}
        assert len(lies) == len(examined.data.tests)
        files.write(tmp_path / path.name, header, {**arrays, **lies})
    with pytest.raises(SubmissionError, match=said):
        shards.merge([tmp_path / path.name for path in parts])


def test_one_part_of_a_billion_is_refused_without_listing_the_others(parts, tmp_path):
    header, arrays = files.read(parts[0])
    files.write(tmp_path / "part.npz", {**header, "part": [1, 10**9]}, arrays)
    with pytest.raises(SubmissionError, match="missing 2, 3, 4, 5, 6, …"):
        shards.merge([tmp_path / "part.npz"])
    with pytest.raises(UsageError):
        Part.parse("1/" + "9" * 5_000)


def test_parts_of_other_vectors_or_conditions_are_refused(zoo_folder, parts, tmp_path):
    for name, settings in (("ties", Settings(ties="optimistic")), ("alpha", Settings(alpha=1.00000001))):
        other = examine(zoo_folder / zoo.FILE, zoo_folder / zoo.DATASET, settings, also_official=True)
        shards.write(tmp_path / f"{name}.npz", other, Part(2, 3))
    zoo.make(tmp_path, seed=1)
    moved = examine(tmp_path / zoo.FILE, tmp_path / zoo.DATASET, also_official=True)
    shards.write(tmp_path / "vectors.npz", moved, Part(2, 3))
    for name in ("ties", "alpha", "vectors"):
        with pytest.raises(ComparisonError, match="different evaluations"):
            shards.merge([parts[0], tmp_path / f"{name}.npz", parts[2]])


def test_a_damaged_or_foreign_part_is_refused_by_name(parts, tmp_path):
    (tmp_path / "cut.npz").write_bytes(parts[1].read_bytes()[:5000])
    np.savez(tmp_path / "foreign.npz", values=np.zeros(3))
    for name in ("cut", "foreign", "absent"):
        with pytest.raises(SubmissionError, match=name):
            shards.merge([parts[0], tmp_path / f"{name}.npz", parts[2]])


@pytest.mark.parametrize("text", ["0/3", "4/3", "2", "a/b", "1/0", "-1/2"])
def test_a_part_is_spelt_i_of_n(text):
    with pytest.raises(UsageError, match="i/n"):
        Part.parse(text)


def test_a_finished_block_is_kept_and_not_computed_again(examined, whole, tmp_path):
    assert zoo.same(report_on(examined, execute=kept_in(tmp_path, on_threads)), whole)
    [folder] = tmp_path.iterdir()
    assert len(list(folder.iterdir())) == BLOCKS

    def refuses(job, blocks):
        assert not blocks, "every block is there"
        return iter(())

    assert zoo.same(report_on(examined, execute=kept_in(tmp_path, refuses)), whole)


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values[:, :1],  # one query
        lambda values: values[:1],  # one metric
        lambda values: values.astype(np.float32),
        lambda values: np.full((1, 1), 0.5),
    ],
)
def test_kept_blocks_that_cannot_be_read_or_are_of_others_are_computed_again(examined, whole, tmp_path, change):
    report_on(examined, execute=kept_in(tmp_path, on_threads))
    first, second, third, *_ = sorted(next(tmp_path.iterdir()).iterdir())
    first.write_bytes(first.read_bytes()[:100])
    files.write(second, {"job": "another"}, {})
    header, arrays = files.read(third)
    files.write(third, header, arrays | {"values": change(arrays["values"])})
    assert zoo.same(report_on(examined, execute=kept_in(tmp_path, on_threads)), whole)


def test_a_killed_evaluation_resumes_where_it_stopped(zoo_folder, examined, whole, tmp_path):
    code = """
import sys, time
from pathlib import Path
from hbench.evaluation.evaluate import report_on
from hbench.engine.executors.kept_blocks import kept_in
from hbench.engine.score_blocks import BLOCK
from hbench.evaluation.evaluate import examine
from hbench.engine.executors.threads import on_threads

def slowly(job, blocks):
    for found in on_threads(job, blocks):
        yield found
        time.sleep(60)

report_on(examine(sys.argv[1], sys.argv[2], also_official=True), execute=kept_in(Path(sys.argv[3]), slowly))
"""
    arguments = [zoo_folder / zoo.FILE, zoo_folder / zoo.DATASET, tmp_path / "kept"]
    with subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)]) as process:
        while process.poll() is None and not list(tmp_path.glob("kept/*/block-*.npz")):
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    kept = len(list(tmp_path.glob("kept/*/block-*.npz")))
    assert 1 <= kept < BLOCKS
    asked = []

    def counted(job, blocks):
        asked.extend(blocks)
        return on_threads(job, blocks)

    assert zoo.same(report_on(examined, execute=kept_in(tmp_path / "kept", counted)), whole)
    assert len(asked) == BLOCKS - kept


def test_the_command_line_writes_parts_resumes_and_merges(zoo_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evaluate = ("evaluate", zoo_folder / zoo.FILE, "-d", zoo_folder / zoo.DATASET)
    run(*evaluate, "-o", "whole.json", "--max-memory", "60M", "--resume", "kept", "--threads", 1, folder=tmp_path)
    call(*evaluate, "--shard", "1/2", "-o", "1.npz", "--resume", "kept")
    call(*evaluate, "--shard", "2/2", "-o", "2.npz")
    assert "H-AP" in call("merge", "2.npz", "1.npz", "-o", "merged.json", "--by-query", "merged.parquet").stdout
    assert (tmp_path / "merged.json").read_text() == (tmp_path / "whole.json").read_text()
    call("merge", "1.npz", "2.npz", "--row", "row.toml", "--method", "mine")
    assert 'method = "mine"' in (tmp_path / "row.toml").read_text()
    np.savez(tmp_path / "other.npz", ids=np.arange(3))
    for words, reason in (
        (("merge", "1.npz", "2.npz", "--row", "row.toml"), "--method"),
        (("merge", "1.npz"), "missing 2"),
        (("merge", "1.npz", next((tmp_path / "kept").rglob("*.npz"))), "is not a shard"),
        (("merge", "1.npz", "other.npz"), "another .npz"),
        (("merge", "1.npz", "none.npz"), "does not exist"),
        ((*evaluate, "--shard", "1/2"), "--out"),
        ((*evaluate, "--max-memory", "much"), "not a size"),
        ((*evaluate, "--max-memory", "100K"), "one query"),
    ):
        assert reason in refusal(*words)
