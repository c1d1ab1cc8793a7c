"""Mends name tables that do not form a tree, with policies that the user chooses by name.

>>> table = NameTable.of(
...     ("kingdom", "genus"), [("Plantae", "Iris"), ("Animalia", "Iris"), ("Animalia", "Felis")]
... )
>>> mended = mend(table, ["by-path"])
>>> list(mended.table.rows)
[('Plantae', 'Iris (Plantae)'), ('Animalia', 'Iris (Animalia)'), ('Animalia', 'Felis')]
>>> mended.changes[0]
Change(policy='by-path', before=('Plantae', 'Iris'), after=('Plantae', 'Iris (Plantae)'), items=1)
"""

import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hbench.core.errors import TreeError, UnknownName, UsageError
from hbench.core.registry import Registry
from hbench.sheets.rows import Row, prefixes, stripped
from hbench.tree import ROOT
from hbench.tree.names import CONTROL, ROOT_KEY, Key, NameTable, folded, levels_for, look_alikes
from hbench.tree.partial import ended_early

NewRows = Mapping[Row, Row | None]  # from each row to its new row, None if it is left out


@dataclass(frozen=True)
class Policy:
    """A policy that mends some kinds of problems of a table.

    Policies are applied in the order of their `stage`, not in the order in which the user names
    them.
    """

    name: str
    mends: tuple[str, ...]  # kinds of problems
    stage: int
    new_rows: Callable[[NameTable], NewRows]

    @property
    def text(self) -> str:
        """The effect of the policy in a sentence, for users."""
        return " ".join((self.new_rows.__doc__ or "").split())


class Change(NamedTuple):
    """A row that a policy changed or left out, and its number of items. `after` is None for a row
    that was left out."""

    policy: str
    before: Row
    after: Row | None
    items: int


class Mended(NamedTuple):
    """The result of policies: the new table, and what changed."""

    table: NameTable
    changes: list[Change]  # in the order in which they were made
    final: dict[Row, Row | None]  # from each original row to its final row, None if left out


policies: Registry[Policy] = Registry("policy")


def policy(
    name: str, *, mends: Sequence[str], stage: int
) -> Callable[[Callable[[NameTable], NewRows]], Policy]:
    """A decorator that registers a function of a table as the policy `name`. The function's
    docstring is shown to users. `mends` are the kinds of problems that the policy removes, and
    `stage` is its position in the order in which policies are applied."""
    return lambda new_rows: policies.register(name)(Policy(name, tuple(mends), stage, new_rows))


def policy_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """The names of policies, from a list or from one text with commas.

    >>> policy_names("by-path, unknown"), policy_names(["unknown"])
    (('by-path', 'unknown'), ('unknown',))
    """
    if isinstance(names, str):
        return tuple(name.strip() for name in names.split(",") if name.strip())
    return tuple(names)


def mend(table: NameTable, names: Sequence[str]) -> Mended:
    """Apply the policies `names` to a table, in the order of their stages. Raises UnknownName for
    an unknown policy, UsageError for two that exclude each other."""
    changes: list[Change] = []
    final: dict[Row, Row | None] = {row: row for row in table.rows}
    for step in _in_order(names):
        new = step.new_rows(table)  # from each row to its new row, None if it is left out
        # `table.rows` maps each row to its number of items
        changes += [
            Change(policy=step.name, before=row, after=new[row], items=items)
            for row, items in table.rows.items()
            if new[row] != row
        ]
        # the keys of `new` are the rows as earlier steps left them, which are the values of `final`
        final = {row: None if now is None else new[now] for row, now in final.items()}
        table = _with_rows(table, new, step)

    return Mended(table, changes, final)


def _in_order(names: Sequence[str]) -> list[Policy]:
    """The policies with these names, in the order in which they are applied. Raises UsageError for
    two that exclude each other.
    """
    chosen = sorted(set(map(_policy, names)), key=lambda policy: (policy.stage, policy.name))
    for one, other in itertools.combinations(chosen, 2):
        if _exclude_each_other(one, other):
            shared = " and ".join(kind for kind in one.mends if kind in other.mends)
            both = f"{one.name} and {other.name} both mend {shared}"
            raise UsageError(both, fix="choose one of them")

    return chosen


def _policy(name: str) -> Policy:
    """The policy of this name. Raises UnknownName, which also lists RECOMMENDED: it is valid where
    users name policies, but was replaced by the policies that it stands for before this."""
    try:
        return policies[name]
    except UnknownName:
        raise UnknownName("policy", name, sorted([*policies, RECOMMENDED])) from None


def _with_rows(table: NameTable, new: NewRows, step: Policy) -> NameTable:
    """The table with the new rows of a policy, and without the problems that it mends. `new`: from
    each row of the table to its new row, None if it is left out. The items of rows that become
    equal are added up. Raises TreeError if no row is left."""
    rows: Counter[Row] = Counter()
    for row, items in table.rows.items():
        if (after := new[row]) is not None:
            rows[after] += items
    if table.rows and not rows:  # a table that had no rows is no fault of the policy
        raise TreeError(
            f"the policy {step.name} leaves out every row of the table",
            fix="use another policy first",
        )

    broken = tuple(problem for problem in table.broken if problem.kind not in step.mends)
    # policies may make rows longer or shorter, so levels are added or cut
    levels = levels_for(table.levels, rows)
    return dataclasses.replace(table, levels=levels, rows=dict(rows), broken=broken)


MAJORITY_PARENT = "majority-parent"
RECOMMENDED = "recommended"  # stands for the policies that the refusal of a table lists first
ALTERNATIVES = ({"repeat-leaf", "cut", "unknown"}, {"by-path", MAJORITY_PARENT})


def _exclude_each_other(one: Policy, other: Policy) -> bool:
    """Whether two policies are alternatives that mend the same problem in different ways."""
    return one is not other and any({one.name, other.name} <= group for group in ALTERNATIVES)


@policy("trim", mends=["spaces"], stage=0)
def trim(table: NameTable) -> NewRows:
    """Surplus spaces and control characters are removed; names that differ only in these become
    one.
    """

    def trimmed(name: str) -> str:
        """A name without control characters, with single spaces between its words."""
        return " ".join(CONTROL.sub(" ", name).split())

    # a finest name that is empty by now is dropped, so that the row ends early
    return {row: stripped(map(trimmed, row)) for row in table.rows}


# after `trim` (stage 0): names that `trim` made equal need no mending here
@policy("normalise", mends=["alike"], stage=1)
def normalise(table: NameTable) -> NewRows:
    """Names under one parent that differ only in case, blanks, encoding or invisible marks become
    the most frequent.
    """
    # from the path of folded names of each node to the counts of items of its spellings
    found = look_alikes(table).items()
    # the most frequent spelling, the alphabetically first of equally frequent ones
    chosen = {path: min(counts, key=lambda name: (-counts[name], name)) for path, counts in found}

    def as_most_write_it(row: Row) -> Row:
        """The row with the most frequent spelling of each of its names."""
        path = tuple(map(folded, row))
        return tuple(chosen[node] for node in prefixes(path))

    return {row: as_most_write_it(row) for row in table.rows}


@policy("add-root", mends=["several roots"], stage=1)
def add_root(table: NameTable) -> NewRows:
    """The nodes without a parent become the coarsest level, under one root."""
    return {row: row for row in table.rows}


@policy("fill-from-same-name", mends=["placeholder"], stage=2)
def fill_from_same_name(table: NameTable) -> NewRows:
    """A missing name above a known one is taken from rows that have the same name there; names that
    stand under several parents are told apart by what else the row knows, and stay as they are
    where that leaves a choice."""
    known = {row for row in table.rows if not any(map(table.is_placeholder, row))}
    # from the index of a level and a name, to the rows that have this name there
    by_name: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in table.rows:
        for level, name in enumerate(row):
            if not table.is_placeholder(name):
                by_name[level, name].append(row)
    return {row: row if row in known else _filled_from(row, by_name, table) for row in table.rows}


def _filled_from(row: Row, by_name: Mapping[tuple[int, str], list[Row]], table: NameTable) -> Row:
    """A row whose missing names above a known one are filled in from other rows.

    These are rows that have the same next known name below and do not contradict the row. If they
    offer several names, the name stays missing. `by_name` has the rows of the table by the index of
    a level and a known name there.
    """
    names = list(row)
    finest = max(
        (level for level, name in enumerate(row) if not table.is_placeholder(name)), default=-1
    )
    # from fine to coarse, so that a name that was filled in helps at the level above
    for level in range(finest - 1, -1, -1):
        if table.is_placeholder(names[level]):
            # the next finer level with a known name
            below = next(
                i for i in range(level + 1, finest + 1) if not table.is_placeholder(names[i])
            )
            # rows with the same name there, which agree with the names known so far
            alike = [other for other in by_name[below, names[below]] if _agree(names, other, table)]
            choices = {other[level] for other in alike if not table.is_placeholder(other[level])}
            if len(choices) == 1:
                names[level] = choices.pop()
    return tuple(names)


def _agree(names: Sequence[str], other: Row, table: NameTable) -> bool:
    """Whether two rows do not contradict each other: at each level that both reach, they have the
    same name, or one of the names is missing."""
    pairs = zip(names, other, strict=False)
    return all(
        one == two or table.is_placeholder(one) or table.is_placeholder(two) for one, two in pairs
    )


# after `unknown` (stage 3), which handles missing names at the fine end
@policy("fill-from-parent", mends=["placeholder"], stage=4)
def fill_from_parent(table: NameTable) -> NewRows:
    """A missing name becomes its own class within its parent: NA under Gastropoda is "unplaced
    order of Gastropoda".
    """

    def filled(row: Row) -> Row:
        """The row with a new name in place of each missing one, derived from the name above."""
        names: list[str] = []
        for level, name in enumerate(row):
            unplaced = f"unplaced {table.levels[level]}" + (f" of {names[-1]}" if names else "")
            names.append(unplaced if table.is_placeholder(name) else name)
        return tuple(names)

    return {row: filled(row) for row in table.rows}


@policy("repeat-leaf", mends=["ragged"], stage=5)
def repeat_leaf(table: NameTable) -> NewRows:
    """A leaf that ends early is repeated down to the finest level."""
    return {row: row + row[-1:] * (len(table.levels) - len(row)) for row in table.rows}


@policy("cut", mends=["ragged"], stage=5)
def cut(table: NameTable) -> NewRows:
    """Every path is cut at the deepest level that all of them reach."""
    depth = min((len(row) for row in table.rows if row), default=0)
    return {row: row[:depth] for row in table.rows}


@policy("unknown", mends=["ragged", "placeholder"], stage=3)
def leave_unknown_open(table: NameTable) -> NewRows:
    """A path may end early: nothing is known below its last name, and metrics leave the finer
    classes open.
    """

    def known(row: Row) -> Row:
        """The row without the missing names at its fine end."""
        names = list(row)
        while names and table.is_placeholder(names[-1]):
            names.pop()
        return tuple(names)

    # `ended_early` adds a mark of the unknown at each level that the known part of the row lacks
    return {row: ended_early(known(row), table.levels) for row in table.rows}


@policy("by-path", mends=["homonym", "several parents"], stage=6)
def name_nodes_by_path(table: NameTable) -> NewRows:
    """A node is its whole path: the same name under another parent is another node, shown as "name
    (parent)".
    """
    # The paths that lead to each node. A key is the level of a node and a tuple of names, of which
    # the last is its own; the level is EVERYWHERE if a name means the same node at all levels. A
    # node of several paths must be split.
    paths: dict[Key, set[Row]] = defaultdict(set)
    for row in table.rows:
        for depth, key in enumerate(table.keys(row), start=1):
            paths[key].add(row[:depth])

    # names in use, each with its level or EVERYWHERE: at first those that stay as they are
    taken = {(key[0], key[1][-1]) for key, places in paths.items() if len(places) == 1}
    # paths whose name needs its parent's name added, each with the key of its node
    shared = {path: key for key, places in paths.items() if len(places) > 1 for path in places}
    shown: dict[Row, str] = {(): ROOT}
    # parents before children, since the name of a child may contain that of its parent
    for path in sorted(set().union(*paths.values()), key=lambda path: (len(path), path)):
        # In one namespace, a leaf may be repeated below itself to fill up its path. Each repetition
        # has a key of its own (`table.keys`), and the name of the leaf.
        repeated = table.one_namespace and path[-2:-1] == path[-1:]  # the last two names are equal
        shown[path] = shown[path[:-1]] if repeated else path[-1]
        if path in shared and not repeated:
            namespace = shared[path][0]
            # add the parent's name once, and again as long as another node has the result as name
            while shown[path] == path[-1] or (namespace, shown[path]) in taken:
                shown[path] += f" ({shown[path[:-1]]})"
            taken.add((namespace, shown[path]))

    return {row: tuple(map(shown.__getitem__, prefixes(row))) for row in table.rows}


@policy(MAJORITY_PARENT, mends=["homonym", "several parents"], stage=6)
def majority_parent(table: NameTable) -> NewRows:
    """A node stays with the parent that most items put it under; the first by name where two are
    equal.
    """
    # from the key of each node to {key of a parent: items below both}; `chosen` has the parent with
    # the most items, and of equal ones the first by key
    parents = table.parents().items()
    chosen = {
        key: min(of_node, key=lambda parent: (-of_node[parent], parent)) for key, of_node in parents
    }

    def path(key: Key) -> Row:
        """The names on the path from the root to a node, along the chosen parents. Raises TreeError
        if the chosen parents form a cycle. The key of a node is its level and a tuple of names, of
        which the last is the node's own. `chosen` maps each key to the key of the chosen parent."""
        upwards: list[Key] = []
        while key != ROOT_KEY:
            if key in upwards:
                found = " > ".join(names[-1] for _, names in reversed([*upwards, key]))
                reason = "the policy majority-parent puts a node below itself"
                expected = "names that lead up to the root"
                raise TreeError(
                    reason, expected=expected, found=found, fix="use another policy first"
                )
            upwards.append(key)
            key = chosen[key]
        return tuple(names[-1] for _, names in reversed(upwards))

    if not table.one_namespace:
        return {row: path(table.keys(row)[-1]) if row else row for row in table.rows}
    # In one namespace, paths that end early may have been filled up by repeating their leaf. Under
    # its new parent, a leaf may end at another depth. So the repetitions are removed
    # (`_unrepeated`), and at the end all rows are filled up anew (`after[-1:]`).
    new = {row: path(table.keys(_unrepeated(row))[-1]) if row else row for row in table.rows}
    # if some row of the table is short, leaves have not been repeated, so none are repeated here
    if any(len(row) < len(table.levels) for row in table.rows):
        return new
    depth = max(map(len, new.values()), default=0)
    return {row: after + after[-1:] * (depth - len(after)) for row, after in new.items()}


def _unrepeated(row: Row) -> Row:
    """A row without the repetitions of its leaf: (A, B, B, B) becomes (A, B)."""
    # cut the row at its first name of the final run of equal names
    return row[: next((depth for depth in range(len(row), 1, -1) if row[depth - 2] != row[-1]), 1)]


# in the last stage (7), so that only rows that no other policy has mended are left out
@policy("drop", mends=["placeholder", "ragged", "homonym", "several parents"], stage=7)
def leave_out_faulty_rows(table: NameTable) -> NewRows:
    """Rows that are short or have a placeholder are left out, then those through a node of several
    parents.
    """
    # the rows with a name at every level
    named = [
        row
        for row in table.rows
        if len(row) == len(table.levels) and not any(map(table.is_placeholder, row))
    ]
    whole = {row: table.rows[row] for row in named}
    # the keys of the nodes that have several parents among these rows; homonyms of a level count as
    # one node
    shared = {
        key
        for key, of_node in dataclasses.replace(table, rows=whole).parents().items()
        if len(of_node) > 1
    }

    return {
        row: row if row in whole and shared.isdisjoint(table.keys(row)) else None
        for row in table.rows
    }
