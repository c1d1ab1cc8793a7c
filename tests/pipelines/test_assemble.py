"""From landmarks to the released form: the real labels pass unchanged."""

import networkx as nx
import pytest
from hbench_hgldv2.artefact import rows_text
from hbench_hgldv2.curation import decisions_file
from hbench_hgldv2.curation.replay import Placed, replay, require_clean
from hbench_hgldv2.dataset import card, landmarks
from hbench_hgldv2.dataset.assign import Assigned
from hbench_hgldv2.grouping import quality
from hbench_hgldv2.labels import clean, released
from hbench_hgldv2.labels.clean import CleanedLandmark
from hbench_hgldv2.labels.label import Label, normalised
from hbench_hgldv2.labels.released import Released
from hbench_hgldv2.labels.scrape import ClassName, Link

from hbench.core.errors import ConfigError, DataError
from tests.pipelines.official import GOLDEN, index_rows, official, official_rows, rows_of

SAMPLE = GOLDEN / "train_label_to_hierarchical.sample5col.csv"


def link(landmark, classes):
    url = f"http://commons.wikimedia.org/wiki/Category:L{landmark}"
    page = (f"Category:L{landmark}", "found", "sitelink", "Q1", "Q1", "" if classes else "missing")
    return Link("train", landmark, url, *page, classes, len(classes), False, 0)


WORDS = [
    "bridge",
    "viaduct",
    "river",
    "building",
    "Wikimedia category",
    "heritage site",
    "",
    "abbey",
]
NAMES = [ClassName(f"Q{n}", name, "en") for n, name in enumerate(WORDS, start=1)]
RULES = [
    clean.Rule("building", "Q4", "too_generic", ""),
    clean.Rule("x", "Q5", "drop", ""),
    clean.Rule("Heritage site", "", "too_generic", ""),
]


def test_cleaning_gives_every_landmark_a_status_and_a_reason():
    cases = {
        ("Q1",): ("kept", "", ("Q1",)),
        ("Q1", "Q2"): ("ambiguous", "several_classes", ("Q1", "Q2")),
        ("Q4",): ("dropped", "too_generic", ("Q4",)),
        ("Q4", "Q3"): ("kept", "", ("Q3",)),
        ("Q5",): ("dropped", "irrelevant", ("Q5",)),
        ("Q7",): ("dropped", "no_label", ("Q7",)),
        (): ("dropped", "missing", ()),
        ("Q6", "Q5", "Q8"): ("kept", "", ("Q8",)),
        ("Q6",): ("dropped", "too_generic", ("Q6",)),
    }
    selection = clean.select(
        [link(n, classes) for n, classes in enumerate(cases, start=1)], NAMES, RULES
    )
    assert [(row.status, row.reason, row.classes) for row in selection] == list(cases.values())
    reasons = {"several_classes": 1, "too_generic": 2, "irrelevant": 1, "no_label": 1, "missing": 1}
    assert clean.counts_of_selection(selection) == {
        "train kept": 3,
        "train ambiguous": 1,
        "train dropped": 5,
        **reasons,
    }
    labels = {label.class_id: label for label in clean.labels_of(selection, NAMES)}
    assert labels["Q1"] == Label("Q1", "bridge", 1, 0, 1, ("L1", "L2"))
    assert labels["Q2"] == Label("Q2", "viaduct", 0, 0, 1, ("L2",))


def test_the_shipped_rules_are_read_and_bad_ones_refused(tmp_path):
    actions = {rule.qid: rule.action for rule in clean.read_rules()}
    assert actions["Q4167836"] == "drop"
    assert actions["Q41176"] == "too_generic"
    file = tmp_path / "rules.csv"
    file.write_text("label,qid,action,why\nx,Q1,delete,y\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 2"):
        clean.read_rules(file)


def placed(class_id, group, status="group"):
    return Placed(
        class_id, class_id.lower(), status, group, "human-made" if group else "", "", "", (), ()
    )


def test_ambiguous_landmarks_are_recovered_when_all_their_classes_have_one_group():
    mapping = [placed("Q1", "bridge"), placed("Q2", "bridge"), placed("Q3", "water")]
    mapping += [placed("Q4", "", "unassigned"), placed("Q5", "", "dropped")]
    rows = [("kept", ("Q1",)), ("ambiguous", ("Q1", "Q2")), ("ambiguous", ("Q1", "Q3"))]
    rows += [("kept", ("Q4",)), ("ambiguous", ("Q5", "Q1")), ("dropped", ())]
    selection = [
        CleanedLandmark("train", n, "u", status, "", classes)
        for n, (status, classes) in enumerate(rows)
    ]
    found = landmarks.place_landmarks(selection, mapping, "train")
    assert [row.hierarchical_label for row in found] == ["bridge", "bridge", "", "", ""]
    assert found[1].supercategory == "q1 / q2"
    assert [row.source for row in found] == [
        "labelled",
        "recovered",
        "ambiguous",
        "unassigned",
        "ambiguous",
    ]
    assert landmarks.place_landmarks(selection, mapping, "index") == []
    with pytest.raises(DataError, match="not in the mapping"):
        landmarks.place_landmarks(selection, mapping[:1], "train")


def test_images_place_what_no_class_places_and_the_source_says_so():
    mapping = [placed("Q1", "bridge"), placed("Q3", "water"), placed("Q4", "", "unassigned")]
    rows = [
        ("kept", ("Q1",)),
        ("ambiguous", ("Q1", "Q3")),
        ("kept", ("Q4",)),
        ("dropped", ()),
        ("dropped", ("Q9",)),
    ]
    selection = [
        CleanedLandmark("index", n, "u", status, "", classes)
        for n, (status, classes) in enumerate(rows)
    ]
    by_images = [Assigned(n, "water", 2 + n, 0.5) for n in (0, 1, 2, 3, 77)]
    found = landmarks.place_landmarks(selection, mapping, "index", by_images)
    assert [row[1:] for row in found] == [
        (0, "u", "q1", "bridge", "human-made", "labelled", 0, 0.0),  # a class goes before images
        (1, "u", "q1 / q3", "water", "human-made", "assigned", 3, 0.5),
        (2, "u", "q4", "water", "human-made", "assigned", 4, 0.5),
        (3, "u", "", "water", "human-made", "assigned", 5, 0.5),
    ]
    assert "| index | 4 | 1 | 0 | 3 | 0 | 0 | 0 |" in card.card({"index": found}, [], {})
    again = released.decisions_of([landmarks.official(found)])
    named = {name for decision in again.decisions for name in decision.labels}
    assert named == {"label:q1", "label:q1 / q3", "label:q4"}
    with pytest.raises(DataError, match="landmark 3 is assigned to 'sea'"):
        landmarks.place_landmarks(selection, mapping, "index", [Assigned(3, "sea", 1, 1.0)])


@pytest.fixture(scope="module")
def index():
    labelled = (
        (row["landmark_id"], row["hierarchical_label"], row["natural_or_human_made"])
        for row in index_rows()
    )
    return [Released(int(landmark), "", label, label, kind) for landmark, label, kind in labelled]


@pytest.fixture(scope="module")
def replayed(index):
    """The selection of the index, and its replay from landmarks that are at a page each."""
    selection, names = clean.selection_of({"index": index})
    at_a_page = [
        row._replace(category="http://commons.wikimedia.org/wiki/Category:X") for row in selection
    ]
    labels = clean.labels_of(at_a_page, names)
    return selection, replay(labels, {}, released.decisions_of([index]))


@pytest.fixture(scope="module")
def assembled(replayed):
    selection, curation = replayed
    return landmarks.place_landmarks(selection, curation.rows, "index")


def test_the_landmarks_of_the_index_pass_unchanged(assembled):
    key = ("landmark_id", "hierarchical_label", "natural_or_human_made")
    expected = [[row[name] for name in key] for row in index_rows()]
    assert [[str(getattr(row, name)) for name in key] for row in assembled] == expected
    assert {row.source for row in assembled} == {"labelled"}


def test_the_78_names_of_the_index_pass_unchanged(replayed):
    _, curation = replayed
    rows = rows_of("hgldv2_78_supercategories.csv")
    published = {row["hierarchical_label"]: row["natural_or_human_made"] for row in rows}
    assert len(published) == 78
    assert curation.kinds == published
    assert list(published.values()).count("human-made") == 60
    assert "ocean area " in published


def test_the_tree_of_the_index_has_2_kinds_78_names_and_55_529_landmarks(assembled):
    tree, paths = landmarks.tree_of(assembled)
    assert [len(names) for names in tree.names] == [2, 78, 55_529]
    assert paths.shape == (55_529, 3)
    assert nx.is_arborescence(tree.graph())


def test_the_card_states_the_published_imbalance(index):
    rows = [landmarks.Sourced("index", *row, "labelled", 0, 0.0) for row in index]
    text = card.card({"index": rows}, [], {"mapping.csv": "0" * 64})
    assert "# Hierarchical landmarks: 78 super-categories" in text
    assert "60 human-made, 18 natural" in text
    assert "| church | human-made | 12871 |" in text
    assert "largest/smallest\n  757" in text
    found = card.imbalance(
        [int(row["n_index_landmarks"]) for row in rows_of("hgldv2_78_supercategories.csv")]
    )
    assert (round(found["effective"]), round(100 * found["top1"])) == (26, 23)


def test_a_released_file_comes_back_with_case_and_qualifier():
    rows = released.read(SAMPLE)
    assert rows_text(rows, Released) == SAMPLE.read_text(encoding="utf-8")
    selection, names = clean.selection_of({"train": rows})
    curation = replay(clean.labels_of(selection, names), {}, released.decisions_of([rows]))
    assert landmarks.official(landmarks.place_landmarks(selection, curation.rows, "train")) == rows


def test_the_shipped_decisions_are_those_of_the_released_sample():
    rows = official_rows()
    assert (len(rows), sum(row.supercategory != normalised(row.supercategory) for row in rows)) == (
        163,
        27,
    )
    shipped = decisions_file.load(released.SAMPLE)
    assert shipped == released.decisions_of([rows])
    assert "CC BY 4.0" in released.SAMPLE.read_text(encoding="utf-8").splitlines()[1]
    selection, names = clean.selection_of({"train": rows})
    curation = replay(clean.labels_of(selection, names), {}, shipped)
    require_clean(curation)
    assert landmarks.official(landmarks.place_landmarks(selection, curation.rows, "train")) == rows


def test_other_tables_than_released_ones_are_refused(tmp_path):
    for rows, problem in (
        (["1,u,x,church,"], "half a label"),
        (["1,u,,,", "1,u,,,"], "twice"),
        (["1,u"], "line 2"),
        ([], "other columns"),
        (["1,,a,g,natural", "2,,b,g,human-made"], "two kinds"),
    ):
        file = tmp_path / "released.csv"
        header = ",".join(Released._fields) if rows else "a,b"
        file.write_text("\n".join([header, *rows]), encoding="utf-8")
        with pytest.raises(DataError, match=problem):
            released.decisions_of([released.read(file)])


def test_the_inconsistencies_of_the_release_show_without_any_encoder():
    labels, group_of = official()
    found = quality.inconsistencies(
        [label.label for label in labels], [group_of[label.class_id] for label in labels]
    )
    pairs = {frozenset((row.label, row.other)) for row in found}
    assert frozenset(("church ruin", "castle ruin")) in pairs
    assert all(row.group != row.other_group for row in found)
