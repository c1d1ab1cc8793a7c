"""Opens review pages in a real browser, and checks that they log no error and request nothing from the network."""

import pytest
from hbench_hgldv2.curation import review

from tests.pipelines.review_pages import MATERIAL


@pytest.fixture
def opened(browser, tmp_path):
    """Open the page of some material, or of a file."""
    pages, problems = [], []

    def open_page(shown, **size):
        file = tmp_path / "review.html" if isinstance(shown, review.Material) else shown
        if isinstance(shown, review.Material):
            file.write_text(review.page(shown), encoding="utf-8")
        page = browser.new_page(viewport={"width": 1200, "height": 800} | size, accept_downloads=True)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: problems.append(request.url) if request.url.startswith("http") else None)
        page.goto(file.as_uri())
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert problems == []


@pytest.fixture
def page(opened):
    """The page of MATERIAL."""
    return opened(MATERIAL)
