"""Every block of the README does what it says: console lines run in order in one folder, python
blocks run as they are."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hbench.boards import read_board
from tests.command_line import run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(demo, tmp_path_factory):
    """A copy of the folder in which the first line, `hbench demo`, was run."""
    return shutil.copytree(demo.folder, tmp_path_factory.mktemp("readme"), dirs_exist_ok=True)


@pytest.mark.parametrize(
    "line", [line for kind, text in BLOCKS if kind == "console" for line in text.splitlines()]
)
def test_a_console_line_of_the_readme_runs(folder, demo, line):
    prompt, program, *words = shlex.split(line)
    assert (prompt, program) == ("$", "hbench")
    done = demo if words == ["demo"] else run(*words, folder=folder)
    assert done.stdout + done.stderr


def test_the_first_console_line_makes_what_the_others_use():
    assert next(text for kind, text in BLOCKS if kind == "console").startswith("$ hbench demo\n")


@pytest.mark.parametrize("block", [text for kind, text in BLOCKS if kind == "python"])
def test_a_python_block_of_the_readme_runs(block):
    line = [sys.executable, "-W", "error", "-c", block]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "excluded-by-id" in done.stdout


def test_the_two_commands_of_the_readme_are_one_line_each():
    lines = [text.strip() for kind, text in BLOCKS if kind == "sh"]
    assert [line.count("\n") for line in lines] == [0, 0]
    assert lines[0].endswith("hbench demo")
    assert ".[test]" in lines[1]
    assert "-m pytest" in lines[1]


def test_the_board_of_the_first_screen_is_the_leaderboards():
    rows = {row.method: row for row in read_board("grocery").rows}
    header = re.search(r"^\| board `grocery`, percent \| (.+) \|$", README, re.MULTILINE)[1]
    shown = re.findall(r"^\| (\S[^|]+?) \| ([\d. |]+) \|$", README, re.MULTILINE)
    assert len(shown) == 3
    for method, values in shown:
        scores = rows[method].scores
        printed = [f"{scores[metric]:.1f}" for metric in header.split(" | ")]
        assert values.split(" | ") == printed, method


def test_the_readme_and_the_change_log_are_short():
    assert len(README.splitlines()) <= 120
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_readme_names_every_verb_and_only_metrics_that_exist():
    from hbench.cli import VERBS
    from hbench.metrics.names import MetricName

    named = set(re.findall(r"(?:\$|`)\s?hbench ([a-z][a-z0-9-]*)", README))
    assert named == set(VERBS), named ^ set(VERBS)
    section = README.split("## Metrics")[1].split("Every mean")[0]
    for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE):
        for spelling in re.findall(r"`([^`]+)`", row):
            assert str(MetricName.parse(spelling)) == spelling


def test_the_files_the_readme_links_to_are_there():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        path, _, heading = target.partition("#")
        assert (ROOT / path).exists(), target
        headings = (
            re.findall(r"^#+ (.+)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
            if heading
            else []
        )
        slugs = [re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings]
        assert not heading or heading in slugs, target
