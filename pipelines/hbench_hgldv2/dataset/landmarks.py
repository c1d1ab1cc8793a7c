"""Places landmarks in the hierarchy. A landmark's row is made from the curated mapping and from the
votes of its images.

Every landmark with a class has a row. It has a super-category if its class has a group or, for an
ambiguous landmark, if all its classes have the same group. A landmark without a super-category may
get one from its images (`assign`); it then has a row even without a class, as in the release. The
column `source` says how each row got its super-category.
"""

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
BETWEEN = " / "  # separates the classes of an ambiguous landmark


class Sourced(NamedTuple):
    """A row in the format of the released files, with its split and the source of its
    super-category.

    `source` is "labelled" (from the class), "recovered" (from several classes of one group) or
    "assigned" (from the images; `images` of them voted, and the `share` agreed). For a row without
    a super-category it is "ambiguous", "dropped" or "unassigned".
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


class LandmarkPlace(NamedTuple):
    """The super-category of a landmark and its kind, "" without one. `source` says how the landmark
    got its super-category or why it has none; see Sourced."""

    group: str
    kind: str
    source: str


def official(rows: Iterable[Sourced]) -> list[Released]:
    """Return the rows in the official five columns."""
    return [
        Released(
            row.landmark_id,
            row.category,
            row.supercategory,
            row.hierarchical_label,
            row.natural_or_human_made,
        )
        for row in rows
    ]


def place_landmarks(
    selection: Iterable[CleanedLandmark],
    mapping: Sequence[Placed],
    split: str,
    assigned: Iterable[Assigned] = (),
) -> list[Sourced]:
    """Make the rows of one split, in the selection's order.

    A landmark is placed as the curators placed its classes and, if that gives no group, in the
    group that its images voted for. A dropped landmark, whose classes do not count, has a row only
    if its images voted.

    Args:
        selection: the landmarks of all splits.
        mapping: the curators' place of each class.
        split: the split of the rows.
        assigned: the votes of the images of this split, one per landmark.

    Raises DataError when a class, or the group of an assigned landmark, is not in the mapping.
    """
    placed = {row.class_id: row for row in mapping}
    kinds = {row.group: row.kind for row in mapping if row.status == "group"}
    by_images = {row.landmark_id: row for row in assigned}

    rows = []
    for landmark in selection:
        if landmark.split != split:
            continue
        vote = by_images.get(landmark.landmark_id)
        is_dropped = landmark.status == "dropped"
        if is_dropped and vote is None:
            continue
        place = (
            LandmarkPlace(group="", kind="", source="dropped")
            if is_dropped
            else _place(landmark, placed)
        )
        if place.group or vote is None:
            rows.append(_row(landmark, place, placed))
        else:
            by_vote = _place_by_vote(vote, kinds)
            row = _row(landmark, by_vote, placed)
            rows.append(row._replace(images=vote.images, share=vote.share))

    return rows


def _row(landmark: CleanedLandmark, place: LandmarkPlace, placed: Mapping[str, Placed]) -> Sourced:
    """Make the row of a landmark at a place. The number of images that voted (`images`) and their
    agreement (`share`) are 0; the caller fills them in if the images voted for the place.

    `placed` maps class ids to rows of the mapping. The column `supercategory` holds the class as a
    released file spells it or, for scraped landmarks, the names of the classes, with " / " between
    them.
    """
    # the classes of a dropped landmark, if any, are not in the mapping: cleaning refused them
    classes = () if landmark.status == "dropped" else landmark.classes
    return Sourced(
        split=landmark.split,
        landmark_id=landmark.landmark_id,
        category=landmark.category,
        supercategory=landmark.raw_label or BETWEEN.join(placed[i].label for i in classes),
        hierarchical_label=place.group,
        natural_or_human_made=place.kind,
        source=place.source,
        images=0,
        share=0.0,
    )


def _place_by_vote(vote: Assigned, kinds: Mapping[str, str]) -> LandmarkPlace:
    """The place that a landmark's images voted for. Raises DataError for a group that the curators
    have removed since. `kinds` maps the curators' groups to their kinds."""
    if vote.group not in kinds:
        raise DataError(
            f"landmark {vote.landmark_id} is assigned to {vote.group!r}, which is not a "
            "group of mapping.csv",
            fix="run assign again: the decisions have changed since",
        )
    return LandmarkPlace(group=vote.group, kind=kinds[vote.group], source="assigned")


def _place(landmark: CleanedLandmark, placed: Mapping[str, Placed]) -> LandmarkPlace:
    """Return the place of a landmark according to its classes, which are at least one.

    The source of the place is "labelled" (one class, in a group), "recovered" (several classes, all
    in the same group), "ambiguous" (classes in different places), "dropped" or "unassigned".
    `placed` maps class ids to rows of the mapping. Raises DataError for a class that it lacks.
    """
    absent = [class_id for class_id in landmark.classes if class_id not in placed]
    if absent:
        raise DataError(
            f"class {absent[0]!r} of landmark {landmark.landmark_id} is not in the mapping",
            fix="replay the decisions again",
        )
    places = {(placed[i].status, placed[i].group, placed[i].kind) for i in landmark.classes}
    if len(places) > 1:
        return LandmarkPlace(group="", kind="", source="ambiguous")
    ((status, group, kind),) = places  # the only one
    if status != "group":
        return LandmarkPlace(group="", kind="", source=status)
    # unlike `status`, which is that of the class, the landmark's own status is "kept" if it has one
    # class, and "ambiguous" if it has several
    return LandmarkPlace(group, kind, "labelled" if landmark.status == "kept" else "recovered")


def tree_of(rows: Sequence[Sourced]) -> tuple[LabelTree, Labels]:
    """Make the label tree kind → super-category → landmark of the labelled rows, which have a
    super-category. Return it with the paths of these N rows, int32 (N, 3).

    Raises DataError when no row is labelled, TreeError when a super-category has two kinds.
    """
    with_label = labelled(rows)
    if not with_label:
        raise DataError("no landmark has a label", fix="replay decisions that name groups first")
    return LabelTree.from_names(
        [
            (row.natural_or_human_made, row.hierarchical_label, str(row.landmark_id))
            for row in with_label
        ],
        levels=LEVELS,
    )


def by_source(rows: Iterable[Sourced]) -> Counter[str]:
    """Count the rows by the source of their super-category."""
    return Counter(row.source for row in rows)


def labelled(rows: Iterable[Sourced]) -> list[Sourced]:
    """Return the rows with a super-category."""
    return [row for row in rows if row.hierarchical_label]
