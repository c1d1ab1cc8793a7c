"""Reads values off the elements of a page."""


def each(page, selector, expression):
    """The value of a JavaScript expression for every element `e` that a selector finds."""
    return page.locator(selector).evaluate_all(f"all => all.map(e => {expression})")
