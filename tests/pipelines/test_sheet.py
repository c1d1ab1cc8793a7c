"""The review as CSV: what a curator fills in becomes decisions; what a label holds never becomes a formula."""

from __future__ import annotations

from pathlib import Path

import pytest
from hbench_hgldv2.curation import review_sheet
from hbench_hgldv2.curation.decisions import Decisions, Group
from hbench_hgldv2.curation.replay import replay
from hbench_hgldv2.grouping.cluster import Clustered
from hbench_hgldv2.labels.label import Label
from hypothesis import given
from hypothesis import strategies as st

from hbench.core.errors import ConfigError, DataError, UnknownName

DECISIONS = Decisions(groups={"church": Group(kind="human-made")})


def material(names: list[str]) -> tuple[list[Label], list[Clustered]]:
    labels = [Label(f"Q{n + 1}", name, n, 1, 0, (name,)) for n, name in enumerate(names)]
    return labels, [Clustered(label.class_id, 0, names[0], 0.1, -0.25, 0, 0.1, False) for label in labels]


def sheet_of(names: list[str], decisions: Decisions = DECISIONS) -> list[review_sheet.SheetRow]:
    labels, clustered = material(names)
    return review_sheet.rows_of(
        labels,
        clustered,
        {"Q1": ("=x", "church")},
        replay(labels, dict.fromkeys((r.class_id for r in clustered), 0), decisions),
    )


def written(path: Path, rows: list[review_sheet.SheetRow]) -> Path:
    path.write_text(review_sheet.text_of(rows), encoding="utf-8")
    return path


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda s: not s.startswith("'")),
        min_size=1,
        max_size=4,
    )
)
def test_any_label_survives_the_round_trip_and_none_is_a_formula(names: list[str]) -> None:
    import tempfile

    rows = sheet_of(names)
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder) / "review.csv", rows)
        assert review_sheet.read(path) == rows
    for row in rows:
        assert not any(
            cell.startswith(review_sheet.FORMULA)
            for name, cell in zip(review_sheet.COLUMNS, review_sheet.cells(row), strict=True)
            if name in review_sheet.TEXTS
        )


def test_a_filled_sheet_becomes_decisions_and_then_is_a_fixed_point(tmp_path: Path) -> None:
    names = ["abbey", "chapel", "lake", "human", "fort"]
    rows = sheet_of(names)
    rows[0] = rows[0]._replace(action="move", target="church")
    rows[2] = rows[2]._replace(action="move", target="+water ", kind="natural")
    rows[3] = rows[3]._replace(action="drop")
    decided = review_sheet.decisions_of(review_sheet.read(written(tmp_path / "a.csv", rows)), DECISIONS, by="AB")
    assert [(d.id, d.op, d.by) for d in decided.decisions] == [
        ("s001", "move", "AB"),
        ("s002", "move", "AB"),
        ("s003", "drop", "AB"),
    ]
    again = sheet_of(names, decided)
    assert [(row.status, row.group, row.kind) for row in again] == [
        ("group", "church", "human-made"),
        ("unassigned", "", ""),
        ("group", "+water ", "natural"),
        ("dropped", "", ""),
        ("unassigned", "", ""),
    ]
    assert review_sheet.decisions_of(review_sheet.read(written(tmp_path / "b.csv", again)), decided) == decided


def test_ambiguous_labels_and_comments_become_decisions(tmp_path: Path) -> None:
    rows = sheet_of(["abbey", "priory", "ruin"])
    rows[0] = rows[0]._replace(action="ambiguous", target="church|=ruins", kind="human-made", comment="both")
    rows[1] = rows[1]._replace(action="move", target="church", comment="-- see the photos")
    rows[2] = rows[2]._replace(action="move", target="church")
    decided = review_sheet.decisions_of(review_sheet.read(written(tmp_path / "a.csv", rows)), DECISIONS)
    assert set(decided.groups) == {"church", "=ruins"}
    plain, told, open_ = decided.decisions
    assert (plain.why, plain.labels) == (None, ("Q3",))  # type: ignore[union-attr]
    assert (told.why, told.labels) == ("-- see the photos", ("Q2",))  # type: ignore[union-attr]
    assert (open_.op, open_.why, open_.choices, open_.use) == ("ambiguous", "both", ("church", "=ruins"), None)  # type: ignore[union-attr]
    again = sheet_of(["abbey", "priory", "ruin"], decided)
    assert [row.status for row in again] == ["unassigned", "group", "group"]


def test_bad_sheets_are_refused(tmp_path: Path) -> None:
    rows = sheet_of(["abbey"])
    for changed, error in (
        (rows[0]._replace(action="move", target="chruch"), UnknownName),
        (rows[0]._replace(action="rename"), ConfigError),
        (rows[0]._replace(target="church"), ConfigError),
        (rows[0]._replace(action="move"), ConfigError),
        (rows[0]._replace(action="drop", target="church"), ConfigError),
        (rows[0]._replace(action="ambiguous", target="church"), ConfigError),
        (rows[0]._replace(action="ambiguous", target="church|"), ConfigError),
    ):
        with pytest.raises(error):
            review_sheet.decisions_of([changed], DECISIONS)
    path = tmp_path / "c.csv"
    path.write_text("class_id,label,colour\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="colour"):
        review_sheet.read(path)
    path.write_text(review_sheet.text_of(rows) + "Q1,x\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 3"):
        review_sheet.read(path)
    with pytest.raises(DataError, match="does not exist"):
        review_sheet.read(tmp_path / "none.csv")


def test_a_sheet_that_a_spreadsheet_saved_with_a_byte_order_mark_and_other_column_order_is_read(tmp_path: Path) -> None:
    rows = sheet_of(["abbey", "é"])
    path = tmp_path / "d.csv"
    order = [*review_sheet.COLUMNS[::-1]]
    lines = [",".join(order), *(",".join(getattr(row, name) for name in order) for row in rows)]
    path.write_text("\r\n".join(lines), encoding="utf-8-sig")
    assert [row._replace(suggestion1="=x") if row.suggestion1 else row for row in review_sheet.read(path)] == rows
