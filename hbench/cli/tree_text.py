"""How hbench tree speaks: a tree as an outline, problems and changes as lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text
from rich.tree import Tree

from hbench.tree import ROOT, LabelTree, Node
from hbench.tree.names import KINDS, NameTable, Problem, Row, runs_backwards
from hbench.tree.policies import Mended, policies_for
from hbench.tree.statistics import items_of_level


def outline(tree: LabelTree, items: NDArray[np.int64], *, depth: int, most: int) -> Tree:
    """The `depth` coarsest levels of a tree, the first `most` children of every node, each with its classes and
    items."""
    classes = [items_of_level(tree, np.ones_like(items), level) for level in range(1, tree.depth + 1)]
    own = [items_of_level(tree, items, level) for level in range(1, tree.depth + 1)]
    root = Tree(Text(f"{ROOT}  {_count(len(items), int(items.sum()), at_leaf=False)}"))
    drawn: dict[Node, Tree] = {(0, 0): root}
    for level in range(min(depth, tree.depth)):
        for parent, group in groupby(range(len(tree.names[level])), key=lambda i: int(tree.parents[level][i])):
            children = list(group)
            if (level, parent) in drawn:
                branch = drawn[level, parent]
                for i in children[:most]:
                    count = _count(int(classes[level][i]), int(own[level][i]), at_leaf=level == tree.depth - 1)
                    drawn[level + 1, i] = branch.add(Text(f"{tree.names[level][i]}  {count}".rstrip()))
                if len(children) > most:
                    branch.add(Text(f"… {len(children) - most:,} more"))
    return root


def _count(classes: int, items: int, *, at_leaf: bool) -> str:
    parts = [] if at_leaf else [f"{classes:,} class{'es' * (classes != 1)}"]
    if items > classes:
        parts.append(f"{items:,} items")
    return f"({', '.join(parts)})" if parts else ""


def problem_lines(table: NameTable, problems: Iterable[Problem], *, most: int | None) -> Iterator[str]:
    """The table in a line, then the problems by kind, `most` of each (None: all), with the policies that mend them."""
    levels = f"{len(table.levels)} levels ({', '.join(table.levels)})"
    yield f"{len(table.rows):,} rows of {levels}, {sum(table.rows.values()):,} items"
    for kind, group in groupby(problems, key=lambda problem: problem.kind):
        found = list(group)
        yield f"\n{kind} × {len(found):,}: {KINDS[kind]}"
        for problem in islice(found, most):
            yield "  " + " ".join(filter(None, [problem.level, repr(problem.node), _where(problem)]))
        yield from _rest(len(found), most)
        for policy in policies_for(kind):
            yield f"  --policy {policy.name}: {policy.text}"
    if runs_backwards(table):
        yield "\nthe columns seem to run from fine to coarse: --levels " + ",".join(reversed(table.levels))


def _where(problem: Problem) -> str:
    words, joint = {"cycle": ("on the way", " > "), "ragged": ("ends at", " > "), "alike": ("as", ", ")}.get(
        problem.kind, ("in", " and ")
    )
    items = f" ({problem.items:,} items)" if problem.items > 1 else ""
    return f"{words} {joint.join(problem.where)}{items}" if problem.where else items.strip()


def change_lines(mended: Mended, *, most: int | None) -> Iterator[str]:
    """What every policy changed, `most` rows of each (None: all)."""
    for name, group in groupby(mended.changes, key=lambda change: change.policy):
        changes = list(group)
        yield f"\n{name} changes {len(changes):,} rows of {sum(change.items for change in changes):,} items"
        for change in islice(changes, most):
            yield f"  {_path(change.before)}  ->  {_path(change.after)}"
        yield from _rest(len(changes), most)


def _path(row: Row | None) -> str:
    return "left out" if row is None else " > ".join(row) or "(no name)"


def _rest(count: int, most: int | None) -> Iterator[str]:
    if most is not None and count > most:
        yield f"  … {count - most:,} more (--all)"


def as_json(table: NameTable, mended: Mended, problems: list[Problem], left: list[Problem]) -> dict[str, Any]:
    """A validation as plain JSON values."""
    return {
        "levels": table.levels,
        "rows": len(table.rows),
        "items": sum(table.rows.values()),
        "problems": [problem._asdict() for problem in problems],
        "policies": {kind: [policy.name for policy in policies_for(kind)] for kind in KINDS},
        "changes": [change._asdict() for change in mended.changes],
        "left": [problem._asdict() for problem in left],
    }
