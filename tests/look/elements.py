"""Reads values off the elements of a page, and checks what holds of every page."""


def each(page, selector, expression):
    """The value of a JavaScript expression for every element `e` that a selector finds."""
    return page.locator(selector).evaluate_all(f"all => all.map(e => {expression})")


def check_page(page, findings):
    """A page fits its window, holds no picture or script from outside, has one title and a link to skip to it; axe is content."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("img").count() == 0
    assert page.locator("script:not([src])").count() == 0
    assert page.locator("h1").count() == 1
    assert findings(page) == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
