"""Decisions: their notation and their replay."""

import pytest
from hbench_hgldv2.artefact import rows_text
from hbench_hgldv2.curation import decisions_file
from hbench_hgldv2.curation.decisions import Decisions, Group
from hbench_hgldv2.curation.replay import Placed, replay, require_clean
from hbench_hgldv2.labels.label import Label, digest, partition_digest
from hypothesis import given
from hypothesis import strategies as st

from hbench.core.errors import ComparisonError, ConfigError, UnknownName

pytestmark = pytest.mark.fast

NAMES = ["church building", "cathedral", "abbey", "castle", "fort", "lake", "river", "bridge"]
LABELS = [Label(f"Q{number + 1}", name, number, 1, 0, ()) for number, name in enumerate(NAMES)]
CLUSTERS = {"Q1": 0, "Q2": 0, "Q3": 0, "Q4": 1, "Q5": 1, "Q6": 2, "Q7": 2, "Q8": 2}
GROUPS = (
    "groups: {church: {kind: human-made}, monastery: {kind: human-made}, castle: {kind: "
    "human-made}, "
    "water: {kind: natural}}\n"
)
INPUTS = (
    f"inputs: {{labels_sha256: {digest(CLUSTERS)}, clusters_sha256: "
    f"{partition_digest(CLUSTERS)}}}\n"
)


def replayed(decisions, *, inputs=""):
    return replay(
        LABELS, CLUSTERS, decisions_file.loads(f"{inputs}{GROUPS}decisions:\n{decisions}")
    )


def places(curation):
    return {row.class_id: row.group or row.status for row in curation.rows}


def test_each_operation_does_what_its_name_says():
    curation = replayed("""
- {id: a, op: name, members_of: [Q1, Q2, Q3], to: church}
- {id: b, op: name, members_of: [Q4, Q5], to: castle}
- {id: c, op: move, labels: [Q3], to: monastery, expect_from: church}
- {id: d, op: split, group: castle, into: {water: [Q5]}}
- {id: e, op: drop, labels: [Q8]}
- {id: f, op: merge, groups: [monastery], to: church}
- {id: g, op: rename, group: castle, to: monastery}
- {id: h, op: ambiguous, labels: [Q6], choices: [water, castle], use: water, rule: what the photo shows}
- {id: i, op: ambiguous, labels: [Q7], choices: [water, castle]}
- {id: j, op: set_kind, group: church, kind: natural}
- {id: k, op: split, group: church, into: {castle: [Q2], church: [Q1], water: "*"}}
""")
    expected = ["church", "castle", "water", "monastery", "water", "water", "unassigned", "dropped"]
    assert places(curation) == {
        f"Q{number}": place for number, place in enumerate(expected, start=1)
    }
    assert curation.conflicts == ()
    by_id = {row.class_id: row for row in curation.rows}
    assert (by_id["Q1"].kind, by_id["Q7"].reason) == ("natural", "ambiguous")
    assert by_id["Q3"].decided_by == ("a", "c", "f", "k")


def test_a_name_speaks_for_its_whole_cluster_only_over_the_inputs_it_was_made_with():
    short = "- {id: a, op: name, members_of: [Q1], to: church}"
    assert places(replayed(short, inputs=INPUTS))["Q3"] == "church"
    assert places(replayed(short))["Q3"] == "unassigned"


def test_a_new_label_needs_review_and_is_never_swept_along():
    newcomer = Label("Q99", "chapel", 5, 5, 0, ())
    labels = [*LABELS, newcomer]
    decisions = decisions_file.loads(
        f"{INPUTS}{GROUPS}decisions:\n- {{id: a, op: name, members_of: [Q1], to: church}}"
    )
    found = replay(
        labels,
        {**CLUSTERS, "Q99": 0},
        decisions,
        suggestions={"Q99": ("church", "castle", "water", "x")},
    )
    row = next(row for row in found.rows if row.class_id == "Q99")
    assert (row.status, row.reason, row.suggestions) == (
        "unassigned",
        "needs_review",
        ("church", "castle", "water"),
    )


def test_failed_preconditions_are_conflicts_and_strict_mode_refuses_them():
    curation = replayed(
        """
- {id: a, op: name, members_of: [Q1, Q4], to: church}
- {id: b, op: move, labels: [Q2], to: castle, expect_from: church}
- {id: c, op: split, group: church, into: {castle: [Q5]}}
- {id: d, op: rename, group: church, to: castle}
- {id: e, op: rename, group: castle, to: castle}
- {id: f, op: must_link, labels: [Q1, Q2]}
- {id: g, op: cannot_link, labels: [Q1, Q4]}
- {id: h, op: move, labels: [Q8], to: water}
- {id: i, op: rename, group: castle, to: water}
""",
        inputs=INPUTS,
    )
    assert [conflict.decision for conflict in curation.conflicts] == ["a", "b", "c", "i", "f", "g"]
    assert (places(curation)["Q2"], places(curation)["Q1"]) == ("unassigned", "castle")
    with pytest.raises(ComparisonError, match="in 6 places"):
        require_clean(curation)
    with pytest.raises(UnknownName, match="decision 'a'"):
        replayed("- {id: a, op: drop, labels: [Q77]}")


def test_an_approval_goes_stale_when_the_group_changes():
    approval = f"- {{reviewer: B, group: church, sha256_of_members: {digest(['Q2', 'Q1'])}}}"
    text = (
        f"{GROUPS}approvals:\n{approval}\ndecisions:\n- {{id: a, op: move, labels: [Q1, Q2], "
        "to: church}\n"
    )
    assert replay(LABELS, CLUSTERS, decisions_file.loads(text)).stale == ()
    changed = replay(
        LABELS, CLUSTERS, decisions_file.loads(text + "- {id: b, op: drop, labels: [Q2]}\n")
    )
    assert changed.stale == ("B: church",)
    with pytest.raises(ComparisonError, match="stale approval of B: church"):
        require_clean(changed)


def test_a_bad_file_is_refused_with_what_is_wrong():
    for text, problem in (
        ("decisions: [{id: a, op: move, labels: [Q1], to: chruch}]", "did you mean 'church'"),
        ("decisions: [{id: a, op: mvoe, labels: [Q1], to: church}]", "mvoe"),
        ("decisions: [{id: a, op: move, labels: [Q1], to: church, form: x}]", "form"),
        ("decisions: [{id: a, op: move, labels: [3], to: church}]", "labels"),
        ("decisions: [{id: a, op: move, labels: [], to: church}]", "at least 1"),
        (
            "decisions: [{id: a, op: drop, labels: [Q1]}, {id: a, op: drop, labels: [Q2]}]",
            "occur twice: a",
        ),
        (
            "decisions: [{id: a, op: split, group: church, into: {church: '*', castle: '*'}}]",
            "only one part",
        ),
        (
            "decisions: [{id: a, op: ambiguous, labels: [Q1], choices: [church, castle], use: "
            "water}]",
            "is not one of its",
        ),
        ("decisions: [{op: drop, labels: [Q1]}]", "id"),
        ("decisions: [", "not YAML"),
        ("inputs: {k: 1, k: 2}", "given twice"),
        ("schema: 2", "schema"),
        ("groups: !!python/object/apply:os.system ['true']", "not YAML"),
        ("- x", "schema"),
        ("# not all came through", "is empty"),
    ):
        with pytest.raises(ConfigError, match=problem):
            decisions_file.loads(("" if text.startswith(("-", "groups", "#")) else GROUPS) + text)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
class_ids = st.sampled_from([label.class_id for label in LABELS])


@st.composite
def decision_files(draw):
    kinds = st.sampled_from([Group(kind="natural"), Group(kind="human-made", parent="p: é\u2028")])
    groups = draw(st.dictionaries(names, kinds, min_size=2, max_size=5))
    group = st.sampled_from(sorted(groups))
    ids = st.lists(class_ids, min_size=1, max_size=3, unique=True)
    parts = {
        "name": {"members_of": ids, "to": group},
        "move": {
            "labels": ids,
            "to": group,
            "expect_from": st.none() | group,
            "why": st.none() | names,
        },
        "split": {"group": group, "into": st.dictionaries(group, ids, min_size=1, max_size=2)},
        "merge": {"groups": st.lists(group, min_size=1, max_size=2), "to": group},
        "rename": {"group": group, "to": group},
        "drop": {"labels": ids},
        "set_kind": {"group": group, "kind": st.sampled_from(["natural", "human-made"])},
    }
    one = st.one_of(
        *(st.fixed_dictionaries({"op": st.just(op), **own}) for op, own in parts.items())
    )
    decisions = [{"id": f"d{i}", **each} for i, each in enumerate(draw(st.lists(one, max_size=8)))]
    return Decisions.model_validate({"groups": groups, "decisions": decisions})


@given(decision_files())
def test_a_file_written_and_read_is_the_same_and_the_bytes_are_fixed(decisions):
    text = decisions_file.dumps(decisions)
    assert decisions_file.loads(text) == decisions
    assert decisions_file.dumps(decisions_file.loads(text)) == text


@given(decision_files(), st.randoms())
def test_every_label_ends_in_exactly_one_place_whatever_the_order_of_the_labels(decisions, shuffle):
    found = replay(LABELS, CLUSTERS, decisions)
    assert sorted(row.class_id for row in found.rows) == sorted(label.class_id for label in LABELS)
    assert {row.status for row in found.rows} <= {"group", "dropped", "unassigned"}
    assert all((row.status == "group") == bool(row.group) == bool(row.kind) for row in found.rows)
    mixed = shuffle.sample(LABELS, len(LABELS))
    renumbered = {label: 7 - cluster for label, cluster in CLUSTERS.items()}
    assert rows_text(replay(mixed, renumbered, decisions).rows, Placed) == rows_text(
        found.rows, Placed
    )
