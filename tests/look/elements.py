"""Opens pages in a real browser, reads values off their elements, and checks what holds of every
page.
"""

import os
import re
from pathlib import Path


class Opened:
    """A file in an empty page, with its requests and console messages; `within`: the beginnings of
    the addresses that it may request.
    """

    def __init__(self, page, address, within, width=1440, scheme="light", errors=False):
        self.page, self.asked, self.said, self.within = page, [], [], within
        self.errors = errors
        self.heard = {
            "request": lambda request: self.asked.append(request.url),
            "console": lambda message: self.said.append(message.text),
            "pageerror": lambda error: self.said.append(str(error)),
            "dialog": lambda dialog: self.said.append(dialog.message),
        }
        for event, hear in self.heard.items():
            page.on(event, hear)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.goto(address)

    def close(self, name):
        """Check that nothing was logged, and nothing requested outside the folder, and leave the
        page empty; keep a screenshot where CI asks for it.
        """
        if folder := os.environ.get("HBENCH_SCREENSHOTS"):
            self.page.screenshot(
                path=Path(folder) / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}.png", full_page=True
            )
        assert self.errors or self.said == []
        assert self.asked
        assert [url for url in self.asked if not url.startswith((*self.within, "blob:"))] == []
        for event, hear in self.heard.items():
            self.page.remove_listener(event, hear)
        self.page.evaluate("localStorage.clear()")  # the page of an audit keeps decisions
        self.page.goto("about:blank")


def each(page, selector, expression):
    """The value of a JavaScript expression for every element `e` that a selector finds."""
    return page.locator(selector).evaluate_all(f"all => all.map(e => {expression})")


def check_page(page, findings):
    """A page fits its window, holds no picture or script from outside, has one title and a link to
    skip to it; axe is content.
    """
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("img").count() == 0
    assert page.locator("script:not([src])").count() == 0
    assert page.locator("h1").count() == 1
    assert findings(page) == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
