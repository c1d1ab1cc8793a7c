"""An assembly: the curated mapping applied to landmarks, as the official five-column files and as label trees.

Every landmark with a class has a row; it has a super-category when its class has a group, or, for an ambiguous one,
when all its classes have the same group. A landmark that gets none so may get one from its images (`assign`), and then
has a row even without a class, as in the release. `source` says for each row where its super-category is from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hbench.core.errors import DataError
from hbench.tree import Labels, LabelTree
from hbench_hgldv2.curation.replay import Placed
from hbench_hgldv2.dataset.assign import Assigned
from hbench_hgldv2.labels.clean import CleanedLandmark
from hbench_hgldv2.labels.released import Released

LEVELS = ("natural_or_human_made", "supercategory", "landmark")
BETWEEN = " / "  # between the classes of an ambiguous landmark


class Sourced(NamedTuple):
    """A released row, its split, and where its super-category is from.

    `source`: "labelled" by its class, "recovered" from several classes of one group, "assigned" by its images (how many
    voted and the share that agreed are in `images` and `share`); without a super-category "ambiguous", "dropped" or
    "unassigned", as curation left it.
    """

    split: str
    landmark_id: int
    category: str
    supercategory: str
    hierarchical_label: str
    natural_or_human_made: str
    source: str
    images: int
    share: float


class Assembled(NamedTuple):
    """The rows of one split with their sources, and how many landmarks have each source."""

    sourced: list[Sourced]
    counts: dict[str, int]

    @property
    def rows(self) -> list[Released]:
        """The rows in the official five columns."""
        return [Released(*row[1:6]) for row in self.sourced]


def assemble(
    selection: Iterable[CleanedLandmark], mapping: Sequence[Placed], split: str, assigned: Iterable[Assigned] = ()
) -> Assembled:
    """The rows of one split, in the selection's order; what curators decided goes before what images say.

    Raises DataError when a class, or the group of an assigned landmark, is not in the mapping.
    """
    placed = {row.class_id: row for row in mapping}
    kinds = {row.group: row.kind for row in mapping if row.status == "group"}
    by_images = {row.landmark_id: row for row in assigned}
    sourced = []
    for landmark in selection:
        if landmark.split != split or (landmark.status == "dropped" and landmark.landmark_id not in by_images):
            continue
        group, kind, source = _place(landmark, placed) if landmark.status != "dropped" else ("", "", "dropped")
        found = by_images.get(landmark.landmark_id) if not group else None
        if found:
            group, kind, source = found.group, _kind(found, kinds), "assigned"
        classes = () if landmark.status == "dropped" else landmark.classes
        label = landmark.raw_label or BETWEEN.join(placed[class_id].label for class_id in classes)
        votes = (found.images, found.share) if found else (0, 0.0)
        sourced.append(Sourced(split, landmark.landmark_id, landmark.category, label, group, kind, source, *votes))
    return Assembled(sourced, dict(Counter(row.source for row in sourced)))


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


def _kind(found: Assigned, kinds: Mapping[str, str]) -> str:
    """The kind of an assigned landmark's group."""
    if found.group not in kinds:
        raise DataError(
            f"landmark {found.landmark_id} is assigned to {found.group!r}, which is no group of mapping.csv",
            fix="assign again: the decisions have changed since",
        )
    return kinds[found.group]


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
