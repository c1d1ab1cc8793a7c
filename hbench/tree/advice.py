"""Advises on the policies that would turn a table of names into a tree, and says in numbers what
each would do."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from hbench.core.errors import HBenchError, TreeError
from hbench.sheets.rows import MAX_SMALL_TABLE, default_levels
from hbench.tree import SHOWN_NODES
from hbench.tree.names import (
    REMARKS,
    SEVERAL_ROOTS,
    UNMENDED,
    NameTable,
    find_problems,
)
from hbench.tree.partial import is_unknown
from hbench.tree.policies import RECOMMENDED, Mended, Policy, _exclude_each_other, mend, policies
from hbench.tree.refusals import kinds_in_words


def policies_for(kind: str) -> list[Policy]:
    """List the policies that mend a kind of problem, in the order in which they apply."""
    fitting = [policies[name] for name in policies if kind in policies[name].mends]
    return sorted(fitting, key=lambda policy: policy.stage)


def mend_to_tree(table: NameTable, names: Sequence[str], source: str) -> Mended:
    """Apply the policies `names` to a table; the name "recommended" stands for those that suit it.
    Raises TreeError if no tree results. The error lists the problems of nodes and the policies that
    mend them. `source` names the file in the error.
    """
    names = recommended(table, names)
    mended = mend(table, names)
    try:
        mended.table.tree()  # raises if problems are left
        return mended
    except TreeError:
        # the error below lists all problems; a table with nothing but remarks, which do not
        # prevent a tree, has none to list, so the error of `tree` is raised
        problems = [
            problem for problem in find_problems(mended.table) if problem.kind not in REMARKS
        ]
        if not problems:
            raise

    # the level and name of each node, and the nodes that its problem is about, such as its parents
    shown = [
        p.in_words("")
        if p.kind == SEVERAL_ROOTS
        else f"{p.level} {p.node!r} in {' and '.join(map(repr, p.where))}"
        for p in problems[:SHOWN_NODES]
    ]
    if len(problems) > SHOWN_NODES:
        shown.append("…")
    kinds = Counter(problem.kind for problem in problems)
    raise TreeError(
        f"{source} is not a tree: {kinds_in_words(kinds)}",
        # the indentation continues the lines below the text after "found:" and "next:"
        found="\n            ".join(shown),
        fix="\n            ".join(
            ["mend the names in the source, or by a policy:", *advice(table, names)]
        ),
    )


WHOLE_PATHS = ("repeat-leaf",)
# in the order of recommendation: combinations that change fewer names come first
COMBINATIONS = (
    ("fill-from-same-name",),
    ("unknown",),
    ("fill-from-same-name", "unknown"),
    ("fill-from-same-name", "unknown", "fill-from-parent"),
    ("fill-from-parent",),
    ("fill-from-parent", "unknown"),
    ("repeat-leaf",),
    ("by-path",),
    ("majority-parent",),
    ("fill-from-parent", "repeat-leaf"),
    ("by-path", "fill-from-same-name"),
    ("by-path", "unknown"),
    ("by-path", "repeat-leaf"),
    ("by-path", "fill-from-same-name", "unknown", "fill-from-parent"),
    ("by-path", "fill-from-parent", "repeat-leaf"),
    ("add-root",),
    ("add-root", "by-path"),
    ("add-root", "unknown"),
    ("add-root", "repeat-leaf"),
    ("add-root", "by-path", "unknown", "fill-from-parent"),
    ("drop",),
)


MOST_OFFERED = 4


def advice(table: NameTable, chosen: Sequence[str] = ()) -> list[str]:
    """Describe at most four combinations of policies that would turn the table into a tree, the
    recommended one first, or say that a cycle needs an edit of the source. Each combination
    includes the policies that were `chosen` already.
    """
    # `broken` has the problems of the source that rows cannot show
    if any(problem.kind == "cycle" for problem in table.broken):
        return [UNMENDED]
    offered = []
    for names, what in itertools.islice(_combinations(table, chosen), MOST_OFFERED):
        options = " ".join(f"--policy {name}" for name in names)
        offered.append(f"{options}: {what}")
    return offered


def recommended(table: NameTable, names: Sequence[str]) -> tuple[str, ...]:
    """The names of the policies to apply. The word `recommended` among `names` is replaced by the
    policies that `advice` lists first.

    Raises TreeError if no combination makes a tree.
    """
    chosen = [name for name in names if name != RECOMMENDED]
    if len(chosen) == len(names):
        return tuple(names)
    if _make_whole_tree(table, chosen):
        return tuple(chosen)  # the chosen policies are enough
    if (first := next(_combinations(table, chosen), None)) is not None:
        policies, _effect = first  # all policies of the combination, the chosen ones included
        return tuple(policies)
    raise TreeError(
        "no policies are recommended for these names",
        expected="names that policies make a tree of",
        found=f"{len(table.rows):,} paths of the levels {', '.join(table.levels)}",
        fix="hbench tree validate lists their problems",
    )


def _combinations(table: NameTable, chosen: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """Yield the combinations of policies that turn the table into a tree, each with its effect in
    words; the recommended one comes first. Each includes the policies that were `chosen` already. A
    combination with the same effect as an earlier one, or with two policies that are alternatives,
    is skipped.
    """
    effects: set[str] = set()
    # If the levels have no names, as in categories of a shop or in folders, a path that ends early
    # is complete. So the combination WHOLE_PATHS, which repeats the path's leaf, is recommended
    # first.
    is_unnamed = table.levels == default_levels(len(table.levels))
    first = [WHOLE_PATHS] if is_unnamed else []
    for combination in dict.fromkeys([*first, *COMBINATIONS]):  # without repeats, in order
        names = list(dict.fromkeys([*chosen, *combination]))
        is_possible = not any(
            _exclude_each_other(policies[a], policies[b])
            for a, b in itertools.combinations(names, 2)
        )
        if is_possible and _make_whole_tree(table, names):
            what = effect(table, names)
            if what not in effects:
                yield names, what
            effects.add(what)


def _make_whole_tree(table: NameTable, names: Sequence[str]) -> bool:
    """Whether policies, given by `names`, make of the table a tree without missing names in which
    some items share a class. `rows` of a table maps each distinct row of names to its number of
    items."""
    try:
        mended = mend(table, names).table
        mended.tree()
    except TreeError:
        return False
    items = sum(mended.rows.values())
    # a tree with a class for every item is useless; only a table of at most MAX_SMALL_TABLE items
    # may be like that
    is_all_alone = MAX_SMALL_TABLE < items == len(mended.rows)
    return not is_all_alone and not any("" in row for row in mended.rows)


def effect(table: NameTable, names: Sequence[str]) -> str:
    """Say in words and numbers what the policies `names` would do to a table.

    >>> table = NameTable.of(
    ...     ("order", "genus"), [("Rosales", "Iris"), ("Mantodea", "Iris"), ("Mantodea", "Mantis")]
    ... )
    >>> effect(table, ["by-path"]), effect(table, ["drop"])
    ('renames 2 items; 3 genus instead of 2', 'leaves out 2 items; 1 genus instead of 2')
    """
    try:
        mended = mend(table, names)
    except HBenchError as refusal:
        return refusal.problem

    # from each row to its new row, which is None if the row is left out
    after = {row: mended.final[row] for row in table.rows}
    left_out = sum(items for row, items in table.rows.items() if after[row] is None)
    renamed = sum(items for row, items in table.rows.items() if after[row] not in {row, None})
    parts = [
        f"{what} {items:,} items"
        for what, items in (("renames", renamed), ("leaves out", left_out))
        if items
    ]
    count = _fine_classes(table)
    before = f"{count:,} {table.levels[-1]}"
    now = f"{_fine_classes(mended.table):,} {mended.table.levels[-1]}"
    if now == before:
        parts.append(now)
    elif mended.table.levels == table.levels:  # the level is said once
        parts.append(f"{now} instead of {count:,}")
    else:
        parts.append(f"{now} instead of {before}")

    if not _make_whole_tree(table, names):
        parts.append("other problems stay")
    return "; ".join(parts)


def _fine_classes(table: NameTable) -> int:
    """The number of classes at the finest level. Rows that end above it, or whose finest name marks
    the unknown, have no class there."""
    whole = [row for row in table.rows if len(row) == len(table.levels) and not is_unknown(row[-1])]
    return len({table.keys(row)[-1] for row in whole})
