"""Checks of label trees and their labels, which raise TreeError before anything is computed."""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import TreeError, examples
from hbench.core.text import counted


def refuse_misfits(
    levels: Sequence[str], names: Sequence[Sequence[str]], paths: NDArray[np.int32]
) -> None:
    """Raise TreeError for names that are no texts, and for levels, names and paths (C, L) that do
    not fit each other."""
    if not isinstance(names, Sequence):
        raise TreeError("names are no lists of names", found=type(names).__name__)
    # strict=False, since a wrong number of levels is reported below
    for level, of_level in zip(levels, names, strict=False):
        try:  # join fails for a number, and encode for half of a surrogate pair
            "".join(of_level).encode()
        except (TypeError, UnicodeEncodeError) as error:
            raise TreeError(
                f"some names of level {level} are no texts that files can hold", found=str(error)
            ) from None
    # the ids in each column of paths must be below the number of names of its level; `initial` is
    # the result where there are no paths
    if (
        paths.ndim != 2
        or paths.dtype.kind not in "iu"
        or not len(levels) == len(names) == paths.shape[1]
        or any(
            ids.min(initial=0) < 0 or ids.max(initial=-1) >= len(of_level)
            for ids, of_level in zip(paths.T, names, strict=True)
        )
    ):
        raise TreeError(
            "levels, names and paths are not those of one tree",
            expected="paths of whole numbers (classes, levels), and names[level][id] for each",
            found=f"{len(levels)} levels, names of {len(names)}, paths {paths.dtype} of shape "
            f"{paths.shape}",
            fix="LabelTree.from_names and .from_labels make a tree from data",
        )


def refuse_other_paths(labels: NDArray[np.generic], paths: NDArray[np.int32]) -> None:
    """Raise TreeError unless each row of labels (N, L), numbers of nodes, is a row of the `paths`
    (C, L) of a tree: that of its finest class."""
    depth = paths.shape[1]
    if labels.dtype.kind not in "iu" or labels.shape[1:] != (depth,):
        raise TreeError(
            "the labels are no numbers of nodes",
            expected=f"integers (items, {depth})",
            found=f"{labels.dtype} {labels.shape}",
        )
    finest = labels[:, -1].astype(np.int64)
    if len(finest) and not 0 <= finest.min() <= finest.max() < len(paths):
        raise TreeError(
            "the labels name classes that the tree does not have",
            expected=f"0 … {len(paths) - 1} at the finest level",
            found=f"{finest.min()} … {finest.max()}",
        )
    astray = np.flatnonzero((paths[finest] != labels).any(axis=1))
    if len(astray):
        row = int(astray[0])
        raise TreeError(
            f"{len(astray):,} labels are no path of the tree",
            expected=f"{paths[finest[row]].tolist()}, the path to the finest class of row {row}",
            found=f"{labels[row].tolist()}",
        )


def names_in(column: Sequence[str], level: str) -> Sequence[Any]:
    """The names in the column of a level, texts or numbers, as a sequence. Raises TreeError for
    missing names, and for names of any other type."""
    values = column.tolist() if hasattr(column, "tolist") else column
    is_list = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    # the types of values that are no names, "NaN" for a missing number; the column if it is no list
    foreign = _no_names_in(values) if is_list else [f"{values!r:.60}"]
    if foreign:
        raise TreeError(
            f"the names of level {level} are no list of texts or numbers",
            expected="a name of each item",
            found=", ".join(foreign),
        )
    return values


def _no_names_in(values: Sequence[Any]) -> list[str]:
    """The types of those values that are neither texts nor numbers, by name; empty if there are
    none. "NaN" is listed as well, since it marks a missing value."""
    kinds = set(map(type, values))
    found = [kind.__name__ for kind in kinds if not issubclass(kind, str | numbers.Number)]
    if float in kinds and any(isinstance(each, float) and math.isnan(each) for each in values):
        found.append("NaN")
    return sorted(found)


def _is_row(row: Any) -> bool:
    """Whether a value is a list, a tuple or an array (n,). A text or a set is no row of names."""
    if isinstance(row, list | tuple):
        return True
    return hasattr(row, "tolist") and getattr(row, "ndim", 0) == 1


def refuse_other_rows(rows: Sequence[Sequence[str]]) -> None:
    """Raise TreeError if `rows` is no list, tuple or array of rows of names."""
    is_table = hasattr(rows, "tolist") and getattr(rows, "ndim", 0) > 0
    if not (isinstance(rows, list | tuple) or is_table) or not all(map(_is_row, rows)):
        raise TreeError(
            "rows must be lists of names",
            expected='[["owl", "barn owl"], …], coarse to fine',
            found=f"{rows!r:.60}",
        )


def refuse_missing(labels: NDArray[np.generic]) -> None:
    """Raise TreeError for missing labels. None is equal to itself, and NaN to nothing, so comparing
    such labels would give wrong levels."""
    # other types than objects and floats have no value for a missing label
    may_miss = labels.dtype == object or labels.dtype.kind == "f"
    # the types of the labels that are neither texts nor numbers, or "NaN"
    missing = _no_names_in(labels.ravel().tolist()) if may_miss else []
    if missing:
        raise TreeError(
            "some labels are no names or numbers",
            expected="a class at every level",
            found=", ".join(missing),
        )


# how a number of problems of a kind is called: one of them, and several if that is not with an s
CALLED = {
    "cycle": ("cycle", ""),
    "placeholder": ("placeholder", ""),
    "ragged": ("ragged row", ""),
    "homonym": ("homonym", ""),
    "several parents": ("node with several parents", "nodes with several parents"),
}


def kinds_in_words(kinds: Mapping[str, int]) -> str:
    """How many problems there are of each kind, in words.

    >>> kinds_in_words({"cycle": 1, "several roots": 1, "several parents": 2})
    '1 cycle, several roots, 2 nodes with several parents'
    """
    counts = [
        counted(count, *CALLED[kind]) if kind in CALLED else kind for kind, count in kinds.items()
    ]
    return ", ".join(counts)


def check_unique(names: Sequence[str], what: str, fix: str | None = None) -> None:
    """Raise TreeError for a name that occurs twice. `what` is the term for the names in the
    error."""
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise TreeError(
            f"the {what} of a label tree are not unique",
            expected="each name once, so that a file of names gives the same tree again",
            found=f"{examples(repeated)} several times",
            fix=fix,
        )


def refuse_other_ids(*ids: int, most: int) -> None:
    """Raise TreeError for ids that are not those of fine classes, 0 … `most` − 1."""
    if wrong := [str(each) for each in ids if not 0 <= each < most]:
        raise TreeError(
            "no fine class has this id", expected=f"0 … {most - 1}", found=", ".join(wrong)
        )


def refuse_other_labels(labels: NDArray[np.integer], sizes: Sequence[int]) -> None:
    """Raise TreeError unless `labels` are node ids (N, L). `sizes` (L,) are the numbers of nodes of
    the levels."""
    fits = labels.ndim == 2 and labels.dtype.kind in "iu" and labels.shape[1] == len(sizes)
    if not fits or (labels < 0).any() or (labels >= np.asarray(sizes)).any():
        raise TreeError(
            "these are no labels of this tree",
            expected=f"ids (items, {len(sizes)}), below {', '.join(map(str, sizes))}",
            found=f"{labels.dtype} of shape {labels.shape}",
        )
