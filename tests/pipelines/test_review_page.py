"""The review page, used by keyboard and mouse in a real Chromium."""

import random

from hbench_hgldv2.curation import decisions_file, review
from hbench_hgldv2.curation.decisions import Name, labels_named
from hbench_hgldv2.curation.replay import replay, require_clean
from hbench_hgldv2.labels.label import digest

from tests.pipelines.review_pages import (
    CLUSTERS,
    HOSTILE,
    MATERIAL,
    card,
    decided,
    exported,
    keys,
    material_of,
    places,
    titles,
)


def test_a_curator_names_moves_splits_merges_renames_drops_and_undoes_with_the_keyboard(page):
    page.fill("#reviewer", "A")
    keys(page, "Escape")
    keys(page, "Enter")  # the first cluster is church
    assert titles(page)[0] == "church"
    keys(page, "n", "castle / fort", "Enter")  # the next cluster, now current
    keys(page, "n", "water", "Enter", "ArrowLeft")
    keys(page, "t")  # water is natural
    keys(page, "r", "lake", "Enter", "ArrowRight", "n", "ruins", "Enter", "d", "u")
    card(page, "ruins").locator(".row", has_text="abbey").click()
    keys(page, "s", "monastery", "Enter")
    card(page, "church").locator(".row", has_text="priory").click()
    keys(page, "m", "monastery", "Enter")
    card(page, "monastery").locator("h3").click()
    keys(page, "g", "church", "Enter", "Control+z")
    card(page, "castle / fort").locator(".row", has_text="palace").click()
    keys(page, "d")
    decisions = decided(page)
    assert {decision.by for decision in decisions.decisions} == {"A"}
    ops = ["name", "name", "name", "set_kind", "rename", "name", "split", "move", "drop"]
    assert [decision.op for decision in decisions.decisions] == ops
    labels = {
        "church": ["church building", "cathedral", "chapel"], "monastery": ["abbey", "priory"],
        "ruins": ["church ruin"],
        "castle / fort": ["castle", "fort"], "dropped": ["palace"], "lake": ["lake", "river"],
    }  # fmt: skip
    assert places(MATERIAL, decisions) == {
        label: group for group, names in labels.items() for label in names
    }
    assert replay(MATERIAL.labels, MATERIAL.clusters, decisions).kinds["lake"] == "natural"


def test_rows_are_dragged_with_the_mouse_onto_a_group(page):
    keys(page, "Enter")
    row = page.locator(".row", has_text="palace").first
    row.drag_to(page.locator("nav [data-card='g:church']"))
    card(page, "lake …").locator("button", has_text="ruins").click()
    decisions = decided(page)
    found = places(MATERIAL, decisions)
    assert (found["palace"], found["castle"], found["lake"]) == ("church", "unassigned", "ruins")


def begin_on_abbey(page):
    """Open the dialog that marks abbey ambiguous."""
    card(page, "church ruin …").locator(".row", has_text="abbey").click()
    keys(page, "b")


def take_monastery(page):
    """Mark it, by keys, to be church or monastery, of which monastery is taken."""
    keys(page, "chur", "Enter", "monastery", "Enter")
    page.select_option("#ambiguous-use", "monastery")
    page.fill("#ambiguous-rule", "what the photo shows")
    keys(page, "Enter")


def leave_river_open(page):
    """Mark river, with the mouse, to be lake or ruins."""
    card(page, "lake …").locator(".row", has_text="river").click()
    card(page, "lake …").locator("button", has_text="Ambiguous").click()
    page.check("#ambiguous-choices label:has-text('lake') input")
    page.check("#ambiguous-choices label:has-text('ruins') input")
    page.click("#ambiguous-ok")


def left_open(page):
    """The labels that are ambiguous without a group to take."""
    return card(page, "Ambiguous, left open").locator(".row .name").all_text_contents()


def test_a_label_is_marked_ambiguous_with_a_group_to_take(page):
    begin_on_abbey(page)
    assert page.locator("#ambiguous-ok").is_disabled()
    take_monastery(page)
    keys(page, "Enter")  # what is left of the cluster is church
    decisions = decided(page)
    first, _ = decisions.decisions
    assert (first.op, first.choices, first.use) == (
        "ambiguous",
        ("church", "monastery"),
        "monastery",
    )
    assert first.rule == "what the photo shows"
    expected = {"abbey": "monastery", "church ruin": "church"}
    assert places(MATERIAL, decisions).items() >= expected.items()


def test_a_label_is_left_ambiguous_and_taken_back(page):
    leave_river_open(page)
    assert left_open(page) == ["river"]
    keys(page, "Enter")  # lake, now alone in its cluster
    decisions = decided(page)
    first, _ = decisions.decisions
    assert (first.choices, first.use) == (("lake", "ruins"), None)
    expected = {"lake": "church", "river": "unassigned"}
    assert places(MATERIAL, decisions).items() >= expected.items()
    keys(page, "u", "u")
    assert card(page, "lake …").locator(".row").count() == 2


def test_a_page_built_from_ambiguous_labels_exports_them_again(opened, page):
    begin_on_abbey(page)
    take_monastery(page)
    keys(page, "Enter")
    leave_river_open(page)
    assert page.get_attribute("body", "data-decided") == "3"
    keys(page, "Enter")
    decisions = decided(page)
    assert len(decisions.decisions) == 4
    again = opened(material_of(CLUSTERS, decisions))
    assert left_open(again) == ["river"]
    assert decided(again) == decisions


def test_links_span_cards_and_a_decision_says_why(page):
    page.locator(".row", has_text="priory").click()
    keys(page, "=")
    assert "two selected labels" in (page.text_content("#status") or "")
    page.locator(".row", has_text="abbey").click(modifiers=["Control"])
    assert "1 of them in other cards" in (page.text_content("#status") or "")
    keys(page, "=", "c", "both are houses of monks ", "Enter")
    page.locator(".row", has_text="church ruin").click()
    page.locator(".row", has_text="cathedral").click(modifiers=["Control"])
    keys(page, "!")
    assert page.locator(".row[aria-selected=true]").count() == 0
    keys(page, "Shift+H")
    assert (
        page.locator("#history-list li")
        .all_text_contents()[1]
        .startswith("must link priory, abbey d001")
    )
    page.click("#history-close")
    decisions = decided(page)
    assert [(d.op, d.labels, d.why) for d in decisions.decisions] == [
        ("must_link", ("Q4", "Q302"), "both are houses of monks"),
        ("cannot_link", ("Q2", "Q301"), None),
    ]
    keys(page, "u", "u", "y")
    assert decided(page).decisions == decisions.decisions[:1]


def test_selected_labels_take_their_own_suggestion_and_show_all_that_is_known(page):
    keys(page, "x")
    assert (
        page.locator(".row.at .suggested").text_content()
        == "nearest: 1 church  2 ruins  3 ocean area   "
    )
    keys(page, "2")
    assert card(page, "ruins").locator(".row .name").all_text_contents() == ["church building"]
    assert card(page, "ruins").locator(".hint").all_text_contents() == ["→ church?"]
    card(page, "ruins").locator("h3").click()
    keys(page, "i")
    rows = page.locator("#details-table tr")
    output = dict(
        rows.evaluate_all("rows => rows.map(r => [...r.children].map(c => c.textContent))")
    )
    told = {"class id": "Q1", "silhouette": "0.2000", "suggestions": "church, ruins, ocean area "}
    assert output.items() >= told.items()
    assert (
        "move church building → “ruins”" in page.locator("#details-list li").all_text_contents()[0]
    )
    page.click("#details-close")
    keys(page, "1")  # without a selection too: a group has no name to accept
    assert places(MATERIAL, decided(page))["church building"] == "church"


def test_an_approval_is_shown_until_the_group_changes(page):
    keys(page, "Enter")
    card(page, "church").locator("h3").click()
    keys(page, "v")
    assert "initials" in (page.text_content("#status") or "")
    keys(page, "A", "Escape", "v")
    card(page, "church").locator(".tag.approved").wait_for()
    keys(page, "d")
    card(page, "church").locator(".tag.stale").wait_for()
    keys(page, "u")
    card(page, "church").locator(".tag.approved").wait_for()


def test_an_export_opened_again_exports_the_same_bytes_and_so_does_a_page_built_from_it(
    opened, page, tmp_path
):
    page.fill("#reviewer", "B")
    keys(page, "Escape", "Enter", "n", 'new / group: "x" ', "Enter", "ArrowLeft", "v")
    page.locator("#status", has_text="approved").wait_for()
    file = tmp_path / "decisions.yaml"
    file.write_text(exported(page), encoding="utf-8")
    page.evaluate("localStorage.clear()")
    again = opened(MATERIAL)
    again.set_input_files("#file", str(file))
    again.locator("body:not([data-decided='0'])").wait_for()
    assert exported(again) == file.read_text(encoding="utf-8")
    again.evaluate("localStorage.clear()")
    decisions = decisions_file.load(file)
    built = material_of(CLUSTERS, decisions)
    curation = replay(built.labels, built.clusters, decisions)
    (approval,) = decisions.approvals
    assert approval.sha256_of_members == digest(curation.groups()[approval.group])
    assert not curation.stale
    assert exported(opened(built)) == file.read_text(encoding="utf-8")


def test_work_survives_a_closed_tab(browser, tmp_path):
    context = browser.new_context(accept_downloads=True)
    file = tmp_path / "review.html"
    file.write_text(review.page(MATERIAL), encoding="utf-8")
    first = context.new_page()
    first.goto(file.as_uri())
    keys(first, "Enter")
    text = exported(first)
    first.close()
    second = context.new_page()
    second.goto(file.as_uri())
    assert "church" in titles(second)
    assert exported(second) == text
    context.close()


def test_hostile_labels_stay_text_in_the_page(opened):
    material = material_of([HOSTILE, [*HOSTILE[::-1], "plain"]], suggestion="=1+1")
    page = opened(material)
    shown = page.locator("#cards .card").first.locator(".row .name").all_text_contents()
    assert shown == HOSTILE
    assert page.title() == "Review of super-categories"
    assert page.locator("#cards b, #cards img, #cards script").count() == 0
    keys(page, "n", "<i>x</i>\t= 1", "Enter")
    text = exported(page)
    assert page.locator("nav i").count() == 0
    decisions = decisions_file.loads(text)
    assert decisions_file.dumps(decisions) == text


def test_search_narrows_the_cards_and_marks_what_matches(page):
    keys(page, "/", "chURch r")
    assert page.locator("#cards .row").count() == 1
    assert page.locator("mark").first.text_content() == "church r"
    page.fill("#search", "q201")
    assert page.locator("#cards .row .name").all_text_contents() == ["lake"]
    page.fill("#search", "nothing like it")
    assert page.locator("#empty").is_visible()
    page.fill("#search", "")
    assert page.locator("#cards .row").count() == sum(map(len, CLUSTERS))


def test_the_page_and_the_replay_agree_on_random_decisions(opened):
    material = material_of([[f"l{c} {n}" for n in range(6)] for c in range(5)])
    page = opened(material)
    for seed in range(12):
        page.evaluate("localStorage.clear()")
        page.reload()
        randomly(page, random.Random(seed))
        decisions = decisions_file.loads(page.evaluate("exportText(model, data.inputs)"))
        state = page.evaluate(
            "Object.fromEntries([...model.places].map(([id, p]) => [id, p.group || p.status]))"
        )
        curation = replay(material.labels, material.clusters, decisions)
        require_clean(curation)
        assert {row.class_id: row.group or row.status for row in curation.rows} == state
        kinds = page.evaluate("Object.fromEntries(model.kinds)")
        assert curation.kinds == kinds
        assert all(len(labels_named(d)) for d in decisions.decisions if isinstance(d, Name))


def randomly(page, rng):
    """Twenty random actions through the functions that keys and buttons call."""
    groups = ["a", "b ", "c / d", "e"]
    for _ in range(20):
        group = rng.choice(groups)
        kind = rng.choice(["natural", "human-made"])
        card = (
            f"focusCard(visibleCards()[{rng.randrange(9)} % visibleCards().length]); "
            f"step({rng.randrange(4)});"
        )
        calls = ("nameCard", "moveTo", "mergeInto", "rename", "splitOff")
        actions = [f"{call}({group!r}, {kind!r})" for call in calls]
        actions.append(
            f"setAmbiguous(chosen(), {{choices: [{group!r}, 'f'], use: {rng.choice(['', 'f'])!r}, "
            "rule: ''})"
        )
        actions += [
            "drop(chosen())",
            "toggleKind()",
            "selectAll()",
            "toggle()",
            "stepBack()",
            "stepForward()",
        ]
        action = rng.choice(actions)
        page.evaluate(f"{{ {card} {action} }}")
