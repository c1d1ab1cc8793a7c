"""Reads labels that are given as arrays or lists: numbers or names, with one path for an item or
several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.arguments import as_array
from hbench.core.errors import SubmissionError, UsageError
from hbench.engine.sides import Side
from hbench.sheets.rows import Row, default_levels, stripped
from hbench.tree import NOT_LEVELS, Labels, LabelTree
from hbench.tree.advice import mend_to_tree
from hbench.tree.names import NameTable
from hbench.tree.partial import NO_CLASS, Known
from hbench.tree.several import MorePaths, split_first_paths


class GivenSide(NamedTuple):
    """The vectors and labels that a user gave for the N queries or gallery items.

    Attributes:
        vectors: anything that can become an array (N, D).
        labels: numbers or names, (N + E, L), or (N + E,) for one level: the first path of each
            item, then the E further paths of items that have several.
        owners: (E,), the position of the item of each further path.
        what: what messages call the vectors.
    """

    vectors: Any
    labels: Any
    owners: NDArray[np.int64]
    what: str

    @property
    def are_names(self) -> bool:
        """Whether the labels are names and not numbers: arrays of numpy's kind O (objects) or U
        (texts) have names."""
        return np.asarray(self.labels).dtype.kind in "OU"

    def placed(self, vectors: Any, labels: Labels, known: Known | None) -> Side:
        """Make the side of a test, queries or gallery, from labels that were numbered by a tree.

        `vectors` (N, D). `labels` (N + E, L): the first path of each item, then the E further
        paths, whose items `owners` (E,) gives by position. `known` (N + E,): how many levels of
        each path are known; None if all are complete.
        """
        items = len(labels) - len(self.owners)
        of_items = None if known is None else known[:items]
        # arrays have no ignore groups
        if not len(self.owners):  # each item has one path
            return Side(vectors, labels, ignore=None, known=of_items)
        more = MorePaths(
            items=self.owners, labels=labels[items:], known=None if known is None else known[items:]
        )
        return Side(vectors, labels[:items], ignore=None, known=of_items, more=more)


def given_side(vectors: Any, labels: Any, whose: str, what: str) -> GivenSide:
    """Collect what a user gave for the queries or the gallery. `labels`: one path for each item or
    several. `whose`: what messages call the vectors; it becomes `what` of the result. `what`: what
    messages call the labels.

    Raises SubmissionError for paths of different lengths, for items without a path, and for
    DataFrames whose rows are in different orders.
    """
    _refuse_other_order(vectors, labels, whose, what)
    given = as_array(labels, what) if hasattr(labels, "detach") else labels  # a torch tensor
    paths = _paths_of_items(given)
    if paths is None:  # one path for each item, so there are no owners of further ones
        return GivenSide(
            vectors=vectors, labels=as_paths(given, what), owners=np.zeros(0, np.int64), what=whose
        )
    if empty := sum(not of_item for of_item in paths):
        raise SubmissionError(
            f"{empty:,} items have no path",
            expected=f"at least one path of each item in the {what}",
        )
    first, further, owners = split_first_paths([list(map(tuple, of_item)) for of_item in paths])
    return GivenSide(
        vectors=vectors, labels=as_paths([*first, *further], what), owners=owners, what=whose
    )


def _refuse_other_order(vectors: Any, labels: Any, whose: str, what: str) -> None:
    """Raise SubmissionError if vectors and labels are both of pandas, and have the same index in
    another order: they would be joined by position."""
    # a list has a method of this name
    rows, others = (getattr(each, "index", None) for each in (vectors, labels))
    if rows is None or others is None or callable(rows) or callable(others):
        return
    if not rows.equals(others) and len(rows) == len(others) and set(rows) == set(others):
        raise SubmissionError(
            f"the {whose} and the {what} have the same index in another order",
            expected="rows in one order, since they are joined by position",
            fix=f"{what}.loc[{whose}.index]",
        )


def names_of_columns(labels: Sequence[Any]) -> tuple[str, ...] | None:
    """Return the level names that labels have as the columns of a DataFrame; None without names.

    `labels`: those of the queries, then those of the gallery or None. Raises SubmissionError for a
    column that has another meaning in a table of items, such as "split" (NOT_LEVELS), and if
    queries and gallery have different columns.
    """
    found = [named for given in labels if (named := _columns_of(given)) is not None]
    if not found:
        return None
    if other := [named for named in found if named != found[0]]:
        raise SubmissionError(
            "the labels of queries and gallery have other columns",
            expected=", ".join(found[0]),
            found=", ".join(other[0]),
        )
    if reserved := [name for name in found[0] if name.lower() in NOT_LEVELS]:
        raise SubmissionError(
            f"the labels have the column {reserved[0]}, which is no level",
            expected="a column per level, coarse to fine",
            fix='labels[["order", "species"]] picks columns',
        )
    return found[0]


def _columns_of(labels: Any) -> tuple[str, ...] | None:
    """Return the names of the columns of a DataFrame. None for anything else, and for columns that
    have no names: pandas numbers these."""
    names = tuple(labels.columns) if hasattr(labels, "columns") else ()
    return names if names and all(isinstance(name, str) for name in names) else None


def _paths_of_items(labels: Any) -> list[list[Any]] | None:
    """Return the list of paths of each item if labels have several: an array (N, P, L), or a list
    of paths for each item, [[("Birds", "Owl"), ("Pets", "Owl")], …]. None if each item has one
    path."""
    given = labels.to_numpy() if hasattr(labels, "to_numpy") else labels  # of pandas
    if isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype == object:
        given = given.tolist()  # a column of lists
    if isinstance(given, np.ndarray) and given.ndim == 3:
        return [list(map(tuple, of_item)) for of_item in given.tolist()]
    # any other array has one path for each item, (N,) or (N, L)
    if not isinstance(given, list | tuple) or not given:
        return None
    # one name or number for each item: labels of one level
    if not all(isinstance(of_item, list | tuple) for of_item in given):
        return None
    # a path is a list of names, so several paths are a list of lists
    is_several = all(isinstance(path, list | tuple) for of_item in given for path in of_item)
    return [list(of_item) for of_item in given] if is_several else None


def as_paths(labels: Any, what: str) -> Any:
    """Convert labels (an array, list, Series, DataFrame or tensors) to a value from which numpy
    makes an array (N,) or (N, L). Masked values become missing names, bytes become texts. `what`:
    what messages call the labels.

    Raises SubmissionError for paths of different lengths, and for missing numbers.
    """
    # a single value, or an array of zero dimensions, has no entry for each item; a dictionary has
    # one for each level
    is_single = not hasattr(labels, "__len__") or getattr(labels, "ndim", 1) == 0
    if is_single or isinstance(labels, Mapping):
        raise SubmissionError(
            f"the {what} are not names or numbers of a row for each item",
            expected="a list or an array, with a class at every level",
            found=f"{labels!r:.60}",
        )
    # a list of torch tensors
    if isinstance(labels, list | tuple) and len(labels) and hasattr(labels[0], "detach"):
        return as_array(labels, what)
    if isinstance(labels, np.ma.MaskedArray) and np.ma.is_masked(labels):
        named = np.array(labels.data, dtype=object)
        named[np.ma.getmaskarray(labels)] = None
        return named

    given = labels.to_numpy() if hasattr(labels, "to_numpy") else labels
    # a pandas column of lists is a one-dimensional array of objects; of the list of lists numpy
    # makes an array (N, L)
    is_flat = isinstance(given, np.ndarray) and given.dtype == object and given.ndim == 1
    if is_flat and len(given) and all(map(_is_path, given)):
        given = given.tolist()

    # only paths in a list or tuple can differ in length: the rows of an array do not
    if isinstance(given, list | tuple) and given and all(map(_is_path, given)):
        lengths = sorted({len(path) for path in given})
        if len(lengths) > 1:
            raise SubmissionError(
                f"the {what} are paths of different lengths",
                expected="a class at every level, coarse to fine",
                found=f"{lengths[0]} to {lengths[-1]} levels",
                fix='fill the shorter ones with "", and give policies=["unknown"] where nothing is '
                "known below",
            )

    # Kind S are bytes, which become texts. Otherwise `given` is returned and not the array: in an
    # array with texts, numpy turns numbers and missing names into texts, too
    array = as_array(given, what)
    if array.dtype.kind == "f" and (missing := int(np.isnan(array).sum())):
        raise SubmissionError(
            f"{missing:,} of the {what} are missing (NaN)",
            expected="a class at every level",
            fix="leave these items out; or, where only finer classes are missing, give texts or "
            'Int64 of pandas, and policies=["unknown"]',
        )
    return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else given


def _is_path(value: Any) -> bool:
    """Whether a value is the path of an item rather than a single name."""
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _refuse_other_kinds(sides: Sequence[NDArray[Any]]) -> None:
    """Raise SubmissionError if queries and gallery share no finest class and their labels are of
    different types, such as "7" and 7.0, which is most likely a mistake. `sides`: the names (N, L)
    of each.
    """
    kinds, names = [], []  # for each side: the types of its labels, its finest names as texts
    for side in sides:
        # names are compared as texts: 7 and "7" are one class, but 7.0 is "7.0"
        finest = side[:, -1].tolist()
        kinds.append(sorted({type(name).__name__ for name in finest}))
        names.append(set(map(str, finest)))
    if len(sides) > 1 and kinds[0] != kinds[1] and names[0].isdisjoint(names[1]):
        raise SubmissionError(
            "the labels of queries and gallery are of different kinds, so that none is the same",
            expected="one kind of names on both sides",
            found=f"{', '.join(kinds[0])} and {', '.join(kinds[1])}",
        )


def _refuse_what_holds_names(sides: Sequence[NDArray[Any]]) -> None:
    """Raise SubmissionError if an entry of the `sides` (N, L) is a container of names that is no
    path: a set, which has no order, or a dictionary."""
    held = [
        name for side in sides for name in side.flat if isinstance(name, set | frozenset | Mapping)
    ]
    if held:
        raise SubmissionError(
            f"{len(held):,} of the labels are no names",
            expected="names or numbers, coarse to fine, such as a list of each item",
            found=f"{held[0]!r:.60} ({type(held[0]).__name__})",
        )


def sides_with_numbers(
    given: Sequence[GivenSide], level_names: Sequence[str] | None, policies: Sequence[str]
) -> tuple[list[GivenSide], tuple[tuple[str, ...], ...]]:
    """Number the names of queries and gallery, with equal numbers for equal paths on both. Return
    the sides with numbers, and the names of each level, indexed by number.

    `level_names`: of the levels, coarse to fine; None: the default names. `policies`: mend the
    names, in this order. Raises SubmissionError for wrong shapes, for a missing name (None, NaN,
    NA, "") that no policy mends, for sets and dictionaries in place of names, and if the two sides
    share no class and have labels of different types, such as "7" and 7.0.
    """
    sides = [np.asarray(side.labels, dtype=object) for side in given]
    # labels (N,) have one level
    columns = [names[:, None] if names.ndim == 1 else names for names in sides]
    if any(names.ndim != 2 or names.shape[1] != columns[0].shape[1] for names in columns):
        raise SubmissionError(
            "the labels are not names (N, L), or queries and gallery differ in levels",
            found=", ".join(str(names.shape) for names in sides),
        )

    _refuse_other_kinds(columns)
    _refuse_what_holds_names(columns)  # such as a set of names
    rows = [tuple(map(_text_of, row)) for row in np.concatenate(columns).tolist()]
    levels = tuple(level_names or default_levels(columns[0].shape[1]))
    # an item without a name at any level is a distractor, unless no item has a name: then missing
    # names are refused below
    if any(map(any, rows)):
        rows = [row if any(row) else (NO_CLASS,) * len(levels) for row in rows]
    if policies:
        rows = _mend_rows(rows, levels, policies)
    if incomplete := sum("" in row for row in rows):
        raise SubmissionError(
            f"{incomplete:,} of the labels have no name at some level",
            expected="a name at every level",
            fix='fill them in; or, where only finer names are missing, policies=["unknown"] scores '
            "what is known",
        )

    # number both sides together, then split the rows where those of the gallery begin
    tree, numbers = LabelTree.from_names(rows, levels=levels)
    parts = np.split(numbers, np.cumsum([len(names) for names in columns])[:-1])
    return [side._replace(labels=part) for side, part in zip(given, parts, strict=True)], tree.names


def _text_of(name: Any) -> str:
    """Return a name as text; "" for the values by which Python, numpy and pandas mark a missing
    one."""
    is_missing = (
        name is None
        or type(name).__name__ in ("NAType", "NaTType")  # of pandas, which may not be installed
        or (isinstance(name, float | np.floating) and np.isnan(name))
        or (isinstance(name, np.datetime64 | np.timedelta64) and np.isnat(name))
    )
    return "" if is_missing else str(name)


def _mend_rows(rows: list[Row], levels: Row, policies: Sequence[str]) -> list[Row]:
    """Mend rows of names by policies, and return them in the same order. A row without a class,
    whose names are all NO_CLASS, is not changed.

    Raises UsageError if a policy would remove a row, since each row belongs to a vector.
    """
    named = [row for row in rows if row[0] != NO_CLASS]
    # `mended.final`: {row: its mended row, or None if a policy removed it}
    mended = mend_to_tree(NameTable.of(levels, named), policies, "the labels")
    # rows without a class were not given to the policies, and stay the same
    no_class = (NO_CLASS,) * len(levels)
    final = {**mended.final, no_class: no_class}
    # the rows of the table, which are the keys of `final`, have no empty names at their fine end
    kept = [after for row in rows if (after := final[stripped(row)]) is not None]
    if len(kept) < len(rows) or mended.table.levels != levels:
        raise UsageError(
            "a policy may not leave out rows or levels here",
            expected="a policy that leaves out no row and no level",
            found=", ".join(policies),
            fix="leave the rows out of both arrays",
        )
    return kept
