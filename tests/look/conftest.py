"""Opens pages of a folder in a real browser, and checks that they request nothing outside it and log no error."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import hbench
from tests.look.plotting import METRICS, NASTY, embedded, write_boards, write_table


class Opened:
    """A page with its requests and console messages; `within`: the beginnings of the addresses that it may request."""

    def __init__(self, browser, address, within, width=1440, scheme="light", errors=False):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page, self.asked, self.said, self.within = context.new_page(), [], [], within
        self.errors = errors
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.goto(address)

    def close(self, name):
        """Check that nothing was logged, and nothing requested outside the folder; keep a screenshot where CI asks for it."""
        if folder := os.environ.get("HBENCH_SCREENSHOTS"):
            self.page.screenshot(path=Path(folder) / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}.png", full_page=True)
        assert self.errors or self.said == []
        assert self.asked
        assert [url for url in self.asked if not url.startswith((*self.within, "blob:"))] == []
        self.page.context.close()


@pytest.fixture
def opened(browser, request):
    """Open a page by its path."""
    made = []

    def open_page(path, within=None, **options):
        made.append(Opened(browser, path.as_uri(), within or (path.parent.as_uri(),), **options))
        return made[-1].page

    yield open_page
    for number, each in enumerate(made):
        each.close(f"{request.node.name}-{number}")


@pytest.fixture(scope="session")
def plotted(tmp_path_factory):
    """A dataset, two embedding files and their reports with values by query, a leaderboard and logs; some names are markup."""
    folder = tmp_path_factory.mktemp("plots")
    data = write_table(folder, family=NASTY + "{}")
    for name, noise, method in (("one", 1.0, NASTY), ("two", 2.0, "two")):
        embedded(folder / f"{name}.parquet", data, noise)
        report = hbench.evaluate(folder / f"{name}.parquet", data, metrics=METRICS, method=method)
        report.write(folder / f"{name}.json")
        report.write_by_query(folder / f"{name}.by-query.parquet")
    write_boards(folder)
    return folder
