"""Opens review pages in a real browser, and checks that they log no error and request nothing from
the network.
"""

import pytest
from hbench_hgldv2.curation import review

from tests.look.elements import Opened
from tests.pipelines.review_pages import MATERIAL


@pytest.fixture
def opened(browser, tmp_path, request):
    """Open the page of some material, or of a file."""
    made = []

    def open_page(shown, **options):
        file = tmp_path / "review.html" if isinstance(shown, review.Material) else shown
        if isinstance(shown, review.Material):
            file.write_text(review.page(shown), encoding="utf-8")
        page = browser.new_page()  # of a context of its own: work is kept in the browser
        made.append(Opened(page, file.as_uri(), (file.parent.as_uri(),), **options))
        return made[-1].page

    yield open_page
    for number, own in enumerate(made):
        own.close(f"{request.node.name}-{number}")
        own.page.close()


@pytest.fixture
def page(opened):
    """The page of MATERIAL."""
    return opened(MATERIAL)
