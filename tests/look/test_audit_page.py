"""The page of an audit: decisions by keys and buttons, kept, undone, exported, and built."""

import csv
import io
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import hbench
from hbench.core.errors import UsageError
from hbench.datasets.own.decisions import MERGE, LabelDecision
from hbench.look.audit import write_pages
from hbench.look.audit.earlier import decided_on
from hbench.submissions import embeddings
from tests.auditing.test_audit import audited, paths_of, zoo
from tests.command_line import call
from tests.look.elements import check_page, each
from tests.look.plotting import NASTY

KINDS = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures of some kinds of which twelve have a wrong label, two of them copies of each other,
    their vectors, and the table.
    """
    folder = tmp_path_factory.mktemp("birds")
    rng = np.random.default_rng(0)
    paths = [(f"order{n // 6}", f"{NASTY}, {n}") for n in range(KINDS)]
    true = np.repeat(np.arange(KINDS), 20)
    centres = rng.normal(size=(4, 16))[np.arange(KINDS) // 6] + 0.8 * rng.normal(size=(KINDS, 16))
    vectors = (centres[true] + 0.5 * rng.normal(size=(len(true), 16))).astype(np.float32)
    labels = true.copy()
    planted = rng.choice(len(true), 12, replace=False)
    labels[planted] = (labels[planted] + 6) % KINDS  # of another order
    first, second = planted[:2]
    true[second], vectors[second] = true[first], vectors[first]
    labels[second] = (labels[first] + 6) % KINDS
    ids = [f"i{n:03}.png" for n in range(len(true))]
    for item, kind in zip(ids, true.tolist(), strict=True):
        Image.new("RGB", (16, 16), (10 * kind, 90, 200)).save(folder / item)
    with (folder / "birds.csv").open("w", newline="") as file:
        rows = [(item, *paths[label]) for item, label in zip(ids, labels, strict=True)]
        csv.writer(file).writerows([("item", "order", "kind"), *rows])
    embeddings.write(folder / "v.parquet", ids, vectors)
    return folder, {ids[n]: (paths[labels[n]], paths[true[n]]) for n in planted}


@pytest.fixture(scope="module")
def audit(folder):
    return hbench.audit(folder[0] / "v.parquet", folder[0] / "birds.csv")


@pytest.fixture
def page(opened, audit, tmp_path):
    return opened(write_pages(audit, tmp_path / "audit"))


def exported(page):
    with page.expect_download() as saved:
        page.click("#export")
    text = saved.value.path().read_text("utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def test_the_page_shows_the_suspects_in_their_order(page, audit):
    suspects = "section:not(:has(#copies)) .case"
    shown = each(page, suspects, "[e.dataset.item, e.dataset.label, e.dataset.proposed]")
    table = audit.suspects.to_pylist()
    assert shown == [[row["item"], row["label"], row["proposed"]] for row in table]


def test_the_page_shows_the_copies_beside_each_other(page, audit):
    table = audit.copies.to_pylist()
    assert each(page, "section:has(#copies) .case", "[e.dataset.item, e.dataset.proposed]") == [
        [row["item"], row["copy_label"]] for row in table
    ]
    beside = page.locator("section:has(#copies) .case").first.locator(".tile")
    assert beside.count() == 2
    remark = page.locator("section:has(#copies) .case").first.locator(".said-by").last
    assert "the same vector" in remark.inner_text()


def test_of_copies_in_two_splits_the_one_that_trains_is_decided_about(opened, tmp_path):
    rng = np.random.default_rng(0)
    true = np.arange(120) % 6
    vectors = (rng.normal(size=(6, 16))[true] + 0.3 * rng.normal(size=(120, 16))).astype(np.float32)
    vectors[100] = vectors[7]
    ids = [f"i{n:03}" for n in range(120)]
    with (tmp_path / "t.csv").open("w", newline="") as file:
        rows = [
            (item, f"k{kind}", "train" if n >= 60 else "test")
            for n, (item, kind) in enumerate(zip(ids, true.tolist(), strict=True))
        ]
        csv.writer(file).writerows([("item", "kind", "split"), *rows])
    audit = hbench.audit(vectors, tmp_path / "t.csv", ids=ids)
    page = opened(write_pages(audit, tmp_path / "audit"))
    card = page.locator("section:has(#copies) .case").first
    assert card.get_attribute("data-item") == "i100"
    assert "train · copy i007 in test" in card.inner_text()


def test_what_is_left_counts_items_not_cards(page, audit):
    items = {row["item"] for table in (audit.suspects, audit.copies) for row in table.to_pylist()}
    assert page.locator("#said").inner_text() == f"0 decided, {len(items)} left"


def test_an_item_of_two_cards_is_decided_once_by_the_card_that_was_used(page, audit):
    proposed = {row["item"]: row["proposed"] for row in audit.suspects.to_pylist()}
    copy = audit.copies.to_pylist()[0]
    assert copy["is_exact"]
    assert copy["copy_label"] != proposed[copy["item"]]
    cards = page.locator(f'.case[data-item="{copy["item"]}"]')
    cards.last.locator("[data-decision=relabel]").click()
    assert cards.first.get_attribute("data-decided") == "relabel"
    assert cards.first.locator("[aria-pressed=true]").count() == 0  # that is another label
    (row,) = exported(page)
    assert (row["item"], row["path"]) == (copy["item"], copy["copy_label"])


def test_keys_decide_and_move_on(page, audit):
    items = audit.suspects["item"].to_pylist()
    page.locator(".case").first.focus()
    for key in "krdm":
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.dataset.item") == items[4]
    alone = "section:not(:has(#copies)) .case[data-decided]"
    assert each(page, alone, "[e.dataset.item, e.dataset.decided]") == [
        list(pair) for pair in zip(items, ("keep", "relabel", "drop", "merge"), strict=False)
    ]
    assert page.locator("#said").inner_text().startswith("4 decided")


def test_what_is_undone_is_as_before(page):
    page.locator(".case").first.focus()
    page.keyboard.press("k")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("d")
    page.keyboard.press("u")
    assert page.locator(".case").first.get_attribute("data-decided") == "keep"
    page.click("#undo")
    assert page.locator(".case").first.get_attribute("data-decided") is None
    assert page.locator("#undo").is_disabled()


def test_what_was_undone_is_done_again_until_something_else_is_decided(page):
    first = page.locator(".case").first
    first.focus()
    page.keyboard.press("d")
    page.keyboard.press("Control+z")
    assert first.get_attribute("data-decided") is None
    page.keyboard.press("y")
    assert first.get_attribute("data-decided") == "drop"

    page.keyboard.press("u")
    page.keyboard.press("k")
    assert page.locator("#redo").is_disabled()
    page.keyboard.press("Control+Shift+Z")
    assert first.get_attribute("data-decided") == "keep"


def test_decisions_survive_a_closed_page(page):
    page.locator(".case").nth(1).locator("[data-decision=drop]").click()
    page.reload()
    assert page.locator(".case").nth(1).get_attribute("data-decided") == "drop"
    pressed = page.locator(".case").nth(1).locator("[aria-pressed=true]")
    assert pressed.inner_text() == "Drop"


def test_the_exported_table_is_what_a_build_takes(page, audit, folder, tmp_path, empty_home):
    home, planted = folder
    chosen = [row["item"] for row in audit.suspects.to_pylist() if row["item"] in planted]
    assert len(chosen) >= 10
    for item in chosen:
        page.locator(f'.case[data-item="{item}"]').first.focus()
        page.keyboard.press("r")
    rows = exported(page)
    assert [row["item"] for row in rows] == chosen
    with (tmp_path / "decisions.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    call(
        "build", "birds", "--from", home / "birds.csv", "--levels", "order,kind",
        "--decisions", tmp_path / "decisions.csv",
    )  # fmt: skip
    test = hbench.load("birds").tests["test"]
    for item in chosen:
        (at,) = np.flatnonzero(test.items == item)
        names = tuple(test.tree.names[level][node] for level, node in enumerate(test.labels[at]))
        assert names == planted[item][1]


def merge_all(page, label):
    """Decide to merge on every card of a label."""
    for card in page.locator(".case").all():
        if (
            card.get_attribute("data-label") == label
            and card.locator("[data-decision=merge]").count()
        ):
            card.locator("[data-decision=merge]").click()


def proposals(page):
    """What the suspects of every label are said to be."""
    found = defaultdict(list)
    for label, proposed in each(
        page, "section:not(:has(#copies)) .case", "[e.dataset.label, e.dataset.proposed]"
    ):
        found[label].append(proposed)
    return found


def test_a_merge_is_exported_once_for_a_class(page):
    label, path = next(
        (label, paths[0])
        for label, paths in proposals(page).items()
        if len(paths) > 1 and len(set(paths)) == 1
    )
    merge_all(page, label)
    assert [tuple(row.values()) for row in exported(page)] == [("", "merge", label, path)]


def test_a_class_that_is_merged_into_two_is_said_and_exported_as_decided(page):
    label, paths = next(
        (label, set(paths)) for label, paths in proposals(page).items() if len(set(paths)) > 1
    )
    merge_all(page, label)
    assert f"{label} cannot be merged into two" in page.locator("#said").inner_text()
    assert {row["path"] for row in exported(page)} == paths
    page.click("#undo")
    assert "cannot be merged" not in page.locator("#said").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
def test_the_page_fits_the_screen(opened, findings, audit, tmp_path, width, scheme):
    page = write_pages(audit, tmp_path / "audit")
    check_page(opened(page, width=width, scheme=scheme), findings)


def test_a_folder_of_other_files_is_kept(audit, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("all of it")
    with pytest.raises(UsageError, match="other files"):
        write_pages(audit, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_decisions_that_the_browser_damaged_are_said_and_left_out(page):
    page.locator(".case").first.locator("[data-decision=drop]").click()
    key = "Object.keys(localStorage).find((name) => name.startsWith('hbench-audit'))"
    page.evaluate(f"localStorage.setItem({key}, '{{\"i0')")
    page.reload()
    assert page.locator("#damaged").is_visible()
    assert each(page, ".case[data-decided]", "e.dataset.item") == []
    page.locator(".case").first.locator("[data-decision=keep]").click()
    assert [row["decision"] for row in exported(page)] == ["keep"]


def test_decisions_of_an_earlier_audit_stay_and_are_on_the_new_page(opened, audit, tmp_path):
    write_pages(audit, tmp_path / "audit")
    first = audit.suspects.to_pylist()[0]
    rows = [(first["item"], "drop", first["label"], ""), ("gone.png", "drop", "", "")]
    with (tmp_path / "audit" / "decisions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("item", "decision", "label", "path"), *rows])
    kept = (tmp_path / "audit" / "decisions.csv").read_bytes()
    page = opened(write_pages(audit, tmp_path / "audit"))
    assert (tmp_path / "audit" / "decisions.csv").read_bytes() == kept
    decided = each(page, ".case[data-decided]", "[e.dataset.item, e.dataset.decided]")
    assert {tuple(pair) for pair in decided} == {(first["item"], "drop")}
    assert "Of decisions.csv, 1" in page.locator("#audit").inner_text()


def test_an_outdated_decision_about_an_item_does_not_hide_one_about_its_label():
    card = SimpleNamespace(items=("a",), label=("owl", "new"))
    decisions = [
        LabelDecision("a", "drop", ("owl", "old"), ()),
        LabelDecision("", MERGE, ("owl", "new"), ("owl", "barn")),
    ]
    found = decided_on([SimpleNamespace(cards=[card])], decisions)
    assert found.by_item["a"]["decision"] == MERGE
    assert "1 are about" in found.remark


def test_a_damaged_file_of_decisions_is_said_and_kept(opened, audit, tmp_path):
    write_pages(audit, tmp_path / "audit")
    (tmp_path / "audit" / "decisions.csv").write_text("item,decision,label,path\na,perhaps,,\n")
    page = opened(write_pages(audit, tmp_path / "audit"))
    assert "line 2, is no decision" in page.locator("#audit").inner_text()
    assert (tmp_path / "audit" / "decisions.csv").exists()


def test_a_group_is_one_card_with_one_decision_for_all_its_items(opened, tmp_path):
    vectors, rows = zoo(each_has=40)
    paths = paths_of()
    lost = [n for n, row in enumerate(rows) if row == paths[0]][:12]
    for item in lost:
        rows[item] = paths[40]
    found = audited(vectors, rows)
    page = opened(write_pages(found, tmp_path / "audit"))
    card = page.locator("section:has(#groups) .case")
    assert card.count() == 1
    card.locator("[data-decision=relabel]").click()
    decided = exported(page)
    assert [row["item"] for row in decided] == [f"i{item:05}" for item in lost]
    assert {(row["decision"], row["label"], row["path"]) for row in decided} == {
        ("relabel", " > ".join(paths[40]), " > ".join(paths[0]))
    }
    page.click("#undo")
    assert page.locator("#said").inner_text().startswith("0 decided")
