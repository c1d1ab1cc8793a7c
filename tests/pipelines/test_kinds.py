"""Kinds of groups other than natural and human-made: in the files, in the counts, and on the review
page.
"""

import csv
import json

import pytest
from hbench_hgldv2.curation.decisions import Decisions, Group
from hbench_hgldv2.labels.released import Released

from tests.command_line import call, refusal
from tests.pipelines.official import rows_of
from tests.pipelines.review_pages import MATERIAL, card, decided, keys, titles

BIRDS = {"1": "song thrush", "2": "wood thrush", "3": "barn owl", "4": "tawny owl"}
GROUPS = {"thrushes": {"kind": "songbird"}, "owls": {"kind": "bird of prey"}}
MOVES = [
    {"id": "d1", "op": "move", "labels": ["1", "2"], "to": "thrushes"},
    {"id": "d2", "op": "move", "labels": ["3", "4"], "to": "owls"},
]


def table(path, rows):
    with path.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows(rows)
    return path


@pytest.fixture
def work(tmp_path):
    """A work folder of four birds in two clusters."""
    rows = [("id", "label", "count"), *((i, label, 10) for i, label in BIRDS.items())]
    call("hgldv2", "--work", tmp_path, "clean", "--labels", table(tmp_path / "birds.csv", rows))
    call("hgldv2", "--work", tmp_path, "encode", "--encoder", "tfidf")
    call("hgldv2", "--work", tmp_path, "cluster", "--k", "2")
    return tmp_path


def decide(work, groups, decisions):
    text = json.dumps({"groups": groups, "decisions": decisions})  # JSON is YAML
    (work / "decisions.yaml").write_text(text, encoding="utf-8")


def test_decisions_on_an_own_table_replay_with_kinds_of_its_own(work):
    decide(work, GROUPS, MOVES)
    said = call("hgldv2", "--work", work, "replay", "--strict").stderr
    assert "groups by kind: 1 bird of prey, 1 songbird" in said
    placed = {row["class_id"]: (row["group"], row["kind"]) for row in rows_of(work / "mapping.csv")}
    assert placed == {
        "1": ("thrushes", "songbird"),
        "2": ("thrushes", "songbird"),
        "3": ("owls", "bird of prey"),
        "4": ("owls", "bird of prey"),
    }


def test_an_id_of_digits_without_quotes_is_refused_with_the_advice(work):
    (work / "decisions.yaml").write_text("decisions: [{id: d, op: drop, labels: [1, 2]}]")
    assert "an id of digits stands in quotes" in refusal("hgldv2", "--work", work, "replay")


@pytest.mark.parametrize("other", ["Songbird", "song-bird", "song bird"])
def test_a_kind_in_two_spellings_is_refused(work, other):
    decide(work, GROUPS | {"finches": {"kind": other}}, MOVES)
    said = refusal("hgldv2", "--work", work, "replay")
    assert f"kind {other!r} is 'songbird', written in another way" in said


def test_a_spelling_of_a_kind_of_landmarks_is_refused_next_to_the_other_one(work):
    decide(work, {"a": {"kind": "natural"}, "b": {"kind": "human made"}}, [])
    assert "is 'human-made'" in refusal("hgldv2", "--work", work, "replay")


def test_a_file_of_names_may_have_a_header_and_kinds_of_its_own(work, opened):
    names = table(work / "names.csv", [("name", "kind"), ("thrushes", "songbird"), ("owls", "owl")])
    call("hgldv2", "--work", work, "review", "--names", names)
    page = opened(work / "review.html")
    assert page.text_content("#legend") == "songbirdowl"
    keys(page, "n")
    assert "name" not in page.locator("#choices li").all_text_contents()


def test_labels_and_group_names_that_are_encoded_are_counted_apart(work):
    names = table(work / "names.csv", [("thrushes", "songbird"), ("owls", "owl")])
    said = call("hgldv2", "--work", work, "encode", "--encoder", "tfidf", "--names", names).stderr
    assert "4 labels and 2 group names" in said
    record = json.loads((work / "embeddings.npz.json").read_text(encoding="utf-8"))
    assert (record["counts"]["labels"], record["counts"]["groups"]) == (4, 2)


def test_the_statistics_count_the_kinds_of_a_file(tmp_path):
    rows = [Released._fields, (1, "", "robin", "thrushes", "songbird"), (2, "", "", "", "")]
    rows.append((3, "", "barn owl", "owls", "bird of prey"))
    file = table(tmp_path / "birds.csv", rows)
    words = ("--work", tmp_path, "statistics", "--released", "train", file, "--json")
    found = {row["what"]: row["found"] for row in json.loads(call("hgldv2", *words).stdout)}
    kinds = {"super-categories": 2, "bird of prey": 1, "songbird": 1}
    assert found == kinds | {"train landmarks": 2}
    drawn = (tmp_path / "statistics.svg").read_text(encoding="utf-8")
    assert ">train, bird of prey<" in drawn


def test_a_new_kind_is_typed_and_then_offered(page):
    keys(page, "n", "owls")
    page.fill("#picker-new-kind", "bird of prey")
    page.press("#picker-new-kind", "Enter")
    keys(page, "n")
    offered = page.locator("#picker-kinds label").all_text_contents()
    assert [kind.strip() for kind in offered] == ["human-made", "natural", "bird of prey"]
    keys(page, "Escape")
    assert decided(page).groups["owls"].kind == "bird of prey"


def test_another_spelling_of_a_kind_is_the_kind(page):
    keys(page, "n", "owls")
    page.fill("#picker-new-kind", "Human made")
    page.press("#picker-new-kind", "Enter")
    assert decided(page).groups["owls"].kind == "human-made"


def test_t_goes_through_all_kinds(opened):
    groups = {name: Group(kind=name) for name in ("songbird", "raptor", "wader")}
    page = opened(MATERIAL._replace(known_kinds={}, decisions=Decisions(groups=groups)))
    keys(page, "n", "thrushes", "Enter")
    card(page, "thrushes").locator("h3").click()
    shown = []
    for _ in range(3):
        keys(page, "t")
        shown.append(card(page, "thrushes").locator(".tag").first.text_content())
    assert shown == ["raptor", "wader", "songbird"]


def test_the_page_of_an_own_table_counts_items_and_has_no_kinds_of_landmarks(work, opened):
    call("hgldv2", "--work", work, "review")
    page = opened(work / "review.html")
    assert page.text_content("#legend") == "all"
    assert page.text_content("#summary").endswith("% of items")
    assert "20 items" in page.locator(".card .facts").first.text_content()
    keys(page, "Enter")
    decisions = decided(page)
    assert [group.kind for group in decisions.groups.values()] == ["all"]
    assert set(decisions.decisions[0].members_of) <= set(BIRDS)
    assert len(titles(page)) == 2


def test_a_group_that_is_suggested_without_a_kind_gets_the_first_kind(opened):
    page = opened(MATERIAL._replace(known_kinds={"church": "", "lake": "natural"}))
    keys(page, "Enter")
    assert decided(page).groups["church"].kind == "human-made"
