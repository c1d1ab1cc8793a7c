"""Review pages for tests: material to review, and what a page in Chromium shows and exports
(conftest.py opens it).
"""

import re
from pathlib import Path

from hbench_hgldv2.curation import decisions_file, review
from hbench_hgldv2.curation.decisions import Decisions
from hbench_hgldv2.curation.replay import replay, require_clean
from hbench_hgldv2.grouping.fit import Clustered
from hbench_hgldv2.labels.label import Label

CLUSTERS = [
    ["church building", "cathedral", "chapel", "priory"],
    ["castle", "fort", "palace"],
    ["lake", "river"],
    ["church ruin", "abbey"],
]
KINDS = dict.fromkeys(("church", "castle / fort", "ruins"), "human-made")
KINDS |= dict.fromkeys(("lake", "ocean area "), "natural")
HOSTILE = [
    "<script>document.title='owned'</script>", "=cmd|' /C calc'!A0", "+1+1", "-2", "@SUM(A1)",
    '<img src=x onerror="document.title=1">', "\u202eright to left\u202c", "קתדרלה", "🏰🗼",
    "a\u2028b\u0085c",
    "</script><b>bold</b>", "{{ 7*7 }}", 'quote " and \\ slash', "&lt;b&gt;",
]  # fmt: skip


def material_of(clusters, decisions=None, suggestion="church"):
    labels, clustered = [], []
    for cluster, names in enumerate(clusters):
        for place, name in enumerate(names):
            class_id = f"Q{100 * cluster + place + 1}"
            labels.append(
                Label(class_id, name, 10 * (len(clusters) - cluster), place, 0, (f"{name} 1", "=2"))
            )
            clustered.append(
                Clustered(class_id, cluster, names[0], 0.1, 0.2 - 0.1 * place, 0, 0.05, False)
            )
    suggestions = {label.class_id: (suggestion, "ruins", "ocean area ") for label in labels}
    return review.Material(labels, clustered, suggestions, KINDS, decisions or Decisions())


MATERIAL = material_of(CLUSTERS)


def exported(page):
    with page.expect_download() as waiting:
        page.click("#export")
    return Path(waiting.value.path()).read_text(encoding="utf-8")


def decided(page):
    """The decisions that a page exports; written again they are the same bytes."""
    text = exported(page)
    decisions = decisions_file.loads(text)
    assert decisions_file.dumps(decisions) == text
    return decisions


def titles(page):
    return page.locator("#cards .card h3").all_text_contents()


def card(page, title):
    return page.locator(f"#cards .card:has(h3:text-is({title!r}))")


def keys(page, *strokes):
    """Press each key, such as n, Enter or Control+z, and type every longer text."""
    for stroke in strokes:
        is_key = len(stroke) == 1 or re.match(
            "(Enter|Escape|Tab|End|Space)$|Arrow|Shift.|Control.", stroke
        )
        (page.keyboard.press if is_key else page.keyboard.type)(stroke)


def places(material, decisions):
    curation = replay(material.labels, material.clusters, decisions)
    require_clean(curation)
    return {row.label: row.group or row.status for row in curation.rows}
