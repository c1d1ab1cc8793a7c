"""The same bytes come out wherever hbench runs: other languages, one processor, a clock set back,
names of any letters, CRLF.
"""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest

from hbench.evaluation.evaluate import evaluate
from tests import zoo
from tests.command_line import process

NAMES = ["with blanks", "Größe – 城", "-dash", "a'b\"c;$(d)", "İıẞ"]


def evaluated(folder, *, dataset=zoo.DATASET, file=zoo.FILE, **environment):
    """What a process prints as JSON in an environment, from within a folder."""
    words = ("evaluate", f"./{file}", "-d", f"./{dataset}", "--json")
    return {
        **json.loads(process("-m", "hbench", *words, folder=folder, **environment).stdout),
        "date": None,
    }


@pytest.fixture(scope="module")
def usual(zoo_folder):
    return evaluated(zoo_folder)


@pytest.mark.parametrize("language", ["tr_TR", "de_DE"])
def test_other_languages_change_no_bit(zoo_folder, usual, tmp_path, language):
    made = shutil.which("localedef") and subprocess.run(
        ["localedef", "-i", language, "-f", "UTF-8", tmp_path / f"{language}.UTF-8"],
        capture_output=True,
        check=False,
    )
    if not made or not (tmp_path / f"{language}.UTF-8").is_dir():
        pytest.skip(f"this system cannot make the locale {language}")
    names = {"LOCPATH": str(tmp_path), "LC_ALL": f"{language}.UTF-8", "LANGUAGE": language}
    assert evaluated(zoo_folder, **names) == usual


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system does not bind processes to processors"
)
def test_one_processor_changes_no_bit(zoo_folder, usual):
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})  # which a process inherits
    try:
        assert evaluated(zoo_folder) == usual
    finally:
        os.sched_setaffinity(0, before)


# 1970, and 2106, as files look after the clock was set back
@pytest.mark.parametrize("time", [0, 2**32])
def test_a_clock_set_back_changes_no_bit(zoo_folder, usual, tmp_path, time):
    for path in zoo_folder.glob("zoo*"):
        shutil.copy(path, tmp_path)
        os.utime(tmp_path / path.name, (time, time))
    assert evaluated(tmp_path) == usual


@pytest.mark.parametrize("name", NAMES)
def test_folders_and_files_of_any_name_are_read(zoo_folder, usual, tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    for path in zoo_folder.glob("zoo*"):
        shutil.copy(path, folder / path.name.replace("zoo.", f"{name}."))
    found = evaluated(folder, dataset=f"{name}.parquet", file=f"{name}.npy")
    assert (found["scores"], found["dataset_digest"]) == (usual["scores"], usual["dataset_digest"])
    assert found["embedding"]["file"] == f"{name}.npy, {name}.ids.json"


def test_crlf_and_a_byte_order_mark_are_read_as_without(tmp_path):
    rows = [
        ("item", "order", "species"),
        *((f"{n}.png", f"o{n % 2}", f"s{n % 4}") for n in range(40)),
    ]
    np.save(tmp_path / "emb.npy", np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32))
    reports = []
    for begin, end in (("", "\n"), ("", "\r\n"), ("\ufeff", "\r\n")):
        (tmp_path / "own.csv").write_bytes(
            (begin + "".join(",".join(row) + end for row in rows)).encode()
        )
        (tmp_path / "emb.ids.txt").write_bytes(
            (begin + "".join(row[0] + end for row in rows[1:])).encode()
        )
        document = evaluate(tmp_path / "emb.npy", tmp_path / "own.csv").document
        # but for the sum of the file's bytes
        reports.append(document.model_copy(update={"embedding": None}))
    assert reports[0] == reports[1] == reports[2]
