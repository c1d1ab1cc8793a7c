"""Mends name tables that form no tree, by named, explicit policies.

>>> table = NameTable.of(("kingdom", "genus"), [("Plantae", "Iris"), ("Animalia", "Iris"), ("Animalia", "Felis")])
>>> mended = mend(table, ["by-path"])
>>> list(mended.table.rows)
[('Plantae', 'Iris (Plantae)'), ('Animalia', 'Iris (Animalia)'), ('Animalia', 'Felis')]
>>> mended.changes[0]
Change(policy='by-path', before=('Plantae', 'Iris'), after=('Plantae', 'Iris (Plantae)'), items=1)
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hbench.core.errors import TreeError, UsageError
from hbench.core.registry import Registry
from hbench.tree import ROOT, SHOWN_NODES
from hbench.tree.names import CONTROL, REMARKS, ROOT_KEY, Key, NameTable, Row, find_problems, levels_for
from hbench.tree.partial import ended_early

NewRows = Mapping[Row, Row | None]


@dataclass(frozen=True)
class Policy:
    """`new_rows`: from a table to the new row of every row, None for one that is left out. `mends`: kinds of
    problems. Policies apply in the order of `stage`, whatever the order they are named in."""

    name: str
    mends: tuple[str, ...]
    stage: int
    new_rows: Callable[[NameTable], NewRows]

    @property
    def text(self) -> str:
        """What it does, in a sentence."""
        return " ".join((self.new_rows.__doc__ or "").split())


class Change(NamedTuple):
    """A row that a policy changed, or left out (`after` is None), and how many items it holds."""

    policy: str
    before: Row
    after: Row | None
    items: int


class Mended(NamedTuple):
    """The table after the policies, every change in order, and the final row of every original row."""

    table: NameTable
    changes: list[Change]
    final: dict[Row, Row | None]


policies: Registry[Policy] = Registry("policy", group="hbench.tree.policies")


def policy(name: str, *, mends: Sequence[str], stage: int) -> Callable[[Callable[[NameTable], NewRows]], Policy]:
    """Register a function as the policy `name`; its docstring tells the user what it does."""
    return lambda new_rows: policies.register(name)(Policy(name, tuple(mends), stage, new_rows))


def mend(table: NameTable, names: Sequence[str]) -> Mended:
    """Apply policies by name. Raises UnknownName, and UsageError for two that mend the same kind of problem."""
    chosen = sorted({policies[name] for name in names}, key=lambda policy: (policy.stage, policy.name))
    for one, other in itertools.pairwise(chosen):
        if not set(one.mends).isdisjoint(other.mends) and one.stage == other.stage:
            raise UsageError(
                f"{one.name} and {other.name} both mend {' and '.join(one.mends)}", fix="choose one of them"
            )
    changes: list[Change] = []
    final: dict[Row, Row | None] = {row: row for row in table.rows}
    for step in chosen:
        new = step.new_rows(table)
        changes += [Change(step.name, row, new[row], items) for row, items in table.rows.items() if new[row] != row]
        final = {row: None if now is None else new[now] for row, now in final.items()}
        table = _rewritten(table, new, step)
    return Mended(table, changes, final)


def _rewritten(table: NameTable, new: NewRows, step: Policy) -> NameTable:
    rows: dict[Row, int] = {}
    for row, items in table.rows.items():
        after = new[row]
        if after is not None:
            rows[after] = rows.get(after, 0) + items
    if table.rows and not rows:
        raise TreeError(f"the policy {step.name} leaves nothing of the table", fix="mend it by another policy first")
    broken = tuple(problem for problem in table.broken if problem.kind not in step.mends)
    return dataclasses.replace(table, levels=levels_for(table.levels, rows), rows=rows, broken=broken)


@policy("trim", mends=["spaces"], stage=0)
def trim(table: NameTable) -> NewRows:
    """Surplus spaces and control characters go; names that differ only in them become one."""
    return {row: tuple(" ".join(CONTROL.sub(" ", name).split()) for name in row) for row in table.rows}


@policy("add-root", mends=["several roots"], stage=1)
def add_root(table: NameTable) -> NewRows:
    """The nodes without a parent become the coarsest level, under one root."""
    return {row: row for row in table.rows}


@policy("fill-from-parent", mends=["placeholder"], stage=2)
def fill_from_parent(table: NameTable) -> NewRows:
    """A missing name becomes its own class within its parent: NA under Gastropoda is "unplaced order of Gastropoda"."""

    def filled(row: Row) -> Row:
        names: list[str] = []
        for level, name in enumerate(row):
            unplaced = f"unplaced {table.levels[level]}" + (f" of {names[-1]}" if names else "")
            names.append(unplaced if table.is_placeholder(name) else name)
        return tuple(names)

    return {row: filled(row) for row in table.rows}


@policy("repeat-leaf", mends=["ragged"], stage=3)
def repeat_leaf(table: NameTable) -> NewRows:
    """A leaf that ends early is repeated down to the finest level."""
    return {row: row + row[-1:] * (len(table.levels) - len(row)) for row in table.rows}


@policy("cut", mends=["ragged"], stage=3)
def cut(table: NameTable) -> NewRows:
    """Every path is cut at the deepest level that all of them reach."""
    depth = min((len(row) for row in table.rows if row), default=0)
    return {row: row[:depth] for row in table.rows}


@policy("unknown", mends=["ragged", "placeholder"], stage=3)
def unknown(table: NameTable) -> NewRows:
    """A path may end early: below its last name nothing is known, and metrics leave open what the class is."""

    def known(row: Row) -> Row:
        names = list(row)
        while names and table.is_placeholder(names[-1]):
            names.pop()
        return tuple(names)

    return {row: ended_early(known(row), table.levels) for row in table.rows}


@policy("by-path", mends=["homonym", "several parents"], stage=4)
def by_path(table: NameTable) -> NewRows:
    """A node is its whole path: the same name under another parent is another node, shown as "name (parent)"."""
    paths: dict[Key, set[Row]] = defaultdict(set)
    for row in table.rows:
        for depth, key in enumerate(table.keys(row), start=1):
            paths[key].add(row[:depth])
    taken = {(key[0], key[1][-1]) for key, found in paths.items() if len(found) == 1}
    shared = {path: key for key, found in paths.items() if len(found) > 1 for path in found}
    shown: dict[Row, str] = {(): ROOT}
    for path in sorted(set().union(*paths.values()), key=lambda path: (len(path), path)):
        repeated = table.one_namespace and path[-2:-1] == path[-1:]  # a leaf below itself is shown as the leaf
        shown[path] = shown[path[:-1]] if repeated else path[-1]
        if path in shared and not repeated:
            namespace = shared[path][0]
            while shown[path] == path[-1] or (namespace, shown[path]) in taken:
                shown[path] += f" ({shown[path[:-1]]})"
            taken.add((namespace, shown[path]))
    return {row: tuple(shown[row[:depth]] for depth in range(1, len(row) + 1)) for row in table.rows}


@policy("majority-parent", mends=["homonym", "several parents"], stage=4)
def majority_parent(table: NameTable) -> NewRows:
    """A node stays with the parent that most items put it under; the first by name where two are equal."""
    chosen = {
        key: min(of_node, key=lambda parent: (-of_node[parent], parent)) for key, of_node in table.parents().items()
    }

    def path(key: Key) -> Row:
        upwards: list[Key] = []
        while key != ROOT_KEY:
            if key in upwards:
                raise TreeError(
                    "the policy majority-parent puts a node below itself",
                    expected="names that lead up to the root",
                    found=" > ".join(each[1][-1] for each in reversed([*upwards, key])),
                    fix="mend it by another policy first",
                )
            upwards.append(key)
            key = chosen[key]
        return tuple(each[1][-1] for each in reversed(upwards))

    if table.one_namespace:  # a leaf may end at another depth under its new parent
        return _evened(table, {row: path(table.keys(_unrepeated(row))[-1]) if row else row for row in table.rows})
    return {row: path(table.keys(row)[-1]) if row else row for row in table.rows}


def _unrepeated(row: Row) -> Row:
    """A row without the repetitions of its leaf."""
    return row[: next((depth for depth in range(len(row), 1, -1) if row[depth - 2] != row[-1]), 1)]


def _evened(table: NameTable, new: dict[Row, Row]) -> dict[Row, Row]:
    """The new rows, leaves repeated down to one depth where those of the table were of one depth."""
    if any(len(row) < len(table.levels) for row in table.rows):
        return new
    depth = max(map(len, new.values()), default=0)
    return {row: after + after[-1:] * (depth - len(after)) for row, after in new.items()}


@policy("drop", mends=["placeholder", "ragged", "homonym", "several parents"], stage=5)
def drop(table: NameTable) -> NewRows:
    """Rows that are short or have a placeholder are left out, then those through a node of several parents."""
    whole = {
        row: items
        for row, items in table.rows.items()
        if len(row) == len(table.levels) and not any(map(table.is_placeholder, row))
    }
    shared = {key for key, of_node in dataclasses.replace(table, rows=whole).parents().items() if len(of_node) > 1}
    return {row: row if row in whole and shared.isdisjoint(table.keys(row)) else None for row in table.rows}


def policies_for(kind: str) -> list[Policy]:
    """The policies that mend a kind of problem, in the order in which they would apply."""
    return sorted((policies[name] for name in policies if kind in policies[name].mends), key=lambda each: each.stage)


def refuse_with_policies(table: NameTable, source: str) -> None:
    """Raise TreeError for a table that is not a tree: its problems by node, and what each policy would do about them."""
    problems = [problem for problem in find_problems(table) if problem.kind not in REMARKS]
    if not problems:
        return
    shown = [f"{each.level} {each.node!r} in {' and '.join(map(repr, each.where))}" for each in problems[:SHOWN_NODES]]
    more = ["…"] * (len(problems) > SHOWN_NODES)
    kinds = Counter(problem.kind for problem in problems)
    fitting = dict.fromkeys(policy.name for kind in kinds for policy in policies_for(kind))
    raise TreeError(
        f"{source} is not a tree: {', '.join(f'{count:,} {kind}' for kind, count in kinds.items())}",
        found="\n            ".join([*shown, *more]),
        fix="\n            ".join(
            ["mend the names in the source, or by a policy:", *(f"--policy {n}: {effect(table, n)}" for n in fitting)]
        ),
    )


def effect(table: NameTable, name: str) -> str:
    """What a policy would do to a table, in numbers.

    >>> table = NameTable.of(("order", "genus"), [("Rosales", "Iris"), ("Mantodea", "Iris"), ("Mantodea", "Mantis")])
    >>> effect(table, "by-path"), effect(table, "drop")
    ('renames 2 items; 3 genus instead of 2', 'leaves out 2 items; 1 genus instead of 2')
    """
    try:
        mended = mend(table, [name])
    except TreeError as refusal:
        return refusal.problem
    renamed = sum(change.items for change in mended.changes if change.after is not None)
    left_out = sum(change.items for change in mended.changes if change.after is None)
    parts = [f"{what} {items:,} items" for what, items in (("renames", renamed), ("leaves out", left_out)) if items]
    finest = [len({each.keys(row)[-1] for row in each.rows if row}) for each in (table, mended.table)]
    parts.append(f"{finest[1]:,} {table.levels[-1]}" + f" instead of {finest[0]:,}" * (finest[0] != finest[1]))
    left = any(problem.kind not in REMARKS for problem in find_problems(mended.table))
    return "; ".join([*parts, *["other problems stay"] * left])
