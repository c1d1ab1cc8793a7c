"""hbench tree: show, validate, export or draw a label tree."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.text import Text
from rich.tree import Tree

from hbench.cli.names import OUT_FILE
from hbench.cli.option_blocks import block, words_of
from hbench.cli.terminal import say, show, show_json, show_table, watched
from hbench.core.errors import UnknownName, visible
from hbench.sheets.columns import Chosen
from hbench.sheets.rows import Row
from hbench.tree import ROOT, LabelTree, Node
from hbench.tree.advice import policies_for
from hbench.tree.names import KINDS, NameTable, TreeProblem, runs_backwards
from hbench.tree.partial import classes_in_words, is_class, shown
from hbench.tree.policies import Mended, mend
from hbench.tree.statistics import LevelStatistics, items_of_level

SHOWN_PROBLEMS = 20
# {kind of problem: (text before the names, separator between them)}
PLACES = {
    "cycle": ("on the way", " > "),
    "ragged": ("ends at", " > "),
    "alike": ("as", ", "),
    "several roots": ("among", ", "),
}


def outline(tree: LabelTree, items: NDArray[np.int64], *, depth: int, most: int) -> Tree:
    """Draw the `depth` coarsest levels as an outline, with the first `most` children of every node
    and the numbers of its classes and items. `items` (C,): the number of items of every class."""
    # (C,): 1 for a class, 0 for a leaf that marks an unknown name
    is_known = is_class(tree, tree.depth).astype(np.int64)
    # for each level, arrays over its nodes: the number of classes and of items below each
    classes = [items_of_level(tree, is_known, level) for level in range(1, tree.depth + 1)]
    counts = [items_of_level(tree, items, level) for level in range(1, tree.depth + 1)]
    root = Tree(Text(f"{ROOT}  {_count(int(is_known.sum()), int(items.sum()), at_leaf=False)}"))
    # keys are (level, number of the node in the level); the root is (0, 0)
    drawn: dict[Node, Tree] = {(0, 0): root}

    for level in range(min(depth, tree.depth)):
        at_leaf = level == tree.depth - 1
        for parent, children in _children_of_parents(tree, level):
            if (level, parent) not in drawn:  # the parent, or a node above, was left out
                continue
            branch = drawn[level, parent]
            for node in children[:most]:
                count = _count(int(classes[level][node]), int(counts[level][node]), at_leaf=at_leaf)
                name = shown(tree.names[level][node], tree.levels, level)
                drawn[level + 1, node] = branch.add(Text(visible(f"{name}  {count}".rstrip())))
            if len(children) > most:
                branch.add(Text(f"… {len(children) - most:,} more"))

    return root


def _children_of_parents(tree: LabelTree, level: int) -> Iterator[tuple[int, list[int]]]:
    """Yield every parent of nodes at a level together with its children, which have consecutive
    numbers."""
    nodes = range(len(tree.names[level]))
    for parent, children in groupby(nodes, key=lambda node: int(tree.parents[level][node])):
        yield parent, list(children)


def _count(classes: int, items: int, *, at_leaf: bool) -> str:
    """Format a node's numbers, as in "(12 classes, 340 items)". If every class has one item, or the
    node is itself a class (`at_leaf`), the number that tells nothing is left out."""
    parts = []
    if classes and not at_leaf:
        parts.append("1 class" if classes == 1 else f"{classes:,} classes")
    if items > classes:
        parts.append("1 item" if items == 1 else f"{items:,} items")
    return f"({', '.join(parts)})" if parts else ""


def problem_lines(
    table: NameTable, problems: Iterable[TreeProblem], *, most: int | None
) -> Iterator[str]:
    """Describe the table in a line, then list its problems by kind, `most` of each (None: all),
    with the policies that mend them. `problems`: sorted by kind, as `find_problems` returns them.
    """
    levels = f"{len(table.levels)} levels ({', '.join(table.levels)})"
    # `table.rows` maps each row of names to its number of items
    yield f"{len(table.rows):,} rows of {levels}, {sum(table.rows.values()):,} items"
    for kind, group in groupby(problems, key=lambda problem: problem.kind):
        members = list(group)
        yield f"\n{kind} × {len(members):,}: {KINDS[kind]}"
        words = (
            [problem.level, repr(problem.node), _places_in_words(problem)] for problem in members
        )
        yield from _first([" ".join(filter(None, each)) for each in words], most)
        for policy in policies_for(kind):
            yield f"  --policy {policy.name}: {policy.text}"
    # with its columns in reverse order the table has less than half as many problems
    if runs_backwards(table):
        yield "\nthe columns seem to run from fine to coarse: --levels " + ",".join(
            reversed(table.levels)
        )


def _places_in_words(problem: TreeProblem) -> str:
    """Describe a problem: the parents of the node, the nodes of a cycle, or the names that look
    alike (at most 20), and the number of items that are affected."""
    beginning, between = PLACES.get(problem.kind, ("in", " and "))
    items = f" ({problem.items:,} items)" if problem.items > 1 else ""
    where = list(problem.where[:SHOWN_PROBLEMS])
    if len(problem.where) > SHOWN_PROBLEMS:
        where.append("…")
    return f"{beginning} {between.join(where)}{items}" if where else items.strip()


def change_lines(mended: Mended, *, most: int | None) -> Iterator[str]:
    """List what every policy changed, `most` rows for each (None: all), in the order in which the
    policies were applied."""
    for name, group in groupby(mended.changes, key=lambda change: change.policy):
        changes = list(group)
        yield (
            f"\n{name} changes {len(changes):,} rows of "
            f"{sum(change.items for change in changes):,} items"
        )
        yield from _first(
            [f"{_path(change.before)}  ->  {_path(change.after)}" for change in changes], most
        )


def _path(row: Row | None) -> str:
    """Format a row of names as a path; None is a row that a policy removed."""
    return "left out" if row is None else " > ".join(row) or "(no name)"


def _first(lines: Sequence[str], most: int | None) -> Iterator[str]:
    """Return the first `most` lines (None: all), indented, and a line with the number of others."""
    yield from (f"  {line}" for line in lines[:most])
    if most is not None and len(lines) > most:
        yield f"  … {len(lines) - most:,} more (--all)"


@click.group()
def command() -> None:
    """Show, validate, export or draw a label tree.

    SOURCE is a dataset (its name or folder), a folder whose nested folders hold images, or a file:
    a table of names (.csv, .tsv, .parquet) with one column per level, coarse to fine, or with the
    columns parent and child; .graphml; .json ({"name", "children"}); .nwk.

    Example: hbench tree validate classes.csv --levels order,family,species --policy by-path
    """


@dataclass(frozen=True)
class NamesOptions:
    """The options of where a tree's names come from, how they are read, and which policies mend
    them."""

    source: str
    levels: str | None
    item: str | None
    edges: str | None
    separator: str | None
    split: str | None
    policies: tuple[str, ...]
    placeholders: tuple[str, ...]

    def read(self) -> tuple[NameTable, Mended]:
        """Read the names, and print how they were understood. Return them, and the result of the
        policies."""
        table = self._names_as_they_stand()
        if table.read is not None:
            say(f"read: {table.read}")
        if self.placeholders:  # instead of the usual ones; names are compared without case
            missing = frozenset(text.strip().casefold() for text in self.placeholders)
            table = replace(table, placeholders=missing)
        return table, mend(table, self.policies)

    def _names_as_they_stand(self) -> NameTable:
        """Read the names in a file, in nested folders, or in a dataset (one split, or all), before
        any policy. Raises UnknownName for an unknown split."""
        from hbench.core.tables import text_rows
        from hbench.datasets import load, own_names, specs
        from hbench.datasets.manifest import name_table_of
        from hbench.datasets.own.folder import folder_table
        from hbench.tree import files as tree_files

        path = Path(self.source)
        levels = words_of(self.levels)
        # A file that is missing is refused by its reader. The suffix (a key of WRITERS, or PATHS)
        # tells that a file is meant, unless a dataset of the user's has this name.
        has_suffix = path.suffix in (*tree_files.WRITERS, tree_files.PATHS)
        if path.is_file() or (has_suffix and self.source not in own_names()):
            edges = tuple(words_of(self.edges))
            chosen = Chosen(self.item, tuple(levels), self.separator, edges)
            return tree_files.read(path, chosen=chosen)

        # the name of a dataset has precedence over a folder of that name
        is_built = (path / "dataset.json").exists() or self.source in {*specs, *own_names()}
        if path.is_dir() and not is_built:
            images = folder_table(path, levels=levels).drop_columns(["item"])
            return NameTable.of(images.column_names, text_rows(images, images.column_names))

        manifests = load(self.source).manifests
        if self.split is not None and self.split not in manifests:
            raise UnknownName("split", self.split, manifests)
        # join the rows of all splits: each path with its number of items
        return name_table_of([manifests[self.split]] if self.split else list(manifests.values()))


SOURCE = block(
    "names",
    NamesOptions,
    [
        click.argument("source"),
        click.option(
            "--levels", help="A table's columns of names, coarse to fine, with commas between."
        ),
        click.option(
            "--item", metavar="COLUMN", help="A table's column of ids, which is no level."
        ),
        click.option(
            "--edges",
            metavar="PARENT,CHILD",
            help="The columns of a list of edges.",
        ),
        click.option(
            "--separator",
            metavar="TEXT",
            help="What stands between the names of a path, such as '>'.",
        ),
        click.option(
            "--split", help="One split of a dataset, such as train; by default all of them."
        ),
        click.option(
            "--policy",
            "policies",
            multiple=True,
            help="Mend the names by this policy. May be repeated.",
        ),
        click.option(
            "--placeholder",
            "placeholders",
            multiple=True,
            help='Instead of "NA", "unknown" …: a missing name. May be repeated.',
        ),
    ],
)


@command.command("show")
@SOURCE
@click.option("--depth", type=click.IntRange(1), help="Print this many levels.")
@click.option(
    "--max-children",
    type=click.IntRange(0),
    default=12,
    show_default=True,
    help="Print this many children of a node (0: all).",
)
@click.option("--json", "as_json", is_flag=True, help="The statistics and the whole tree as JSON.")
def show_command(
    *, depth: int | None, max_children: int, as_json: bool, names: NamesOptions
) -> None:
    """Print a tree, and how it branches.

    Example: hbench tree show glyphs --depth 2
    """
    from rich.console import Console

    from hbench.tree.files import nested_objects
    from hbench.tree.statistics import statistics

    # the names as they were read, and as the policies have mended them
    table, mended = names.read()
    # items (C,): the number of items of each class of the finest level
    tree, items = mended.table.tree()
    figures = statistics(tree, items)
    if as_json:
        # how the file was understood; None for a dataset
        read = {} if table.read is None else {"read": table.read.document()}
        show_json(
            {
                **read,
                "statistics": [level._asdict() for level in figures],
                "tree": nested_objects(tree, items),
            }
        )
        return
    # lines of pipes and files are not wrapped; `most` is the number of classes if all children are
    # asked for (0), since no node has more children than that
    console = Console(width=None if watched(sys.stdout) else 10_000, highlight=False)
    console.print(outline(tree, items, depth=depth or tree.depth, most=max_children or len(items)))
    _show_figures(figures)


def _show_figures(figures: Sequence[LevelStatistics]) -> None:
    """Print the table of a tree's levels: the number of nodes, the children of the nodes above
    (least, median, most), the effective classes (how many classes of equal size would have the same
    entropy), and the nodes with most and fewest items."""
    rows = []
    for level in figures:
        branching = " / ".join(f"{number:g}" for number in level.branching)
        extremes = [f"{name} ({size:,})" for name, size in (level.largest, level.smallest)]
        rows.append(
            [level.level, f"{level.nodes:,}", branching, f"{level.effective:,.1f}", *extremes]
        )
    header = ["level", "nodes", "branching (least / median / most)", "effective classes"]
    show_table(None, [*header, "largest", "smallest"], rows)


@command.command("validate", short_help="Name what is not a tree, and what policies do about it.")
@SOURCE
@click.option(
    "--out", "-o", type=OUT_FILE, help="Write the mended names here, and OUT.changes.json beside."
)
@click.option(
    "--all",
    "all_of_them",
    is_flag=True,
    help=f"Print every problem and change, not {SHOWN_PROBLEMS} of a kind.",
)
@click.option("--json", "as_json", is_flag=True, help="Problems and changes as JSON.")
def validate_command(
    *, out: Path | None, all_of_them: bool, as_json: bool, names: NamesOptions
) -> None:
    """Name everything that keeps SOURCE from being a tree, and what each policy would do about it.

    Exit code 0: a tree, perhaps with remarks, by itself or after the policies asked for; 3: no
    tree.

    Example: hbench tree validate classes.csv --policy fill-from-parent --policy by-path --out
    mended.csv
    """
    from hbench.tree.names import find_problems, refuse
    from hbench.tree.record import write_mended

    # the names as they are written, and the result of the chosen policies
    table, mended = names.read()
    problems = find_problems(table)
    left = find_problems(mended.table)
    most = None if all_of_them else SHOWN_PROBLEMS
    if as_json:
        show_json(_validated(table, mended, problems, left))
    else:
        show("\n".join(problem_lines(table, problems, most=most)))
        if names.policies:
            show("\n".join([*change_lines(mended, most=most), "\nafter the policies:"]))
            show("\n".join(problem_lines(mended.table, left, most=most)))
    # raises, with the exit code 3, if problems are left
    refuse(left, names.source)
    after = " after its policies" if names.policies else ""
    tree, _ = mended.table.tree()
    say(f"{names.source} is a tree{after}: {_sizes_in_words(tree)}")
    if out is not None:
        levels = words_of(names.levels)
        record = write_mended(
            out, Path(names.source), mended, levels=levels, policies=names.policies
        )
        say(f"wrote {out} and {record.name}")


def _validated(
    table: NameTable, mended: Mended, problems: list[TreeProblem], left: list[TreeProblem]
) -> dict[str, Any]:
    """Make the document of a validation for --json: the problems of a table, the policies for each
    kind of problem, the changes by the chosen policies, and the problems that are `left` after
    them."""
    return {
        "levels": table.levels,
        "rows": len(table.rows),
        "items": sum(table.rows.values()),
        "problems": [problem._asdict() for problem in problems],
        "policies": {kind: _policies_in_words(kind) for kind in KINDS},
        "changes": [change._asdict() for change in mended.changes],
        "left": [problem._asdict() for problem in left],
    }


def _sizes_in_words(tree: LabelTree) -> str:
    """List the number of classes at each level of a tree."""
    return classes_in_words(tree, " · ")


def _policies_in_words(kind: str) -> list[str]:
    """List the names of the policies that mend a kind of problem."""
    return [policy.name for policy in policies_for(kind)]


@command.command("export", short_help="Write a tree as CSV, JSON or Newick.")
@SOURCE
@click.option("--out", "-o", type=OUT_FILE, help="The file to write; its ending is the format.")
@click.option(
    "--format",
    "kind",
    help="csv, tsv, json or nwk; by default the ending of --out, else csv.",
)
def export_command(*, out: Path | None, kind: str | None, names: NamesOptions) -> None:
    """Write a tree as CSV (one row per class), JSON or Newick, to a file or stdout.

    Example: hbench tree export glyphs --out glyphs.nwk
    """
    from hbench.core.files import write_text
    from hbench.tree import files as tree_files

    suffix = ".csv" if out is None else out.suffix.lower()
    if kind:
        suffix = f".{kind}"
    if suffix not in tree_files.WRITERS:
        raise UnknownName(
            "format",
            suffix.removeprefix("."),
            [name.removeprefix(".") for name in tree_files.WRITERS],
        )
    # the tree of the names as --policy has mended them
    _, mended = names.read()
    tree, _ = mended.table.tree()
    text = tree_files.write(tree, suffix)
    if out is None:
        show(text.removesuffix("\n"))
    else:
        write_text(out, text)
        say(f"wrote {out}: {len(tree.paths):,} classes, {tree.depth} levels")


@command.command("draw", short_help="Draw a tree as a picture.")
@SOURCE
@click.option("--out", "-o", type=OUT_FILE, required=True, help="The .svg, .png or .pdf to write.")
@click.option("--by-items", is_flag=True, help="Heights by items instead of classes.")
def draw_command(*, out: Path, by_items: bool, names: NamesOptions) -> None:
    """Draw a tree with a column per level, readable at ten thousand classes.

    Example: hbench tree draw glyphs --out glyphs.svg
    """
    from hbench.look.figures import refuse_suffix
    from hbench.look.plots.tree import draw_tree

    refuse_suffix(out)
    _, mended = names.read()  # the names before the policies are not needed
    tree, items = mended.table.tree()
    # the height of the boxes: by items, or equal for all classes
    sizes, unit = (items, "items") if by_items else (np.ones_like(items), "classes")
    draw_tree(tree, sizes, f"{Path(names.source).stem} · {int(sizes.sum()):,} {unit}").write(out)
    say(f"wrote {out}: {len(tree.paths):,} classes, {tree.depth} levels")
