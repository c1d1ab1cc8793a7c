"""Finds the problems that prevent rows of class names, coarse to fine, from forming a tree.

>>> table = NameTable.of(
...     ("order", "family"),
...     [("Lacertilia", "Agamidae"), ("Serpentes", "NA"), ("Anura", "Agamidae")],
... )
>>> for problem in find_problems(table):
...     print(problem.kind, "|", problem.node, "|", ", ".join(problem.where))
placeholder | NA | Serpentes
several parents | Agamidae | Lacertilia, Anura
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import TreeError, UnknownName, examples
from hbench.core.text import counted
from hbench.sheets.rows import Row, default_levels, stripped
from hbench.sheets.understood import Understood
from hbench.tree import Labels, LabelTree
from hbench.tree.refusals import kinds_in_words

Key = tuple[int, Row]  # a node: its level from 0, or EVERYWHERE, and the names that identify it

PLACEHOLDERS = frozenset({
    "", "-", "?", "n/a", "na", "nan", "none", "not assigned", "null", "unassigned", "undefined",
    "undetermined", "unidentified", "unknown",
})  # fmt: skip
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")
EVERYWHERE = -1  # in place of a level, where a name is the same node at all levels
ROOT_KEY: Key = (EVERYWHERE, ())

KINDS = {
    "cycle": "nodes that are their own ancestors",
    "several roots": "nodes without a parent, where a tree has one root",
    "placeholder": "rows that say that a name is missing; unrelated items would share it as a "
    "class",
    "ragged": "leaves that end above the finest level",
    "homonym": "one name in several branches that share nothing below it",
    "several parents": "one node under several parents: a DAG, not a tree",
    "spaces": "names with surplus spaces or control characters",
    "alike": "names under one parent that look the same: they differ in case, blanks, encoding or "
    "invisible marks",
}
REMARKS = ("spaces", "alike")
LISTED = "hbench tree validate lists every problem and the policies that mend it"
UNMENDED = "no policy mends a cycle: take an edge of it out of the source"
SEVERAL_ROOTS = "several roots"
FIXES = {
    "cycle": UNMENDED,
    SEVERAL_ROOTS: "add an edge to each from one root, or let hbench tree validate FILE --policy "
    "add-root --out TREE.csv do it",
}


class TreeProblem(NamedTuple):
    """A problem with a node: its kind (one of KINDS), level and name, and the number of affected
    items. Depending on the kind, `where` has its parents, its path, or names that look alike."""

    kind: str
    level: str
    node: str
    where: tuple[str, ...]
    items: int

    def in_words(self, between: str) -> str:
        """The node, and in brackets what its problem is about, with `between` between the names. Of
        several roots, their number and names."""
        if self.kind == SEVERAL_ROOTS:
            return f"{len(self.where):,} roots: {examples(self.where)}"
        return f"{self.node} ({between.join(self.where)})"


@dataclass(frozen=True)
class NameTable:
    """A table of distinct rows of names, coarse to fine, with their numbers of items.

    Attributes:
        levels: the names of the levels.
        rows: from each row, in order of first appearance, to its number of items. A row without
            names at its finest levels is shorter than `levels`; "" is a missing name above another.
        one_namespace: whether a name means the same node at all levels, as in a list of edges, or
            only within its level.
        broken: cycles and several roots of the source, which rows cannot show.
        placeholders: the names, in lower case, that stand for a missing name.
        read: how the source was understood.
    """

    levels: Row
    rows: dict[Row, int] = field(repr=False)
    one_namespace: bool = False
    broken: tuple[TreeProblem, ...] = ()
    placeholders: frozenset[str] = PLACEHOLDERS
    read: Understood | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, levels: Iterable[str], rows: Iterable[Iterable[str]]) -> NameTable:
        """Make a table from the names of the levels and one row of names, coarse to fine, per
        item."""
        return cls(tuple(levels), dict(Counter(stripped(row) for row in rows)))

    def is_placeholder(self, name: str) -> bool:
        """Whether a name stands for a missing one, such as "NA" or an empty text."""
        return name.strip().casefold() in self.placeholders

    def keys(self, row: Row) -> list[Key]:
        """Return the nodes along a row as keys of a level and names.

        A node is identified by its name, but a placeholder by its whole path. With `one_namespace`,
        a name means the same node at all levels: the key then has EVERYWHERE in place of the level.
        A key is (level from 0, names that identify the node).
        """
        keys: list[Key] = []
        for level, name in enumerate(row):
            # NA under A and NA under B are two nodes
            identity = row[: level + 1] if self.is_placeholder(name) else (name,)
            # in one namespace, a short path may be filled up by repeating its leaf: each repetition
            # must become a new node, or the leaf would be its own parent
            if self.one_namespace and level and row[level - 1] == name:
                identity = (*keys[-1][1], name)  # the parent's names and one more
            keys.append((EVERYWHERE if self.one_namespace else level, identity))
        return keys

    def parents(self) -> dict[Key, dict[Key, int]]:
        """Return, for every node, its parents with the number of items below both, in order of
        appearance. ROOT_KEY is the parent of the nodes at the coarsest level."""
        parents: dict[Key, dict[Key, int]] = defaultdict(dict)
        for row, items in self.rows.items():
            keys = self.keys(row)
            # strict=False, since the first list has one key more, that of the leaf
            for parent, key in zip([ROOT_KEY, *keys], keys, strict=False):
                parents[key][parent] = parents[key].get(parent, 0) + items
        return parents

    def tree(self) -> tuple[LabelTree, NDArray[np.int64]]:
        """Make the label tree, with nodes in order of first appearance, and count the items of its
        fine classes, int64 (C,).

        Raises TreeError, which names the nodes, if the table does not form a tree.
        """
        # The error shows one problem: the source's first one or, if it has none, the first short
        # row. It also states the number of short rows, if there are any.
        short = [row for row in self.rows if len(row) < len(self.levels)]
        if self.broken or short:
            first = self.broken[0] if self.broken else next(_ragged(self))
            found = first.in_words(" > ")
            if short:
                found += f", one of {len(short)} short rows"
            raise TreeError(
                f"the names do not form a tree: {first.kind}, {KINDS[first.kind]}",
                expected="one root above all names"
                if first.kind == SEVERAL_ROOTS
                else f"a path of {len(self.levels)} names for each leaf: {', '.join(self.levels)}",
                found=found,
                fix=FIXES.get(first.kind, LISTED),
            )

        # for each level, names are numbered in order of first appearance
        numbers: list[dict[str, int]] = [{} for _ in self.levels]
        ids = [_numbers_of(row, numbers) for row in self.rows]  # adds new names to `numbers`
        # the reshape matters for a table without rows, whose array would have one dimension
        array = np.array(ids, dtype=np.int64).reshape(len(self.rows), len(self.levels))
        tree, labels = LabelTree.from_labels(
            array, levels=self.levels, names=[list(number) for number in numbers]
        )
        items = np.zeros(len(tree.paths), np.int64)
        np.add.at(items, labels[:, -1], list(self.rows.values()))  # the numbers of items of rows

        return tree, items


def _numbers_of(row: Row, numbers: Sequence[dict[str, int]]) -> list[int]:
    """The number of each name of a row within its level. `numbers` has the known names of each
    level; new names are added to it."""
    return [known.setdefault(name, len(known)) for known, name in zip(numbers, row, strict=True)]


def paths_of_nodes(table: NameTable, nodes: Iterable[str]) -> list[Row]:
    """Return the path of names to each of the `nodes`, which are names of leaves or inner nodes.

    Raises UnknownName for a name that is no node of the table, TreeError for one that is in several
    places of the tree.

    >>> paths_of_nodes(
    ...     NameTable.of(("family", "genus"), [("Felidae", "Felis"), ("Felidae", "Lynx")]),
    ...     ["Felidae", "Lynx"],
    ... )
    [('Felidae',), ('Felidae', 'Lynx')]
    """
    below: dict[Row, set[str]] = defaultdict(set)
    for row in table.rows:
        for depth in range(1, len(row)):
            below[row[:depth]].add(row[depth])

    places: dict[str, set[Row]] = defaultdict(set)
    for row in table.rows:
        for depth in range(1, len(row) + 1):
            # If the only child of a node has the node's name, it is a leaf that is repeated to fill
            # up its path. Only the last repetition is the node, so the others are skipped here.
            if below.get(row[:depth]) != {row[depth - 1]}:
                places[row[depth - 1]].add(row[:depth])

    paths: list[Row] = []
    for node in nodes:
        # equal names were made unique by adding their parents: "Cases" may mean "Cases (Phones)"
        found = places.get(node) or {
            row for name in places if name.startswith(f"{node} (") for row in places[name]
        }
        # Parents are added only where several names are equal. If only one name begins so, its
        # brackets are a part of the name itself, and `node` is no node.
        if not found or (node not in places and len(found) == 1):
            raise UnknownName("node of the tree", node, list(places))
        if len(found) > 1:
            raise TreeError(
                f"{node!r} is in several places of the tree",
                expected="one path for each node that labels an item",
                found=examples(" > ".join(row) for row in sorted(found)),
                fix="--several takes every path, --policy majority-parent one; or mend the tree "
                "(hbench tree validate), or give the items a column per level",
            )
        paths += places[node]  # the errors above leave only nodes with one path in `places`

    return paths


def levels_for(levels: Row, rows: Iterable[Row]) -> Row:
    """The names of the levels that `rows` need: those of `levels`, and then default names, as many
    as the longest row has names."""
    depth = max(map(len, rows), default=0)
    return (*levels, *default_levels(depth)[len(levels) :])[:depth]


def find_problems(table: NameTable) -> list[TreeProblem]:
    """Find all problems of a table, in the order of KINDS, so that remarks come last. There is one
    problem for each node and kind.
    """
    problems = [
        *table.broken,
        *_placeholders(table),
        *_ragged(table),
        *_several_parents(table),
        *_remarks(table),
    ]
    return sorted(problems, key=lambda problem: list(KINDS).index(problem.kind))


def runs_backwards(table: NameTable) -> bool:
    """Whether the table has less than half as many problems with its levels in reverse order, so
    that they probably run from fine to coarse."""
    turned = replace(
        table,
        levels=table.levels[::-1],
        rows={row[::-1]: items for row, items in table.rows.items()},
    )
    # if columns run from fine to coarse, nearly every name has several "parents"
    problems = sum(1 for _ in _several_parents(table))
    return problems > 0 and 2 * sum(1 for _ in _several_parents(turned)) < problems


def refuse(problems: Iterable[TreeProblem], source: str) -> None:
    """Raise TreeError, which counts the problems of the file `source` by kind. Remarks alone raise
    nothing, since the names still form a tree."""
    kinds = Counter(problem.kind for problem in problems if problem.kind not in REMARKS)
    if kinds:
        mendable = "mend the source, or give --policy NAME: hbench tree validate lists the policies"
        raise TreeError(
            f"{source} is not a tree: {counted(kinds.total(), 'problem')}",
            found=kinds_in_words(kinds),
            fix=UNMENDED if "cycle" in kinds else mendable,
        )


def _placeholders(table: NameTable) -> Iterator[TreeProblem]:
    """Yield a problem for each name that stands for a missing one, such as NA, at each level and
    under each parent."""
    counts: Counter[tuple[int, str, str]] = Counter()
    for row, items in table.rows.items():
        for level, name in enumerate(row):
            if table.is_placeholder(name):
                counts[level, name, row[level - 1] if level else "the root"] += items
    for (place, name, parent), items in counts.items():
        yield TreeProblem("placeholder", table.levels[place], name, (parent,), items)


def _ragged(table: NameTable) -> Iterator[TreeProblem]:
    """Yield a problem for each row that ends above the finest level, with its path."""
    for row, items in table.rows.items():
        if len(row) < len(table.levels):
            level = table.levels[len(row) - 1] if row else "the root"
            yield TreeProblem("ragged", level, row[-1] if row else "", row, items)


def _several_parents(table: NameTable) -> Iterator[TreeProblem]:
    """Yield a problem for each node with several parents. If its children under one parent differ
    entirely from those under another, it is a homonym: one name for several classes."""
    parents = table.parents()  # {node: {parent: the number of items below both}}
    below: dict[tuple[Key, Key], set[Key]] = defaultdict(set)  # children, by parent and node
    # The name of each node's level. A key does not always state the level: if names are the same
    # nodes at all levels, it has EVERYWHERE, and the level where the name comes first is reported.
    levels: dict[Key, str] = {}
    for row in table.rows:
        keys = [ROOT_KEY, *table.keys(row)]
        # each node of the row with its level, its parent and its child; the child of the last node
        # is None. strict=False, as `keys` also has the root, and the row may end above `levels`.
        for level, parent, key, child in zip(
            table.levels, keys, keys[1:], [*keys[2:], None], strict=False
        ):
            below[parent, key] |= {child} if child else set()
            levels.setdefault(key, level)

    for key, of_node in parents.items():
        if len(of_node) > 1:
            branches = [below[parent, key] for parent in of_node]
            # the branches share no child if their union is as large as all of them together
            apart = all(branches) and len(set().union(*branches)) == sum(map(len, branches))
            kind = "homonym" if apart else "several parents"
            # a key has the node's own name as the last of its names; ROOT_KEY has no names
            places = tuple(names[-1] if names else "the root" for _, names in of_node)
            yield TreeProblem(kind, levels[key], key[1][-1], places, sum(of_node.values()))


def folded(name: str) -> str:
    """Fold a name so that names that look alike become equal: ignore case, surplus blanks,
    invisible marks and Unicode's several forms of a letter.

    >>> folded("Cafe\\u0301\\u00a0 Bar\\u200b") == folded("caf\\u00e9 bar")
    True
    """
    # categories that begin with C are those of control, format and other invisible characters;
    # spaces among them, such as a tab, are kept to separate words
    text = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(
        "".join(m for m in text if m.isspace() or unicodedata.category(m)[0] != "C").split()
    )


def look_alikes(table: NameTable) -> dict[Row, Counter[str]]:
    """Collect the spellings of every node, with their numbers of items. A node is identified by its
    path of folded names.
    """
    spellings: dict[Row, Counter[str]] = defaultdict(Counter)
    forms = {name: folded(name) for row in table.rows for name in row}
    for row, items in table.rows.items():
        path = tuple(map(forms.__getitem__, row))
        for depth, name in enumerate(row, start=1):
            spellings[path[:depth]][name] += items
    return spellings


def _remarks(table: NameTable) -> Iterator[TreeProblem]:
    """Yield the problems of names with which they still form a tree: surplus spaces or control
    characters, and names under one parent that look alike."""
    spaced: Counter[tuple[int, str]] = Counter()
    for row, items in table.rows.items():
        for place, name in enumerate(row):
            if name != " ".join(name.split()) or CONTROL.search(name):
                spaced[place, name] += items

    for (place, name), items in spaced.items():
        yield TreeProblem("spaces", table.levels[place], name, (), items)
    for path, spellings in look_alikes(table).items():
        if len(spellings) > 1:
            level = table.levels[len(path) - 1]
            # Names that still differ in NFC, which composes letters and accents in one way, also
            # differ when printed. Others look the same: `ascii` shows the codes of their letters
            show = (
                repr
                if len({unicodedata.normalize("NFC", name) for name in spellings}) == len(spellings)
                else ascii
            )
            variants = tuple(f"{show(name)} ({items:,})" for name, items in spellings.most_common())
            yield TreeProblem(
                "alike", level, spellings.most_common(1)[0][0], variants, spellings.total()
            )


def remarks_on(table: NameTable) -> list[str]:
    """Sentences on the names of a tree that look alike, and on those that often mean a missing
    name."""
    of_kind: dict[str, list[str]] = defaultdict(list)
    for problem in [*_placeholders(table), *_remarks(table)]:
        if problem.kind != "spaces":  # spaces change no score, and `tree validate` lists them
            # of names that look alike, `where` has all spellings
            names = (
                " and ".join(problem.where)
                if problem.kind == "alike"
                else f"{problem.node!r} ({problem.items:,})"
            )
            of_kind[problem.kind].append(f"{problem.level} {names}")

    words = {
        "placeholder": "names that often mean a missing name are kept as classes (policies: "
        "fill-from-parent, unknown)",
        "alike": "groups of names look alike and are kept as classes of their own (the policy "
        "normalise makes each one class)",
    }
    return [f"{len(names):,} {words[kind]}: {examples(names)}" for kind, names in of_kind.items()]


def class_columns(tree: LabelTree) -> list[list[str]]:
    """Return the names along the paths of all C fine classes: a list of C names for each level,
    coarse to fine."""
    columns = []
    for names, ids in zip(tree.names, tree.paths.T, strict=True):
        columns.append([names[i] for i in ids])
    return columns


def names_along(tree: LabelTree, path: Iterable[int]) -> Row:
    """Return the names of the nodes of a path, coarse to fine. The path may end early."""
    return tuple(names[node] for names, node in zip(tree.names, path, strict=False))


def class_rows(tree: LabelTree) -> list[Row]:
    """Return the path of names to every fine class, coarse to fine, in the order of their ids."""
    return list(zip(*class_columns(tree), strict=True))


def have_ambiguous_names(names: Labels, nodes: Labels) -> NDArray[np.bool_]:
    """Whether each item has an ambiguous name, (N,). A name is ambiguous if several nodes of a
    level have it, so that comparing names gives other levels than the tree does.

    Args:
        names: the names along the paths of the items as numbers, (N, L); equal names have equal
            numbers.
        nodes: the items' labels in the tree, (N, L).
    """
    shared = np.zeros(len(names), bool)
    for name, node in zip(names.T, nodes.T, strict=True):
        # the different pairs of a name and a node, to count the nodes of each name
        pairs = np.unique(np.stack([name, node]), axis=1)
        values, nodes_of = np.unique(pairs[0], return_counts=True)
        shared |= np.isin(name, values[nodes_of > 1])
    return shared
