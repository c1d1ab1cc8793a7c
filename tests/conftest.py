"""Fixtures of all tests: a real headless Chromium per module of page tests, and interrupts that
reach Python.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from filelock import FileLock

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-quic"),
]

# kernels of graphics cards run in numba's simulator, which is asked for before numba is loaded
os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")

# as a shell leaves it to what runs in its background
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# functions that start processes, and fixtures that do
PROCESSES = {"run", "process", "python", "lines_at_a_terminal", "subprocess", "Popen"}
BY_PROCESSES = {"demo", "own_loops"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that open a page, and those that start processes: `-m "not browser"`."""
    for item in items:
        fixtures = {*getattr(item, "fixturenames", ())}
        if "browser" in fixtures:
            item.add_marker("browser")
        code = getattr(getattr(item, "function", None), "__code__", None)
        if BY_PROCESSES & fixtures or (code is not None and PROCESSES & {*code.co_names}):
            item.add_marker("process")


@pytest.fixture(scope="module")  # an open playwright keeps an event loop: not for the whole session
def browser() -> Iterator[Browser]:
    """Skipped by name where no Chromium is installed, except under CI, which must have one."""
    from playwright.sync_api import sync_playwright

    chromium = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if chromium is None and not os.environ.get("CI"):
        pytest.skip(
            "no Chromium on PATH: the page tests need one (Debian: apt-get install chromium)"
        )
    assert chromium is not None, "CI has no Chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Small tensors cost more to share among threads than to compute."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def zoo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the dataset and the embeddings of tests/zoo.py, which nobody changes."""
    from tests import zoo

    folder = tmp_path_factory.mktemp("zoo")
    zoo.make(folder)
    return folder


class Demo(NamedTuple):
    """The folder in which `hbench demo` was run, and what it printed."""

    folder: Path
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """`hbench demo`, run once for all worker processes of the tests; nobody changes its folder."""
    from tests.command_line import run

    own = tmp_path_factory.getbasetemp()
    # pytest-xdist gives each worker a folder in that of all
    of_all = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    folder, printed = of_all / "demo", of_all / "demo.json"
    with FileLock(of_all / "demo.lock"):
        if not printed.exists():
            folder.mkdir(exist_ok=True)  # it is there if the demo failed in another process
            done = run("demo", folder=folder)
            printed.write_text(json.dumps([done.stdout, done.stderr]))
    return Demo(folder, *json.loads(printed.read_text()))


@pytest.fixture(scope="session")
def letters_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a dataset of a part of glyphs: about a thousand test items, not 11,164."""
    from hbench.datasets import save
    from tests.training import small_glyphs

    folder = tmp_path_factory.mktemp("data") / "letters"
    save(small_glyphs(train=60, test=80), folder)
    return folder


@pytest.fixture(scope="module")
def letters_by_name(letters_folder: Path) -> Iterator[None]:
    """Sets HBENCH_DATA for the tests of a module, so that `letters` names the dataset in
    `letters_folder`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HBENCH_DATA", str(letters_folder.parent))
        yield


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home of hbench: no data, no leaderboards, no sources of whoever runs the tests."""
    for variable in ("HBENCH_DATA", "HBENCH_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HBENCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def findings() -> Callable[[Page], list[tuple[str, list[str], str]]]:
    """What axe-core finds on a page that is serious or critical: the rule, the element, what to do
    about it.
    """
    from axe_playwright_python.sync_playwright import Axe

    def of(page: Page) -> list[tuple[str, list[str], str]]:
        options = {"preload": False, "resultTypes": ["violations"]}  # passes take long to collect
        found = Axe().run(page, options=options).response["violations"]
        return [
            (each["id"], node["target"], node.get("failureSummary"))
            for each in found
            if each["impact"] in {"serious", "critical"}
            for node in each["nodes"]
        ]

    return of


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte: a tmpfs, where this user may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False
    ).returncode:
        pytest.skip("this user may not mount a tmpfs")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)
