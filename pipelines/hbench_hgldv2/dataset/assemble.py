"""An assembly: the curated mapping applied to landmarks, as the official five-column files and as label trees.

Every landmark with a class has a row; it has a super-category when its class has a group, or, for an ambiguous one,
when all its classes have the same group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hbench.core.errors import DataError
from hbench.tree import Labels, LabelTree
from hbench_hgldv2.curation.replay import Placed
from hbench_hgldv2.labels.clean import CleanedLandmark
from hbench_hgldv2.labels.released import Released

LEVELS = ("natural_or_human_made", "supercategory", "landmark")
BETWEEN = " / "  # between the classes of an ambiguous landmark


class Assembled(NamedTuple):
    """The rows of one split and how many landmarks got a label or not, and why."""

    rows: list[Released]
    counts: dict[str, int]


def assemble(selection: Iterable[CleanedLandmark], mapping: Sequence[Placed], split: str) -> Assembled:
    """The five-column rows of one split, in the selection's order; raises DataError when a class is not
    in the mapping.
    """
    placed = {row.class_id: row for row in mapping}
    rows, counts = [], Counter[str]()
    for landmark in selection:
        if landmark.split != split or landmark.status == "dropped":
            continue
        group, kind, reason = _place(landmark, placed)
        counts[reason] += 1
        label = BETWEEN.join(placed[class_id].label for class_id in landmark.classes)
        rows.append(Released(landmark.landmark_id, landmark.category, label, group, kind))
    return Assembled(rows, dict(counts))


def tree_of(rows: Sequence[Released]) -> tuple[LabelTree, Labels]:
    """The label tree natural/human-made → super-category → landmark of the labelled rows, and their labels int32 (N,
    3).

    Raises DataError when no row is labelled, TreeError when a super-category is both natural and human-made.
    """
    labelled = [row for row in rows if row.hierarchical_label]
    if not labelled:
        raise DataError("no landmark has a label", fix="replay decisions that name groups first")
    return LabelTree.from_names(
        [(row.natural_or_human_made, row.hierarchical_label, str(row.landmark_id)) for row in labelled], levels=LEVELS
    )


def _place(landmark: CleanedLandmark, placed: Mapping[str, Placed]) -> tuple[str, str, str]:
    """Group, kind and the reason: labelled, recovered, ambiguous, dropped or unassigned."""
    absent = [class_id for class_id in landmark.classes if class_id not in placed]
    if absent:
        raise DataError(
            f"class {absent[0]!r} of landmark {landmark.landmark_id} is not in the mapping",
            fix="replay the decisions again",
        )
    found = {(placed[i].status, placed[i].group, placed[i].kind) for i in landmark.classes}
    if len(found) > 1:
        return "", "", "ambiguous"
    ((status, group, kind),) = found
    if status != "group":
        return "", "", status
    return group, kind, "labelled" if landmark.status == "kept" else "recovered"
