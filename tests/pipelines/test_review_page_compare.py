"""Two reviewers on the review page: κ, and the queue of what they disagree on."""

import random

import pytest
from hbench_hgldv2.curation import agreement, decisions_file
from hbench_hgldv2.curation.decisions import Decisions, Drop, Group, Move
from hbench_hgldv2.curation.replay import LabelPlace, replay

from tests.pipelines.review_pages import CLUSTERS, exported, keys, material_of, places

GROUPS = {name: Group(kind="natural") for name in ("church", "monastery", "<b>x</b>")}


def decided(by, places):
    """A reviewer's decisions: each label to its group, "" for dropped."""
    made = [
        Move(id=f"{by}{n}", by=by, op="move", labels=(label,), to=group)
        if group
        else Drop(id=f"{by}{n}", by=by, op="drop", labels=(label,))
        for n, (label, group) in enumerate(places.items())
    ]
    return Decisions(groups=GROUPS, decisions=tuple(made))


A = {
    "Q1": "church",
    "Q2": "church",
    "Q3": "church",
    "Q4": "monastery",
    "Q101": "",
    "Q302": "church",
}
B = {
    "Q1": "church",
    "Q2": "church",
    "Q3": "monastery",
    "Q4": "",
    "Q101": "",
    "Q302": "<b>x</b>",
    "Q201": "church",
}


@pytest.fixture
def compared(opened):
    material = material_of(CLUSTERS, decided("A", A))
    material = material._replace(other="B", other_decisions=decided("B", B))
    return opened(material), material


def agreement_of(material):
    """What the pipeline finds between A and B."""
    rows = [
        replay(material.labels, material.clusters, decided(*who)).rows
        for who in (("A", A), ("B", B))
    ]
    return agreement.compare(*rows, material.labels)


def test_the_page_shows_the_kappa_of_the_pipeline(compared):
    page, material = compared
    expected = agreement_of(material)
    assert (
        page.text_content("#queue")
        == f"B: κ {expected.kappa:.3f}, {len(expected.queue)} to talk about"
    )
    keys(page, "q")
    facts = (page.text_content("#disputes-facts") or "").replace("\u00a0", " ")
    assert f"{expected.labels} labels placed by both, {expected.observed:.3f}" in facts
    assert f"κ {expected.kappa:.3f}. By landmarks {expected.weighted_observed:.3f}" in facts
    assert f"κ {expected.weighted_kappa:.3f}." in facts


def test_the_page_shows_the_queue_of_the_pipeline_with_names_as_text(compared):
    page, material = compared
    expected = agreement_of(material)
    keys(page, "q")
    listed = page.locator("#disputes-list li").evaluate_all(
        "items => items.map(item => item.dataset.id)"
    )
    weight = {label.class_id: label.landmarks for label in material.labels}
    assert sorted(listed) == sorted(row.class_id for row in expected.queue)
    assert [weight[label] for label in listed] == [row.landmarks for row in expected.queue]
    assert page.locator("#disputes b").count() == 0
    assert "“<b>x</b>”" in (page.text_content("#disputes-list") or "")


def test_a_disagreement_stands_with_its_label_and_is_found_from_the_queue(compared, findings):
    page, _ = compared
    assert page.locator(".row .dispute").all_text_contents() == [
        "B: “monastery”",
        "B: “<b>x</b>”",
        "B: dropped",
    ]
    page.click("#queue")
    assert findings(page) == []
    page.locator("#disputes-list li", has_text="chapel").get_by_text("Show").click()
    assert page.locator(".card.current .row.at .name").text_content() == "chapel"


def test_what_the_other_decided_is_taken_over_and_undone(compared):
    page, material = compared
    keys(page, "q")
    page.locator("#disputes-list li", has_text="chapel").locator("button:last-child").click()
    page.locator("#disputes-list li", has_text="priory").locator("button:last-child").click()
    assert page.locator("#disputes-list li").count() == 1
    page.locator("#disputes-list li").locator("button:last-child").click()
    assert page.text_content("#disputes-title") == "You and B agree"
    assert page.evaluate("document.activeElement.id") == "disputes-close"
    keys(page, "Enter")
    assert page.text_content("#queue") == "B: κ 1.000, 0 to talk about"
    found = places(material, decisions_file.loads(exported(page)))
    assert (found["chapel"], found["priory"], found["abbey"]) == (
        "monastery",
        "dropped",
        "<b>x</b>",
    )
    keys(page, "u")
    assert "1 to talk about" in (page.text_content("#queue") or "")


def test_an_export_of_the_same_page_is_compared_with(page, tmp_path):
    keys(page, "q")
    assert "another reviewer" in (page.text_content("#status") or "")
    page.fill("#reviewer", "B")
    keys(page, "Escape", "Enter")
    file = tmp_path / "b.yaml"
    file.write_text(exported(page), encoding="utf-8")
    keys(page, "u", "ArrowLeft", "d")
    page.set_input_files("#other-file", str(file))
    page.locator("#queue", has_text="1 to talk about").wait_for()
    assert page.text_content("#queue") == "B: κ 0.000, 1 to talk about"
    file.write_text("schema: 1\nnonsense\n", encoding="utf-8")
    page.set_input_files("#other-file", str(file))
    page.locator("#status", has_text="cannot compare").wait_for()
    assert page.text_content("#queue") == "B: κ 0.000, 1 to talk about"


def test_kappa_on_the_page_is_that_of_the_pipeline_on_random_places(page):
    rng = random.Random(0)
    for size in (1, 2, 5, 40, 200) * 4:
        kinds = rng.choice(["a", "ab", "abcdefgh"])
        triples = [[rng.choice(kinds), rng.choice(kinds), rng.randrange(4)] for _ in range(size)]
        pairs = [(LabelPlace("group", a), LabelPlace("group", b)) for a, b, _ in triples]
        expected = agreement.kappa(pairs, [weight for *_, weight in triples])
        found = page.evaluate("triples => kappaOf(triples).kappa", triples)
        assert found == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_a_reviewer_and_a_group_of_hostile_names_are_text_and_a_group_called_dropped_is_a_group(
    opened,
):
    name = '<img src=x onerror="document.title=1">'
    groups = {"dropped": Group(kind="natural")}
    mine = Decisions(groups=groups, decisions=(Drop(id="d1", op="drop", labels=("Q1",)),))
    other = Decisions(
        groups=groups, decisions=(Move(id="d1", op="move", labels=("Q1",), to="dropped"),)
    )
    material = material_of(CLUSTERS, mine)._replace(other=name, other_decisions=other)
    page = opened(material)
    assert page.text_content("#queue") == f"{name}: κ 0.000, 1 to talk about"
    assert page.locator(".row .dispute").text_content() == f"{name}: “dropped”"
    keys(page, "q")
    assert page.text_content("#disputes-title") == f"1 label to talk about with {name}"
    assert page.locator("#disputes img, #cards img").count() == 0
    assert page.title() == "Review of super-categories"
