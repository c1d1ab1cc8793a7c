"""Review pages for tests: material to review, and what a page in Chromium shows and exports (conftest.py opens it)."""

import re
from pathlib import Path

from hbench_hgldv2.curation import review
from hbench_hgldv2.curation.decisions import Decisions
from hbench_hgldv2.curation.replay import replay, require_clean
from hbench_hgldv2.grouping.cluster import Clustered
from hbench_hgldv2.labels.label import Label
from playwright.sync_api import Locator, Page

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
    "<script>document.title='owned'</script>", "=cmd|' /C calc'!A0", "+1+1", "-2", "@SUM(A1)",
    '<img src=x onerror="document.title=1">', "\u202eright to left\u202c", "קתדרלה", "🏰🗼", "a\u2028b\u0085c",
    "</script><b>bold</b>", "{{ 7*7 }}", 'quote " and \\ slash', "&lt;b&gt;",
]  # fmt: skip


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


def exported(page: Page) -> str:
    with page.expect_download() as waiting:
        page.click("#export")
    return Path(waiting.value.path()).read_text(encoding="utf-8")


def titles(page: Page) -> list[str]:
    return page.locator("#cards .card h3").all_text_contents()


def card(page: Page, title: str) -> Locator:
    return page.locator(f"#cards .card:has(h3:text-is({title!r}))")


def keys(page: Page, *strokes: str) -> None:
    """Press each key, such as n, Enter or Control+z, and type every longer text."""
    for stroke in strokes:
        pressed = (
            len(stroke) == 1
            or stroke in {"Enter", "Escape", "Tab", "End", "Space"}
            or re.match("Arrow|Shift.|Control.", stroke)
        )
        (page.keyboard.press if pressed else page.keyboard.type)(stroke)


def places(material: review.Material, decisions: Decisions) -> dict[str, str]:
    curation = replay(material.labels, material.clusters, decisions)
    require_clean(curation)
    return {row.label: row.group or row.status for row in curation.rows}
