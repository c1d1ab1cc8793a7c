"""The review page for everyone: by Tab and arrow keys, for screen readers, for fingers, and with
thousands of cards.
"""

import pytest

from tests.pipelines.review_pages import CLUSTERS, HOSTILE, card, keys, material_of, titles

DIALOGS = ("n", "b", "Shift+H", "i", "?")  # the keys that open one
SMALL = """() => [...document.querySelectorAll("button, a, select, input, [role=option]")]
    .map(e => e.matches("[type=checkbox], [type=radio]") ? e.closest("label") : e)
    .filter(e => e.checkVisibility() && !e.matches(".visually-hidden, .skip"))
    .filter(e => e.getBoundingClientRect().width < 24 || e.getBoundingClientRect().height < 24)
    .map(e => e.outerHTML)"""
NESTED = (
    "button button, button a, [role=option] :is(button, a, input, select, [tabindex]), a button"
)
OVERFLOWS = """() => [document.documentElement, document.querySelector("dialog[open]")]
    .filter(e => e.scrollWidth > e.clientWidth || e.getBoundingClientRect().left < 0
        || e.getBoundingClientRect().right > innerWidth)
    .map(e => e.id || e.tagName)"""
OVERLAPS = """() => {
    const boxes = [...document.querySelectorAll("#cards .card")].map(e => e.getBoundingClientRect());
    return boxes.filter((a, i) => boxes.some((b, j) => i < j && a.left < b.right - 1 && b.left < a.right - 1
        && a.top < b.bottom - 1 && b.top < a.bottom - 1)).length;
}"""


def current(page):
    """The label that a screen reader hears: the active descendant of the list that has the
    keyboard.
    """
    name = "document.activeElement.getAttribute('aria-activedescendant')"
    return page.evaluate(f"document.getElementById({name})?.dataset.id")


def tab_to_a_label(page):
    """Press Tab until the keyboard is on a label; return the texts of what it was on, the label
    last.
    """
    visited = []
    for _ in range(40):
        keys(page, "Tab")
        visited.append(page.evaluate("document.activeElement.textContent.trim()"))
        if current(page):
            break
    return visited


def test_tab_reaches_the_current_card_its_buttons_and_its_labels(page):
    keys(page, "Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    visited = tab_to_a_label(page)
    assert current(page) == "Q1"
    assert visited[-9:-1] == [
        "church",
        "ruins",
        "ocean area",
        "Name…",
        "Move…",
        "Ambiguous…",
        "Details…",
        "Drop all",
    ]
    assert page.locator("[role=listbox][tabindex='0']").count() == 1


def test_arrow_keys_walk_along_the_labels_of_a_card_and_from_card_to_card(page):
    tab_to_a_label(page)
    keys(page, "ArrowDown")
    assert current(page) == "Q2"
    keys(page, "End")
    assert current(page) == "Q4"
    keys(page, "ArrowRight")
    assert current(page) == "Q101"
    assert page.locator("[role=listbox][tabindex='0']").count() == 1


def test_enter_presses_the_button_that_has_the_keyboard(page):
    tab_to_a_label(page)
    keys(page, "ArrowRight", "Shift+Tab")
    assert page.evaluate("document.activeElement.textContent") == "Drop all"
    keys(page, "Enter")  # the button, not the suggestion that Enter takes on a label
    assert card(page, "Dropped").locator(".row").count() == 3
    # the button is gone, and the keyboard is on the card that follows
    assert current(page) == "Q201"


def test_the_skip_link_a_dialog_and_a_decision_leave_the_keyboard_on_a_label(page):
    keys(page, "Tab", "Enter")
    assert current(page) == "Q1"
    keys(page, "m")
    assert (
        page.evaluate("document.activeElement.getAttribute('aria-activedescendant')") == "choice0"
    )
    keys(page, "Enter")
    page.locator("#cards [role=listbox]:focus").wait_for()
    assert current(page) == "Q2"
    keys(page, "Enter")
    assert current(page) == "Q101"
    keys(page, "u")
    assert current(page)


def test_a_box_takes_space_and_not_the_label_that_is_current(page):
    keys(page, "Tab", "Enter")
    page.focus("#open-only")
    keys(page, "Space")
    assert page.is_checked("#open-only")
    assert page.locator(".row[aria-selected=true]").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_axe_finds_nothing_serious_targets_are_large_enough_and_nothing_overflows(
    opened, findings, width, scheme
):
    clusters = [*CLUSTERS, ["unbreakable" * 30, *HOSTILE], [f"label {n}" for n in range(100)]]
    page = opened(material_of(clusters), width=width)
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    keys(page, "Enter", "x")
    assert findings(page) == []
    assert page.evaluate(SMALL) == []
    assert page.locator(NESTED).count() == 0
    for key in DIALOGS:
        keys(page, key)
        assert page.locator("dialog[open]").count() == 1
        assert findings(page) == []
        assert page.evaluate(SMALL) == []
        assert page.evaluate(OVERFLOWS) == []
        keys(page, "Escape")
        page.locator("#cards [role=listbox]:focus").wait_for()


@pytest.mark.parametrize("width", [390, 1440])
def test_of_many_cards_those_near_the_window_are_there_and_scrolling_meets_all(opened, width):
    sizes = [1 + 7 * n % 23 for n in range(150)]
    material = material_of(
        [[f"label {n} {i}" for i in range(size)] for n, size in enumerate(sizes)]
    )
    page = opened(material, width=width)
    met: dict[str, None] = {}
    for _ in range(400):
        met |= dict.fromkeys(titles(page))
        assert page.evaluate(OVERLAPS) == 0
        assert page.evaluate("document.querySelectorAll('*').length") < 2500
        if page.evaluate("scrollY + innerHeight >= document.documentElement.scrollHeight - 1"):
            break
        page.evaluate("window.scrollBy(0, 700); draw()")
    assert len(met) == len(sizes)
    keys(page, "ArrowRight")  # the current card is kept, far above
    box = page.locator(".card.current").bounding_box()
    assert box is not None
    assert 0 <= box["y"] < 800


def test_a_page_of_five_thousand_cards_stays_small(opened):
    page = opened(material_of([[f"one {n}"] for n in range(5000)]))
    assert page.evaluate("document.querySelectorAll('*').length") < 3000
    page.evaluate("turn(1e9)")
    assert page.evaluate("document.querySelectorAll('*').length") < 3000
    assert page.locator(".card.current h3").text_content() == "one 4999 …"


def test_a_card_of_twenty_thousand_labels_stays_small(opened):
    page = opened(material_of([[f"label {n}" for n in range(20000)]]))
    assert page.evaluate("document.querySelectorAll('*').length") < 2000
    keys(page, "End")
    assert page.locator(".row.at .name").text_content() == "label 19999"
    assert page.locator(".row.at").get_attribute("aria-posinset") == "20000"
    assert page.locator("#cards .row").count() <= 60
    page.click("text=‹ before")
    assert page.locator(".pager").text_content() == "19,921–19,980 of 20,000‹ beforenext ›"


def test_a_card_of_twenty_thousand_labels_is_decided_and_undone_whole(opened):
    page = opened(material_of([[f"label {n}" for n in range(20000)]]))
    keys(page, "Enter")
    assert page.get_attribute("body", "data-decided") == "20000"
    keys(page, "u")
    assert page.get_attribute("body", "data-decided") == "0"


def test_a_card_that_is_clicked_stays_where_it_is_though_the_one_above_shrinks(opened):
    page = opened(
        material_of([[f"label {n} {i}" for i in range(59)] for n in range(30)]), width=390
    )
    keys(page, "ArrowDown")
    page.evaluate("window.scrollTo(0, topOf('c:1') + scrollY - 300); draw()")
    second = page.locator(".card[data-card='c:1'] h3")
    before = second.bounding_box()
    second.click()
    page.wait_for_selector(".card.current[data-card='c:1']")
    assert page.locator("#cards .card[data-card='c:0'] .row").count() in {0, 12}
    assert second.bounding_box() == before
