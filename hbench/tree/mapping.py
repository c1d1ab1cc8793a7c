"""Reads the tree in a curator's mapping.csv, which has a group for every label and a kind for every
group (`hbench hgldv2 replay`). The levels of the tree are kind, group and label.
"""

import pyarrow as pa
import pyarrow.compute as pc

LEVELS = ("kind", "group", "label")
COLUMNS = {"class_id", "status", "decided_by", *LEVELS}
IN_GROUP = "group"  # the status of a label that has one


def is_mapping(table: pa.Table) -> bool:
    """Whether a table has all columns of a curator's mapping."""
    return set(table.column_names) >= COLUMNS


def levels_in_mapping(table: pa.Table) -> tuple[pa.Table, str]:
    """The columns kind, group and label of a curator's mapping, for the labels that have a group,
    and a sentence that says how many these are. If all groups have the same kind, the column kind
    is left out, since a level with one class adds nothing.

    >>> row = {"class_id": "1", "status": "group", "decided_by": "a"}
    >>> row |= {"kind": "bird", "group": "owl", "label": "barn owl"}
    >>> levels_in_mapping(pa.Table.from_pylist([row]))[0].column_names
    ['group', 'label']
    """
    placed = table.filter(pc.equal(table["status"], IN_GROUP))
    has_kinds = pc.count_distinct(placed["kind"]).as_py() > 1
    levels = LEVELS if has_kinds else LEVELS[1:]
    said = f"a curator's mapping: {len(placed):,} of {len(table):,} labels have a group"
    return placed.select(levels), said
