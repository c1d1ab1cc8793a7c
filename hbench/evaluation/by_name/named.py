"""Holds the names that a source gave to a dataset's items, measures how reliable they are, and
compares them with those of another source.
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
from hbench.evaluation.by_name.trusted import Trusted
from hbench.evaluation.by_name.trusted.calibration import (
    NamedItems,
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
        table: for each item the path and the mass of its last node, by the reader SUM if there are
            several; then also the finest level down to which all readers agree.
        scores: {reader: {value: its mean with an interval over classes}}.
        values: {reader: {value: (N,), of every item, NaN where it has none}}.
        signature: the conditions of the scores.
        manifest: the items with their labels; its queries are named.
        nodes: {reader: (Q, L), the nodes of the queries, coarse to fine; −1 below the end of a
            path}.
        climb: the masses along the path of the largest share.
        numbering: the names of the nodes, including those that the tree does not have.
        unit: what intervals are taken over, a level or "query".
        warnings: remarks on what was left out.
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
        """The nodes along each item's path: their masses, whether they are right, and their
        coverage (how much of the tree an answer with this node rules out, 1 for a leaf)."""
        right = verdicts(self.climb.nodes, *truth_of(self.manifest))
        return JudgedClimb(self.climb, right, coverage_of(self.manifest.tree, self.climb.nodes))

    @cached_property
    def has_truth(self) -> NDArray[np.bool_]:
        """Whether a right path of each item is known, at least at the coarsest level: bool (N,)."""
        _, owners, known = truth_of(self.manifest)
        # the number of known paths of each item
        return np.bincount(owners, known > 0, len(self.items)) > 0

    def reliability(self) -> dict[str, tuple[Reliability, ...]]:
        """Compare masses, in ten bins, with the fraction of nodes that are right: {level: bins}. It
        shows how far a mass, which is a sum of shares, is from being a probability."""
        columns = zip(self.climb.masses.T, self.judged.right.T, strict=True)
        return {
            level: reliability_of(masses, right)
            for level, (masses, right) in zip(self.manifest.levels, columns, strict=True)
        }

    @property
    def remark(self) -> str:
        """A sentence on how often masses of .9 and more are right at the finest level. The mass of
        a node is the sum of an item's shares over the classes below the node."""
        if not self.has_truth.any():
            return "masses are shares, no chances: no item has a label to count them by"
        # (N,) each, of the finest node on each item's path: its mass, and 1 if it is right, else 0
        masses, right = self.climb.masses[:, -1], self.judged.right[:, -1]
        large = masses >= 0.9
        known = large & ~np.isnan(right)  # NaN: nobody knows whether the node is right
        if not known.any():
            return "masses are shares, no chances: none of .9 or more at the finest level"
        share = large[self.has_truth].mean()  # of items with a label; others have NaN in `right`
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
        """Answer every item as deep in the tree as possible, so that a share `target` of the
        answers is right, also for new classes.

        The threshold is set on some classes and measured on others. By default the classes are
        split into halves, and each half is answered, and measured, with the threshold that was set
        on the other one. With `calibrate` the threshold is set on the chosen items, or on those of
        another naming, and measured on the rest. Items of unknown truth are answered with the
        threshold that is set on all items of known truth or, with `calibrate`, on the chosen ones.

        Args:
            target: the share of what is said that is to be right, such as 0.95.
            calibrate: the items to set the threshold on, as a mask (N,) or by id; or what
                `hbench.name` gave for others, from the same source. Default: halves.
            unit: what the promise counts: the classes of a level, or "query", each item by itself,
                which promises nothing about new classes. Default: `unit` of this naming.

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
        """Raise ComparisonError if the `other` naming has other readers (the keys of `scores`) or
        levels: a threshold set on the masses there promises nothing for the masses here."""
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

        If there are several readers, the values are those of the reader `sum`.

        Args:
            other: what `hbench.name` gave for the same dataset, from any source.
            unit: what intervals and the test are over: the classes of a level, or "query".
                Default: as here.

        Returns:
            NamesCompared: a `Difference` of each value that both have, by name.

        Raises:
            ComparisonError: another dataset, other items.
            UnknownName: a unit that does not exist.
        """
        return compare_namings(self._by_item, other._by_item, self.unit if unit is None else unit)

    @property
    def _by_item(self) -> ValuesByItem:
        """The values of every item by one reader: SUM if there are several, else the only one."""
        reader = SUM if SUM in self.values else next(iter(self.values))
        return ValuesByItem(self.manifest, self.values[reader], self.signature)

    def part(self, share: float, *, unit: str | None = None) -> NDArray[np.bool_]:
        """Choose a `share` of the classes, such as 0.5, to set a threshold on, and return which
        items belong to them, bool (N,). The choice of classes (of the level `unit`) is always the
        same."""
        units = units_of(queries_of("test", self.manifest), self.unit if unit is None else unit)
        return part_of_units(units, share)

    def _named_items(self, unit: str) -> NamedItems:
        """Return the items on which thresholds are set and measured, with their masses, truth and
        units. The unit of an item is its class at the level `unit` or, for "query", the item
        itself. Items of one unit are not independent, so units are counted in intervals and in
        the promise (that a share of the answers is right). Where thresholds are set on one half of
        the items and measured on the other, these are halves of the units.

        `self.judged` holds the masses along the items' paths, `self.table` the whole naming."""
        # (N,): the number of each item's unit. Here every item counts as a query. `queries_of` also
        # needs the name of a test, which makes no difference to units.
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
    """Return the E true paths of a test's queries: the nodes (E, L), the query of each path as its
    position among the queries (E,), and how many levels of each path are known (E,), 0 for an item
    without a class. The first paths of all queries come first, in order, then further paths."""
    labels, owners = manifest.paths.of(np.flatnonzero(manifest.query)).all_labels()
    known = known_levels(manifest.tree)[labels[:, -1]].astype(np.int64)
    # for each node of the coarsest level, whether it means "no class"
    nothing = np.array([name == NO_CLASS for name in manifest.tree.names[0]])
    return labels, owners, np.where(nothing[labels[:, 0]], 0, known)
