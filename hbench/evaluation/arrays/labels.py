"""Reads labels that are given as arrays or lists: numbers or names, one path of an item or
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
    """Vectors and labels as they were given, of queries or of a gallery of N items.

    `vectors`: anything that becomes (N, D). `labels` (N + E, L), or of one dimension for one level,
    numbers or names: the first paths of the items, then the E further ones of items with several,
    whose items are `owners` (E,), positions. `what`: how messages call the vectors.
    """

    vectors: Any
    labels: Any
    owners: NDArray[np.int64]
    what: str

    @property
    def are_names(self) -> bool:
        """Whether the labels are names, and not numbers: by numpy's kind of array, O (objects) or U
        (texts)."""
        return np.asarray(self.labels).dtype.kind in "OU"

    def placed(self, vectors: Any, labels: Labels, known: Known | None) -> Side:
        """The side of a test, queries or gallery, once its labels are placed in a tree.

        `vectors` (N, D); `labels` (N + E, L): the first paths of the N items, then their E further
        ones, numbered by the tree; `known` (N + E,): to how many levels each is known, None where
        all are to the end.
        """
        items = len(labels) - len(self.owners)
        of_items = None if known is None else known[:items]
        # arrays state no groups that are left out of a list, hence no `ignore`
        if not len(self.owners):  # each item has one path
            return Side(vectors, labels, ignore=None, known=of_items)
        more = MorePaths(self.owners, labels[items:], None if known is None else known[items:])
        return Side(vectors, labels[:items], ignore=None, known=of_items, more=more)


def given_side(vectors: Any, labels: Any, whose: str, what: str) -> GivenSide:
    """What was given for one side; `labels` may be a path of each item or several. `whose`, `what`:
    how messages call the vectors and the labels.

    Raises SubmissionError for paths of different lengths.
    """
    given = as_array(labels, what) if hasattr(labels, "detach") else labels  # of torch: a tensor
    paths = _paths_of_items(given)
    if paths is None:  # one path of each item: nobody owns a further one
        return GivenSide(vectors, as_paths(given, what), np.zeros(0, np.int64), whose)
    if empty := sum(not of_item for of_item in paths):
        raise SubmissionError(
            f"{empty:,} items have no path",
            expected=f"at least one path of each item in the {what}",
        )
    first, further, owners = split_first_paths([list(map(tuple, of_item)) for of_item in paths])
    return GivenSide(vectors, as_paths([*first, *further], what), owners, whose)


def names_of_columns(labels: Sequence[Any]) -> tuple[str, ...] | None:
    """The level names that labels bring, as columns of DataFrames; None where they bring none.

    Raises SubmissionError for a column that is never a level in a table either, and for a gallery
    with other columns than the queries.
    """
    # `labels`: of the queries, then of the gallery, None where there is none
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
    """The names of the columns of `labels`, if that is a DataFrame and all are texts: pandas
    numbers columns that nobody named. None for anything else."""
    names = tuple(labels.columns) if hasattr(labels, "columns") else ()
    return names if names and all(isinstance(name, str) for name in names) else None


def _paths_of_items(labels: Any) -> list[list[Any]] | None:
    """The paths of every item, where the labels give several: an array (N, P, L), or for each item
    a list of paths, [[("Birds", "Owl"), ("Pets", "Owl")], …]. None where each has one path."""
    given = labels.to_numpy() if hasattr(labels, "to_numpy") else labels  # of pandas
    if isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype == object:
        given = given.tolist()  # a column of lists
    if isinstance(given, np.ndarray) and given.ndim == 3:
        return [list(map(tuple, of_item)) for of_item in given.tolist()]
    # any other array has one path of each item, (N,) or (N, L)
    if not isinstance(given, list | tuple) or not given:
        return None
    # names or numbers, one of each item: labels of one level
    if not all(isinstance(of_item, list | tuple) for of_item in given):
        return None
    # one path of an item is a list of names; several are a list of lists
    is_several = all(isinstance(path, list | tuple) for of_item in given for path in of_item)
    return [list(of_item) for of_item in given] if is_several else None


def as_paths(labels: Any, what: str) -> Any:
    """What a user gave as `labels`, an array, a list, a Series, a DataFrame or tensors, as what
    numpy makes an array (N,) or (N, L) of: paths as lists side by side, masked ones as missing
    names, bytes as texts. `what` names them in an error.

    Raises SubmissionError for paths of different lengths.
    """
    # a single value, also as an array without an axis, has no row for each item
    if not hasattr(labels, "__len__") or getattr(labels, "ndim", 1) == 0:
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
    # a column of lists in pandas is an array of objects, of one dimension
    is_flat = isinstance(given, np.ndarray) and given.dtype == object and given.ndim == 1
    if is_flat and len(given) and all(map(_is_path, given)):
        given = given.tolist()

    if isinstance(given, list) and given and all(map(_is_path, given)):
        lengths = sorted({len(path) for path in given})
        if len(lengths) > 1:
            raise SubmissionError(
                f"the {what} are paths of different lengths",
                expected="a class at every level, coarse to fine",
                found=f"{lengths[0]} to {lengths[-1]} levels",
                fix='fill the shorter ones with "", and give policies=["unknown"] where nothing is '
                "known below",
            )

    # kind S are bytes, which become texts. Anything else is returned as it was given: in an array
    # of texts numbers and missing names would have become texts, too
    array = as_array(given, what)
    return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else given


def _is_path(value: Any) -> bool:
    """Whether a value may be the path of an item, and no name."""
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _refuse_other_kinds(sides: Sequence[NDArray[Any]]) -> None:
    """Raise SubmissionError where queries and gallery, the `sides` (N, L) of names, share no finest
    class and their labels are of different kinds, such as 7 and "7": that is most likely a slip.
    """
    kinds, names = [], []  # of each side: its kinds of labels, and its finest names as texts
    for side in sides:
        # 7 and "7" are other classes, though they read alike
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
    """Raise SubmissionError where an entry of the `sides` (N, L) holds names and is none: a set,
    whose names have no order, or a dictionary."""
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
    """The sides that were `given`, queries and gallery, with numbers in place of names, equal
    numbers for equal paths on both; and the names of each level by number.

    `level_names`: of the levels, coarse to fine, None for the usual ones; `policies`: those that
    mend the names, in order. Raises SubmissionError for other shapes, and for a missing name (None,
    NaN, NA, "") that no policy mends.
    """
    sides = [np.asarray(side.labels, dtype=object) for side in given]
    # (N,) are labels of one level
    columns = [names[:, None] if names.ndim == 1 else names for names in sides]
    if any(names.ndim != 2 or names.shape[1] != columns[0].shape[1] for names in columns):
        raise SubmissionError(
            "the labels are not names (N, L), or queries and gallery differ in levels",
            found=", ".join(str(names.shape) for names in sides),
        )

    _refuse_other_kinds(columns)
    _refuse_what_holds_names(columns)
    rows = [tuple(map(_text_of, row)) for row in np.concatenate(columns).tolist()]
    levels = tuple(level_names or default_levels(columns[0].shape[1]))
    # an item without a name at any level is a distractor; but where no item has a name, none is
    # taken for one, and missing names are refused below
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

    # one numbering for both sides, then each side's own rows again, split where the gallery's begin
    tree, numbers = LabelTree.from_names(rows, levels=levels)
    parts = np.split(numbers, np.cumsum([len(names) for names in columns])[:-1])
    return [side._replace(labels=part) for side, part in zip(given, parts, strict=True)], tree.names


def _text_of(name: Any) -> str:
    """The text of a name; "" for what Python, numpy and pandas write for a missing one."""
    is_missing = (
        name is None
        or type(name).__name__ in ("NAType", "NaTType")  # pandas', which need not be installed
        or (isinstance(name, float | np.floating) and np.isnan(name))
        or (isinstance(name, np.datetime64 | np.timedelta64) and np.isnat(name))
    )
    return "" if is_missing else str(name)


def _mend_rows(rows: list[Row], levels: Row, policies: Sequence[str]) -> list[Row]:
    """Mend rows of names by the policies; return them in their order. A row without a class, of
    which every name is NO_CLASS (a text that no class has), stays as it is.

    Raises UsageError for a policy that would leave out a row: each row belongs to a vector.
    """
    named = [row for row in rows if row[0] != NO_CLASS]
    # `mended.final`: {row: what it became, or None where a policy left it out}
    mended = mend_to_tree(NameTable.of(levels, named), policies, "the labels")
    # a row without a class took no part, and stays
    no_class = (NO_CLASS,) * len(levels)
    final = {**mended.final, no_class: no_class}
    # the table knows each row without the empty names at its fine end
    kept = [after for row in rows if (after := final[stripped(row)]) is not None]
    if len(kept) < len(rows) or mended.table.levels != levels:
        raise UsageError(
            "a policy may not leave out rows or levels here",
            expected="a policy that leaves out no row and no level",
            found=", ".join(policies),
            fix="leave the rows out of both arrays",
        )
    return kept
