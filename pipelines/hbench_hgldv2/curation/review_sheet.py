"""A sheet: the review as CSV, one row per class, which a spreadsheet program opens without running anything in it.

A curator fills `action` (move, drop or ambiguous), `target` and, for a new group, `kind`; `comment` is the reason;
everything else is for reading.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from hbench.core.errors import ConfigError, DataError, UnknownName
from hbench_hgldv2.artefact import SEPARATOR, csv_text, open_table
from hbench_hgldv2.curation.decisions import Ambiguous, AnyDecision, Decisions, Drop, Group, Move
from hbench_hgldv2.curation.replay import Curation
from hbench_hgldv2.grouping.cluster import Clustered
from hbench_hgldv2.labels.label import Label

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for a formula at the start of a cell

ACTIONS = ("", "move", "ambiguous", "drop")


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
    coassociation: str
    suggestion1: str
    suggestion2: str
    suggestion3: str
    subclass_of: str
    example1: str
    example2: str
    example3: str
    status: str = "unassigned"
    group: str = ""
    kind: str = ""
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
        "subclass_of",
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
    *,
    ancestors: Mapping[str, str] | None = None,
) -> list[SheetRow]:
    """The rows, in the order of the clusters; `ancestors` tells a class's path in the taxonomy, where there is one."""
    above = ancestors or {}
    by_id = {label.class_id: label for label in labels}
    placed = {row.class_id: row for row in curation.rows}
    return [
        _row(by_id[row.class_id], row, suggestions.get(row.class_id, ()), above.get(row.class_id, ""))._replace(
            **dict(zip(("status", "group", "kind"), placed[row.class_id][2:5], strict=True))
        )
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
        raise DataError(f"{path} does not exist", fix="make it with: hbench hgldv2 review")
    with open_table(path) as lines:
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
    """The decisions so far, followed by what the curator filled in, one decision per target and comment: first the
    moves, then the ambiguous labels (target `a|b`, the groups that fit), then the drops.

    Raises ConfigError for another action, UnknownName for a target that is no group and has no kind.
    """
    groups, asked = dict(decisions.groups), defaultdict[tuple[str, str, str], list[str]](list)
    for row in rows:
        if not _is_sayable(row):
            raise ConfigError(
                f"{row.class_id}: the sheet asks for something it cannot say",
                expected=f"action move with a target, ambiguous with a target such as church{SEPARATOR}ruins, or drop",
                found=f"action {row.action!r}, target {row.target!r}",
            )
        for target in _targets(row):
            if target not in groups:
                groups[target] = _new_group(row, target, groups)
        if row.action:
            asked[row.action, row.target, row.comment].append(row.class_id)
    ids = _fresh_ids(decisions)
    added = [
        _decision({"id": next(ids), "by": by, "why": why or None, "labels": asked[action, target, why]}, action, target)
        for action, target, why in sorted(asked, key=lambda key: (ACTIONS.index(key[0]), key[1:]))
    ]
    return decisions.model_copy(update={"groups": groups, "decisions": (*decisions.decisions, *added)})


def _targets(row: SheetRow) -> list[str]:
    """The groups a row names."""
    if row.action == "ambiguous":
        return row.target.split(SEPARATOR)
    return [row.target] if row.action == "move" else []


def _is_sayable(row: SheetRow) -> bool:
    wanted = {"move": (1, 1), "ambiguous": (2, math.inf)}
    fewest, most = wanted.get(row.action, (0, 0))
    named = [target for target in _targets(row) if target]
    return row.action in ACTIONS and fewest <= len(named) <= most and bool(named) == bool(row.target)


def _decision(said: dict[str, Any], action: str, target: str) -> AnyDecision:
    if action == "move":
        return Move.model_validate({**said, "op": "move", "to": target})
    if action == "ambiguous":
        return Ambiguous.model_validate({**said, "op": "ambiguous", "choices": target.split(SEPARATOR)})
    return Drop.model_validate({**said, "op": "drop"})


def _row(label: Label, row: Clustered, suggested: Sequence[str], above: str) -> SheetRow:
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
        "" if math.isnan(row.coassociation) else f"{row.coassociation:.4f}",
        *_three(suggested),
        above,
        *_three(label.examples),
    )


def _fresh_ids(decisions: Decisions) -> Iterator[str]:
    """s001, s002 …, without those that are taken."""
    taken = {decision.id for decision in decisions.decisions}
    return (name for name in (f"s{number:03}" for number in count(1)) if name not in taken)


def _three(texts: Sequence[str]) -> tuple[str, str, str]:
    first, second, third, *_ = (*texts, "", "", "")
    return first, second, third


def _new_group(row: SheetRow, target: str, groups: Mapping[str, Group]) -> Group:
    if not target or row.kind not in ("natural", "human-made"):
        raise UnknownName(f"group (target of {row.class_id}, without a kind)", target, groups)
    return Group.model_validate({"kind": row.kind})


def _bare(text: str) -> str:
    return text[1:] if text[:1] == "'" and text[1:].startswith(FORMULA) else text
