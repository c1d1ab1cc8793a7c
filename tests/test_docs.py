"""Every block of docs/ does what it says.

`console` and `python` blocks run, in order, in one folder a page. `sh` blocks need benchmarks and
weights from the network: their verbs and options are checked, as are the keys of `toml`, and with
stand-ins they run in tests/test_docs_stand_ins.py.
"""

import inspect
import pydoc
import re
import shutil
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import pytest

import hbench
from hbench.cli import group
from hbench.datasets import specs
from tests.command_line import process
from tests.page import blocks, commands

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
ELSEWHERE = {  # pages whose commands are run by others
    "gallery",  # docs/pictures/gallery.py, which keeps what they draw
    "own-pictures",  # tests/train/test_own_pictures.py, which brings pretrained weights
}
LONGEST = 150  # lines of a page, so that it is read to its end
LONGER = {"gallery", "labels"}  # of pictures; one that branches
TRIED = "test_the_blocks_of_a_page_run_in_order"
LONG = {"training", "look", "labels"}
KINDS = {"console", "python", "sh", "toml", "yaml", "csv", "text", "bibtex", "math"}


def of_kind(kind):
    found = [
        (page, text)
        for page in PAGES
        for each, text in blocks(page)
        if each == kind or (kind == "sh" and each == "console" and page.stem in ELSEWHERE)
    ]
    return pytest.mark.parametrize(
        ("page", "text"), found, ids=[f"{page.stem}-{at}" for at, (page, _) in enumerate(found)]
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_says_what_it_is(page):
    assert {kind for kind, _ in blocks(page)} <= KINDS
    outside = "".join(page.read_text(encoding="utf-8").split("```")[::2])
    assert not [line for line in outside.splitlines() if line.startswith("    hbench ")]


RUN = [
    page
    for page in PAGES
    if {"console", "python"} & {kind for kind, _ in blocks(page)} and page.stem not in ELSEWHERE
]


def run_of(page, demo, folder):
    """The process that ran the blocks of a page, in a folder of its own."""
    work = folder / "work"
    work.mkdir()
    if "$ hbench demo\n" in page.read_text(encoding="utf-8"):
        shutil.copytree(demo.folder / "hbench-demo", work / "hbench-demo")
    return process("-m", "tests.page", page, folder=work, HBENCH_DATA=folder / "data")


@pytest.fixture(scope="module")
def runs(request, demo, tmp_path_factory):
    """The runs of all pages that are asked for, two at a time, those of most commands first: much
    of a command waits for one processor."""
    requested = [
        item.callspec.params["page"]
        for item in request.session.items
        if getattr(item, "originalname", None) == TRIED
    ]
    requested.sort(key=lambda page: page.stem not in LONG)
    with ThreadPoolExecutor(2) as pool:
        yield {
            page: pool.submit(run_of, page, demo, tmp_path_factory.mktemp(page.stem))
            for page in requested
        }


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_in_order(page, runs):
    assert runs[page].result().returncode == 0


def parsed(command, words):
    """The words as the verb takes them, down to the last group; nothing is run."""
    context = command.make_context("hbench", list(words), resilient_parsing=False)
    if isinstance(command, click.Group):
        name, following, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert following is not None, name
        parsed(following, rest)


@of_kind("sh")
def test_the_verbs_and_options_of_what_cannot_run_here_exist(page, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for program, *words in commands(text):
        if ">" in words:  # what follows is the shell's
            words = words[: words.index(">")]
        if program == "hbench":
            for word in words:  # files and folders that exist, where a verb looks at once
                if word.endswith((".csv", ".json", ".parquet")) and not word.startswith("-"):
                    Path(word).parent.mkdir(parents=True, exist_ok=True)
                    Path(word).touch()
                elif re.fullmatch(r"\w+(/\w+)+", word):
                    Path(word).mkdir(parents=True, exist_ok=True)
            parsed(group, words)
        else:
            assert program in {
                "torchrun",
                "source",
                "eval",
                "python",
                "python3",
                "pip",
                "make",
                ".ci/run",
            }, program


def test_a_page_is_short_and_says_first_what_it_is_for():
    for page in PAGES:
        title, blank, first, *rest = page.read_text(encoding="utf-8").splitlines()
        assert title.startswith("# "), page.name
        assert not blank, page.name
        assert first[:1].isalnum() or first.startswith("*"), (
            f"{page.name} begins with something else than a sentence"
        )
        assert page.stem in LONGER or 3 + len(rest) <= LONGEST, page.name


def test_the_source_archive_has_every_page_of_the_top_folder():
    lines = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
    included = {word for line in lines if line.startswith("include ") for word in line.split()}
    assert {page.name for page in ROOT.glob("*.md")} <= included


def test_files_that_pages_name_exist():
    for page in (
        *PAGES,
        ROOT / "CONTRIBUTING.md",
        ROOT / "README.md",
        ROOT / "leaderboards/README.md",
    ):
        text = page.read_text(encoding="utf-8")
        folders = "hbench|tests|docs|benchmarks|pipelines|examples|studies|leaderboards"
        for path in re.findall(rf"`((?:{folders})/[\w./-]+)`", text):
            assert "NAME" in path or "VERB" in path or (ROOT / path).exists(), (
                f"{page.name}: {path}"
            )


def test_every_page_is_in_the_navigation_once():
    listed = re.findall(
        r"^ +- .+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    made = re.search(
        r"^MADE = \((.*?)\)",
        (ROOT / "docs/site/hooks.py").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert sorted(listed) == sorted(
        [*(page.name for page in PAGES), *re.findall(r'"(.+?)"', made[1])]
    )


def test_the_first_page_leads_to_every_other():
    first = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert {page.name for page in PAGES} - set(re.findall(r"\]\((.+?\.md)", first)) == {"index.md"}


@of_kind("toml")
def test_settings_are_read(page, text):
    assert tomllib.loads(text)


def test_whatever_is_registered_has_its_place_in_the_docs():
    """A metric by its spelling, a dataset by its name; the pages of losses and cards are made from
    the code.
    """
    lines = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines()
    rows = {
        name
        for line in lines
        if line.startswith("| ")
        for name in line.split(" | ")[0].strip("| ").split(", ")
    }
    assert set(hbench.list_metrics()) <= rows
    assert not [
        name
        for name in specs
        if name not in (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8")
    ]


def test_the_page_of_python_has_every_public_name_with_its_first_sentence():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(hbench[\w.]+)` \| (.+) \|$", page, re.MULTILINE))
    assert {f"hbench.{name}" for name in dir(hbench)} - set(listed) == {"hbench.__version__"}
    for name, sentence in listed.items():
        text = inspect.getdoc(pydoc.locate(name))
        assert " ".join(text.split("\n\n")[0].split()) == sentence, name
