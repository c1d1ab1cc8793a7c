"""A table of items: one row per item, the names of its levels coarse to fine, and which part of the dataset it
belongs to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hbench import manifest as manifests
from hbench.datasets.dataset import TEST, Dataset, Protocol
from hbench.errors import DataError, UnknownName, examples
from hbench.manifest import RESERVED, Manifest
from hbench.sheet import kind_of, read_sheet, texts

SPLIT = "split"


def read_single(path: Path) -> Dataset:
    """A dataset from one file: a parquet manifest, or a table (hbench.sheet) with `item`, the levels coarse to fine and
    optionally `split` (train, test), `query`, `gallery` (true, false)."""
    if kind_of(path) == ".parquet" and _is_manifest(path):
        manifest = manifests.read(path)
        return Dataset(path.stem, manifest.digest[:12], Protocol(), None, {TEST: manifest})
    table = read_sheet(path)
    levels = [name for name in table.column_names if name not in {*RESERVED, SPLIT}]
    train, tests = by_split(table, levels=levels)
    version = next(iter(tests.values())).digest[:12]
    return Dataset(path.stem, version, Protocol(), train, tests).rooted(path.parent)


def _is_manifest(path: Path) -> bool:
    """Whether a parquet file says that it is a manifest; False for a file that cannot be read."""
    try:
        return b"hbench.levels" in (pq.read_schema(path).metadata or {})
    except (pa.ArrowInvalid, OSError):
        return False


def by_split(
    table: pa.Table, *, levels: list[str], item: str = "item", split: str = SPLIT
) -> tuple[Manifest | None, dict[str, Manifest]]:
    """The train manifest, or None, and the tests of a table; every row is of the test where there is no split
    column."""
    check_columns(table, [item, *levels])
    if not levels:
        raise DataError(
            "the table has no levels",
            expected=f"columns beside {item}, coarse to fine",
            found=", ".join(table.column_names),
        )
    if split not in table.column_names:
        return None, {TEST: manifest(table, item=item, levels=levels)}
    of_row = np.asarray(table[split].to_pylist(), dtype=object)
    found = sorted(set(of_row))
    unknown = [name for name in found if name not in {"train", TEST, "query", "gallery"}]
    if unknown:
        raise DataError(
            f"the column {split} has unknown values",
            expected="train, test (or query and gallery)",
            found=examples(unknown),
        )
    train = table.filter(pa.array(of_row == "train"))
    test = table.filter(pa.array(of_row != "train"))
    if len(test) == 0:
        raise DataError(f"the column {split} has no test rows", expected="train and test", found=examples(found))
    return manifest(train, item=item, levels=levels) if len(train) else None, {
        TEST: manifest(test, item=item, levels=levels, split=split)
    }


def manifest(table: pa.Table, *, item: str, levels: list[str], split: str | None = None) -> Manifest:
    """One manifest of the rows of a table; `split` names a column whose values query and gallery set the masks."""
    masks = {}
    for mask in ("query", "gallery"):
        if mask in table.column_names:
            masks[mask] = _mask(table[mask], mask)
        elif split is not None:
            other = "gallery" if mask == "query" else "query"
            masks[mask] = np.asarray([value != other for value in table[split].to_pylist()], dtype=bool)
    rows = list(zip(*(texts(table, level) for level in levels), strict=True))
    return manifests.from_names(texts(table, item), rows, levels=levels, **masks)


def check_columns(table: pa.Table, names: list[str]) -> None:
    """Raise UnknownName for the first of `names` that is no column."""
    for name in names:
        if name not in table.column_names:
            raise UnknownName("column", name, table.column_names)


def _mask(column: pa.ChunkedArray, name: str) -> np.ndarray:
    values = [str(value).lower() for value in column.to_pylist()]
    truth = {"true": True, "1": True, "false": False, "0": False}
    bad = [value for value in values if value not in truth]
    if bad:
        raise DataError(f"the column {name} is no mask", expected="true or false", found=examples(map(repr, bad)))
    return np.asarray([truth[value] for value in values], dtype=bool)
