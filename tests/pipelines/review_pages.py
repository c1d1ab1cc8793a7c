"""Review pages for tests: material to review, and what a page in Chromium shows and exports."""

from __future__ import annotations

from pathlib import Path

from hbench_hgldv2.curation import review
from hbench_hgldv2.curation.decisions import Decisions
from hbench_hgldv2.curation.replay import replay, require_clean
from hbench_hgldv2.grouping.cluster import Clustered
from hbench_hgldv2.labels.label import Label
from playwright.sync_api import Browser, Locator, Page

CLUSTERS = [
    ["church building", "cathedral", "chapel", "priory"],
    ["castle", "fort", "palace"],
    ["lake", "river"],
    ["church ruin", "abbey"],
]
KINDS = {
    "church": "human-made",
    "castle / fort": "human-made",
    "lake": "natural",
    "ruins": "human-made",
    "ocean area ": "natural",
}
HOSTILE = [
    "<script>document.title='owned'</script>",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2",
    "@SUM(A1)",
    '<img src=x onerror="document.title=1">',
    "\u202eright to left\u202c",
    "קתדרלה",
    "🏰🗼",
    "a\u2028b\u0085c",
    "</script><b>bold</b>",
    "{{ 7*7 }}",
    'quote " and \\ slash',
    "&lt;b&gt;",
]


def material_of(
    clusters: list[list[str]], decisions: Decisions | None = None, suggestion: str = "church"
) -> review.Material:
    labels, clustered = [], []
    for cluster, names in enumerate(clusters):
        for place, name in enumerate(names):
            class_id = f"Q{100 * cluster + place + 1}"
            labels.append(Label(class_id, name, 10 * (len(clusters) - cluster), place, 0, (f"{name} 1", "=2")))
            clustered.append(Clustered(class_id, cluster, names[0], 0.1, 0.2 - 0.1 * place, 0, 0.05, False))
    suggestions = {label.class_id: (suggestion, "ruins", "ocean area ") for label in labels}
    return review.Material(labels, clustered, suggestions, KINDS, decisions or Decisions())


def opened(browser: Browser, tmp_path: Path, material: review.Material, **size: int) -> Page:
    file = tmp_path / "review.html"
    file.write_text(review.page(material), encoding="utf-8")
    return watched(browser, file, **size)


def watched(browser: Browser, file: Path, **size: int) -> Page:
    """The page of a file, with all that it complains of or asks the network for in `page.problems`."""
    page = browser.new_page(viewport={"width": 1200, "height": 800} | size, accept_downloads=True)
    page.problems = []  # type: ignore[attr-defined]
    page.on("pageerror", lambda error: page.problems.append(str(error)))  # type: ignore[attr-defined]
    page.on("console", lambda message: page.problems.append(message.text) if message.type == "error" else None)  # type: ignore[attr-defined]
    page.on("request", lambda request: page.problems.append(request.url) if request.url.startswith("http") else None)  # type: ignore[attr-defined]
    page.goto(file.as_uri())
    return page


def exported(page: Page) -> str:
    with page.expect_download() as waiting:
        page.click("#export")
    return Path(waiting.value.path()).read_text(encoding="utf-8")


def titles(page: Page) -> list[str]:
    return page.locator("#cards .card h3").all_text_contents()


def card(page: Page, title: str) -> Locator:
    return page.locator(f"#cards .card:has(h3:text-is({title!r}))")


def picked(page: Page, key: str, text: str) -> None:
    page.keyboard.press(key)
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def places(material: review.Material, decisions: Decisions) -> dict[str, str]:
    curation = replay(material.labels, material.clusters, decisions)
    require_clean(curation)
    return {row.label: row.group or row.status for row in curation.rows}
