"""A sheet: the review as CSV, one row per class, which a spreadsheet program opens without running anything in it.

A curator fills `action` (move or drop), `target` and, for a new group, `kind`; everything else is for reading.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

from hbench.errors import ConfigError, DataError, UnknownName
from pipelines.hgldv2.artefact import csv_text
from pipelines.hgldv2.cluster import Clustered
from pipelines.hgldv2.decisions import AnyDecision, Decisions, Drop, Group, Move
from pipelines.hgldv2.labels import Label
from pipelines.hgldv2.replay import Curation

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for a formula at the start of a cell


class SheetRow(NamedTuple):
    """One class; the first FIXED columns describe it, the next three tell where it is, the last four are
    the curator's.
    """

    class_id: str
    label: str
    n_train: str
    n_index: str
    n_ambiguous: str
    cluster: str
    cluster_name: str
    distance: str
    silhouette: str
    nearest_cluster: str
    margin: str
    outlier: str
    suggestion1: str
    suggestion2: str
    suggestion3: str
    example1: str
    example2: str
    example3: str
    status: str
    group: str
    kind: str
    action: str = ""
    target: str = ""
    comment: str = ""


COLUMNS = SheetRow._fields
FIXED = COLUMNS.index("status")
TEXTS = frozenset(
    {
        "class_id",
        "label",
        "cluster_name",
        "suggestion1",
        "suggestion2",
        "suggestion3",
        "example1",
        "example2",
        "example3",
        "group",
        "target",
        "comment",
    }
)


def rows_of(
    labels: Sequence[Label],
    clustered: Sequence[Clustered],
    suggestions: Mapping[str, Sequence[str]],
    curation: Curation,
) -> list[SheetRow]:
    """The rows, in the order of the clusters."""
    by_id = {label.class_id: label for label in labels}
    placed = {row.class_id: row for row in curation.rows}
    return [
        _row(by_id[row.class_id], row, suggestions.get(row.class_id, ()), placed[row.class_id][2:5])
        for row in clustered
    ]


def text_of(rows: Iterable[SheetRow]) -> str:
    """The sheet as CSV text; cells that a spreadsheet would run as formulas start with an apostrophe."""
    return csv_text([COLUMNS, *(cells(row) for row in rows)])


def cells(row: SheetRow) -> tuple[str, ...]:
    """The cells of a row as written."""
    return tuple(guarded(text) if name in TEXTS else text for name, text in zip(COLUMNS, row, strict=True))


def guarded(text: str) -> str:
    """Text that no spreadsheet takes for a formula.

    >>> guarded("=cmd()"), guarded("church")
    ("'=cmd()", 'church')
    """
    return f"'{text}" if text.startswith(FORMULA) else text


def read(path: Path) -> list[SheetRow]:
    """The rows of a sheet; raises DataError when it is missing, ConfigError for columns that are unknown,
    lacking or twice.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist", fix="make it with: python -m pipelines.hgldv2 review")
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines)
        header = next(reader, [])
        if sorted(header) != sorted(COLUMNS):
            odd = sorted(set(header) ^ set(COLUMNS)) or sorted({name for name in header if header.count(name) > 1})
            raise ConfigError(
                f"{path} has other columns than a review sheet",
                expected=", ".join(COLUMNS),
                found=f"{', '.join(odd)} unknown, lacking or twice",
            )
        rows = []
        for row in reader:
            if len(row) != len(header):
                raise ConfigError(
                    f"{path}, line {reader.line_num}: a row of another length",
                    expected=f"{len(header)} cells",
                    found=str(len(row)),
                )
            rows.append(SheetRow(**{name: _bare(text) for name, text in zip(header, row, strict=True)}))
    return rows


def decisions_of(rows: Sequence[SheetRow], decisions: Decisions, *, by: str | None = None) -> Decisions:
    """The decisions so far, followed by what the curator filled in: a move per target group, then one drop.

    Raises ConfigError for an action that is neither, UnknownName for a target that is no group and has no kind.
    """
    groups, moves, drops = dict(decisions.groups), dict[str, list[str]](), []
    for row in rows:
        if row.action == "drop":
            drops.append(row.class_id)
        elif row.action == "move":
            if row.target not in groups:
                groups[row.target] = _new_group(row, groups)
            moves.setdefault(row.target, []).append(row.class_id)
        elif row.action or row.target:
            raise ConfigError(
                f"{row.class_id}: the sheet asks for something it cannot say",
                expected="action move with a target, or drop",
                found=f"action {row.action!r}, target {row.target!r}",
            )
    ids = _fresh_ids(decisions)
    added: list[AnyDecision] = [
        Move(id=next(ids), by=by, op="move", labels=tuple(moved), to=to) for to, moved in sorted(moves.items())
    ]
    if drops:
        added.append(Drop(id=next(ids), by=by, op="drop", labels=tuple(drops)))
    return decisions.model_copy(update={"groups": groups, "decisions": (*decisions.decisions, *added)})


def _row(label: Label, row: Clustered, suggested: Sequence[str], place: tuple[str, str, str]) -> SheetRow:
    numbers = (f"{row.distance:.4f}", f"{row.silhouette:.4f}", str(row.nearest_cluster), f"{row.margin:.4f}")
    return SheetRow(
        label.class_id,
        label.label,
        str(label.n_train),
        str(label.n_index),
        str(label.n_ambiguous),
        str(row.cluster),
        row.name,
        *numbers,
        str(row.outlier),
        *_three(suggested),
        *_three(label.examples),
        *place,
    )


def _fresh_ids(decisions: Decisions) -> Iterator[str]:
    """s001, s002 …, without those that are taken."""
    taken = {decision.id for decision in decisions.decisions}
    return (name for name in (f"s{number:03}" for number in count(1)) if name not in taken)


def _three(texts: Sequence[str]) -> tuple[str, str, str]:
    first, second, third, *_ = (*texts, "", "", "")
    return first, second, third


def _new_group(row: SheetRow, groups: Mapping[str, Group]) -> Group:
    if not row.target or row.kind not in ("natural", "human-made"):
        raise UnknownName(f"group (target of {row.class_id}, without a kind)", row.target, groups)
    return Group.model_validate({"kind": row.kind})


def _bare(text: str) -> str:
    return text[1:] if text[:1] == "'" and text[1:].startswith(FORMULA) else text
