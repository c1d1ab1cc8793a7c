"""Opens pages of a folder in a real browser, and checks that they request nothing outside it and
log no error.
"""

import pytest

import hbench
from tests.look.elements import Opened
from tests.look.plotting import (
    METRICS,
    NASTY,
    embedded,
    write_answers,
    write_boards,
    write_sizes,
    write_table,
)


@pytest.fixture(scope="module")
def context(browser):
    """One for all pages of a module, which share what they keep in the browser."""
    context = browser.new_context()
    yield context
    context.close()


@pytest.fixture(scope="module")
def empty_pages():
    """Pages that no test uses now, with nothing kept: one that is there opens a file in half the
    time of a new one.
    """
    return []


@pytest.fixture
def opened(context, empty_pages, request):
    """Open a page by its path."""
    made = []

    def open_page(path, within=None, **options):
        page = empty_pages.pop() if empty_pages else context.new_page()
        made.append(Opened(page, path.as_uri(), within or (path.parent.as_uri(),), **options))
        return made[-1].page

    yield open_page
    for number, each in enumerate(made):
        each.close(f"{request.node.name}-{number}")
        empty_pages.append(each.page)


@pytest.fixture(scope="session")
def plotted(tmp_path_factory):
    """A dataset, two embedding files and their reports with values by query, a leaderboard and
    logs; some names are markup.
    """
    folder = tmp_path_factory.mktemp("plots")
    data = write_table(folder, family=NASTY + "{}")
    for name, noise, method in (("one", 1.0, NASTY), ("two", 2.0, "two")):
        embedded(folder / f"{name}.parquet", data, noise)
        report = hbench.evaluate(folder / f"{name}.parquet", data, metrics=METRICS, method=method)
        report.write(folder / f"{name}.json")
        report.write_by_query(folder / f"{name}.by-query.parquet")
    write_boards(folder)
    write_answers(folder)
    write_sizes(folder)
    return folder
