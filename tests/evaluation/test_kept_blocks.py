"""Shares of the blocks and resumed runs against the whole: the same report to the bit, and nothing
mixed.
"""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from hbench.core import files
from hbench.core.errors import UsageError
from hbench.engine.executors.kept_blocks import Share, kept_in
from hbench.engine.executors.threads import on_threads
from hbench.engine.score_blocks import BLOCK
from hbench.evaluation.evaluate import report_on
from hbench.evaluation.examination import examine
from tests import zoo
from tests.command_line import call, refusal, run

BLOCKS = -(-2_300 // BLOCK)  # of zoo's items


@pytest.fixture(scope="module")
def examined(zoo_folder):
    return examine(zoo_folder / zoo.FILE, zoo_folder / zoo.DATASET, also_official=True)


@pytest.fixture(scope="module")
def whole(examined):
    return report_on(examined)


def test_shares_of_several_processes_fill_one_folder(zoo_folder, whole, tmp_path):
    words = [zoo_folder / zoo.FILE, "-d", zoo_folder / zoo.DATASET, "--resume", tmp_path / "kept"]
    command = [sys.executable, "-m", "hbench", "evaluate", *map(str, words), "--threads", "1"]
    runs = [subprocess.Popen([*command, "--blocks", f"{number}/3"]) for number in (1, 2, 3)]
    assert [run.wait(timeout=300) for run in runs] == [0, 0, 0]
    assert len(list(tmp_path.glob("kept/*/block-*.npz"))) == BLOCKS

    def refuses(job, blocks):
        assert not blocks, "every block is there"
        return iter(())

    examined = examine(zoo_folder / zoo.FILE, zoo_folder / zoo.DATASET)
    assert zoo.same(
        report_on(examined, execute=kept_in(tmp_path / "kept", refuses)), report_on(examined)
    )


def test_all_shares_together_are_all_blocks():
    for blocks in (0, 1, 5, 10):
        for of in (1, 2, 3, 7, 20):
            shares = [Share(number, of).of_blocks(blocks) for number in range(1, of + 1)]
            assert [block for share in shares for block in share] == list(range(blocks))


@pytest.mark.parametrize("text", ["0/3", "4/3", "2", "a/b", "1/0", "-1/2"])
def test_a_share_is_spelt_i_of_n(text):
    with pytest.raises(UsageError, match="i/n"):
        Share.parse(text)


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
def test_kept_blocks_that_cannot_be_read_or_are_of_others_are_computed_again(
    examined, whole, tmp_path, change
):
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
from hbench.engine.executors.kept_blocks import Share, kept_in
from hbench.engine.score_blocks import BLOCK
from hbench.evaluation.examination import examine
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


def test_the_command_line_computes_shares_and_reports(zoo_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evaluate = ("evaluate", zoo_folder / zoo.FILE, "-d", zoo_folder / zoo.DATASET)
    run(*evaluate, "-o", "whole.json", "--max-memory", "60M", "--threads", 1, folder=tmp_path)
    said = call(*evaluate, "--resume", "kept", "--blocks", "1/2").stderr
    assert "share 1/2" in said
    assert len(list(tmp_path.glob("kept/*/block-*.npz"))) == len(Share(1, 2).of_blocks(BLOCKS))
    call(*evaluate, "--resume", "kept", "--blocks", "2/2")
    call(*evaluate, "--resume", "kept", "-o", "joined.json")
    assert (tmp_path / "joined.json").read_text() == (tmp_path / "whole.json").read_text()
    for words, reason in (
        ((*evaluate, "--blocks", "1/2"), "--resume DIR"),
        ((*evaluate, "--resume", "kept", "--blocks", "3/2"), "i/n"),
        ((*evaluate, "--resume", "kept", "--blocks", "1/2", "-o", "x.json"), "without --blocks"),
        ((*evaluate, "--max-memory", "much"), "not a size"),
        ((*evaluate, "--max-memory", "100K"), "one query"),
    ):
        assert reason in refusal(*words)
    assert not (tmp_path / "x.json").exists()
