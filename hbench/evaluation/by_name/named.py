"""Keeps the names of a dataset's items: what their masses are worth, how deep they can be trusted,
and how they compare with others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from hbench.core import tables
from hbench.core.arguments import checked
from hbench.core.errors import ComparisonError
from hbench.datasets.manifest import Manifest
from hbench.evaluation.by_name.compared import NamesCompared, ValuesByItem, compare_namings
from hbench.evaluation.by_name.naming import (
    SUM,
    Nodes,
)
from hbench.evaluation.by_name.trusted import (
    NamedItems,
    Trusted,
    trusted_by_others,
    trusted_of,
)
from hbench.records.document import Score
from hbench.records.queries import queries_of, units_of
from hbench.tree import Labels
from hbench.tree.partial import NO_CLASS, known_levels
from hbench.trust.climbing import Climb, Positions, Values, coverage_of, verdicts
from hbench.trust.numbering import Numbering
from hbench.trust.outcomes import JudgedClimb, Reliability, reliability_of
from hbench.trust.parts import part_of_units


@dataclass(frozen=True)
class NamedPictures:
    """The names of a test's items, and how good they are.

    Attributes:
        table: item, path and mass (of the path's last node) by the first of the readers that sum,
            and the finest level down to which all readers agree, where there are several.
        scores: of every reader, each value's mean with its interval over classes.
        values: of every reader, each value of every item (N,), NaN where it has none.
        signature: what the scores cannot be quoted without.
        manifest: the items, whose queries are named, with their labels.
        nodes: of every reader, the nodes (Q, L) of the queries, coarse to fine; −1 below the end of
            a path.
        climb: the masses along the path of the largest share.
        numbering: the names of the nodes, also of those that the tree does not have.
        unit: what intervals are taken over.
        warnings: what is left out.
    """

    table: pa.Table
    scores: Mapping[str, Mapping[str, Score]]
    values: Mapping[str, Mapping[str, Values]]
    signature: str
    manifest: Manifest
    nodes: Mapping[str, Nodes]
    climb: Climb
    numbering: Numbering
    unit: str
    warnings: tuple[str, ...] = ()

    def write(self, path: str | Path) -> None:
        """Write the names as .csv, .tsv or .parquet, whole or not at all."""
        tables.write_sheet(self.table, Path(path))

    @property
    def items(self) -> NDArray[np.object_]:
        """The ids of the items (N,), in the dataset's order."""
        return self.manifest.items[self.manifest.query]

    @cached_property
    def judged(self) -> JudgedClimb:
        """The masses of the nodes along each item's path, with whether each node is right, and how
        much of the tree an answer with it rules out (its coverage, 1 for a leaf)."""
        right = verdicts(self.climb.nodes, *truth_of(self.manifest))
        return JudgedClimb(self.climb, right, coverage_of(self.manifest.tree, self.climb.nodes))

    @cached_property
    def has_truth(self) -> NDArray[np.bool_]:
        """Of which items (N,) some right path is known, to the coarsest level at least."""
        _, owners, known = truth_of(self.manifest)
        # per item, how many of its paths are known
        return np.bincount(owners, known > 0, len(self.items)) > 0

    def reliability(self) -> dict[str, tuple[Reliability, ...]]:
        """By level, masses in ten bins beside the share of them that is right: it shows how far a
        mass, a sum of shares, is from being a chance. `masses`, `right` (Q, L): along the path of
        each item, and whether each of its nodes is right."""
        columns = zip(self.climb.masses.T, self.judged.right.T, strict=True)
        return {
            level: reliability_of(masses, right)
            for level, (masses, right) in zip(self.manifest.levels, columns, strict=True)
        }

    @property
    def remark(self) -> str:
        """How often masses of .9 and more are right at the finest level, in words."""
        if not self.has_truth.any():
            return "masses are shares, no chances: no item has a label to count them by"
        masses, right = self.climb.masses[:, -1], self.judged.right[:, -1]
        large = masses >= 0.9
        known = large & ~np.isnan(right)
        if not known.any():
            return "masses are shares, no chances: none of .9 or more at the finest level"
        share = large[self.has_truth].mean()  # of the items with a label, as what is right is
        return (
            f"masses are shares, no chances: items with .9 or more at {self.manifest.levels[-1]} "
            f"({share:.0%}) were right in {right[known].mean():.0%}"
        )

    @checked
    def trust(
        self,
        target: float,
        calibrate: ArrayLike | NamedPictures | None = None,
        *,
        unit: str | None = None,
    ) -> Trusted:
        """Answer as deep as `target` of what is said is right, for classes drawn anew.

        The threshold is set on some classes and measured on others. By default the classes are cut
        into halves, and each half is answered, and measured, by the threshold that was set on the
        other one. With `calibrate` the threshold is set on the chosen items, or on those of another
        naming, and measured on the rest. Items of unknown truth are answered by a threshold that
        was set on all items that some threshold was set on.

        Args:
            target: the share of what is said that is to be right, such as 0.95.
            calibrate: the items to set the threshold on, as a mask (N,) or by id; or what
                `hbench.name` gave for others, from the same source. Default: halves.
            unit: what the promise is made over: a level, or "query", which promises nothing about
                new classes. Default: the finest level.

        Returns:
            Trusted: `threshold`, `levels`, `nodes`, `right_of_said`, `write("answers.csv")`.

        Raises:
            UsageError: a target outside of 0 … 1, a mask of another length.
            ComparisonError: another naming of other levels, or from another source.
            UnknownName: a unit or an item that does not exist.
        """
        chosen = self.unit if unit is None else unit
        named = self._named_items(chosen)
        if isinstance(calibrate, NamedPictures):
            self._refuse_to_calibrate(calibrate)
            return trusted_by_others(named, target, calibrate._named_items(chosen), chosen)
        return trusted_of(named, target, calibrate, chosen)

    def _refuse_to_calibrate(self, other: NamedPictures) -> None:
        """Raise ComparisonError for a naming whose masses are of another kind: other readers, or
        other levels. A threshold that was set on those would promise nothing here."""
        mine, theirs = (
            f"{', '.join(each.scores)} down to {' › '.join(each.manifest.levels)}"
            for each in (self, other)
        )
        if mine != theirs:
            raise ComparisonError(
                "a threshold of one kind of masses does not hold for another",
                expected=mine,
                found=theirs,
                fix="name both from the same source, in the same levels",
            )

    @checked
    def against(self, other: NamedPictures, *, unit: str | None = None) -> NamesCompared:
        """The paired differences, this naming − another of the same items, value by value.

        Of several readers the one that sums is taken.

        Args:
            other: what `hbench.name` gave for the same dataset, from any source.
            unit: what intervals and the test go by: a level, or "query". Default: as here.

        Returns:
            NamesCompared: a `Difference` of each value that both have, by name.

        Raises:
            ComparisonError: another dataset, other items.
            UnknownName: a unit that does not exist.
        """
        return compare_namings(self._by_item, other._by_item, self.unit if unit is None else unit)

    @property
    def _by_item(self) -> ValuesByItem:
        """The values of every item by one reader, a way to get from similarities to a path: SUM,
        where there are several, else the only one."""
        reader = SUM if SUM in self.values else next(iter(self.values))
        return ValuesByItem(self.manifest, self.values[reader], self.signature)

    def part(self, share: float, *, unit: str | None = None) -> NDArray[np.bool_]:
        """Which items (N,) are of a share of the classes, such as 0.5, to set a threshold on; whole
        classes, of the level `unit`, and the same ones each time."""
        units = units_of(queries_of("test", self.manifest), self.unit if unit is None else unit)
        return part_of_units(units, share)

    def _named_items(self, unit: str) -> NamedItems:
        """What thresholds are set and measured on: the items, with the `unit` of each, a class of
        the level of that name or, for "query", the item itself."""
        units = units_of(queries_of("test", self.manifest), unit)
        return NamedItems(
            items=self.items,
            judged=self.judged,
            has_truth=self.has_truth,
            units=units,
            numbering=self.numbering,
            levels=self.manifest.levels,
            table=self.table,
        )


def truth_of(manifest: Manifest) -> tuple[Labels, Positions, Positions]:
    """The E true paths of a test's queries: their nodes (E, L); the query that each belongs to
    (E,), by its place among the queries; and how many levels of each are known (E,), 0 for items
    without a class."""
    labels, owners = manifest.paths.of(np.flatnonzero(manifest.query)).all_labels()
    known = known_levels(manifest.tree)[labels[:, -1]].astype(np.int64)
    # by node of the coarsest level: whether it stands for no class
    nothing = np.array([name == NO_CLASS for name in manifest.tree.names[0]])
    return labels, owners, np.where(nothing[labels[:, 0]], 0, known)
