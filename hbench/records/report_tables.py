"""Formats a report as tables for people and papers, and as results for the Hugging Face hub.

A table has one line per metric: its score, its interval and its number of queries. The formats for
papers and the hub include the signature, which must be quoted with a score.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hbench.core.text import NONE, csv_text, percent
from hbench.metrics.names import MetricName, factor_of
from hbench.records.document import Document, Score, UnderTree
from hbench.records.shown import (
    LEFT_OUT,
    interval,
    margin,
    percent_note,
    shown,
    shown_difference,
    values_of,
    worth_showing,
)
from hbench.records.tables import PrintedTable, latex, markdown

DIGITS = 4  # decimal places of percentages on the hub


def table(document: Document, names: Sequence[str] | None = None) -> PrintedTable:
    """A report as a table with a line for each of the metrics `names`, by default those of
    `names_shown`.

    The columns are the metric, the score, its 95 % interval, and the number of queries. A column of
    official values is added if any of them differs from the score. Under partial labels, the scores
    with all unknown levels wrong, and with all right, are added.
    """
    listed = {name: document.scores[name] for name in names or names_shown(document)}
    official = {name: score for name, score in document.official.items() if name in listed}
    # compared with nine digits, so that rounding makes no difference
    differs = {
        name
        for name, score in official.items()
        if percent(score.value, 9) != percent(listed[name].value, 9)
    }
    # {heading: {metric: score}} of the columns "unknown wrong" and "unknown right"; empty if no
    # listed metric depends on unknown levels
    unknown = unknown_of(document) if any(name in document.unknown_wrong for name in listed) else {}
    cells = []
    for name, score in listed.items():
        line = [name, shown(name, score.value), interval(name, score)]
        if differs:
            line.append(shown(name, official[name].value) if name in differs else "same")
        line += [
            shown(name, scores[name].value) if name in scores else "" for scores in unknown.values()
        ]
        cells.append((*line, f"{score.queries:,}"))

    header = ["metric", f"{document.protocol} protocol", "95 % interval"]
    if differs:
        header.append("official")
    header += [*unknown, "queries"]
    return PrintedTable(
        header=tuple(header), cells=cells, notes=[unit_note(document), *document.warnings]
    )


def names_shown(document: Document) -> list[str]:
    """The metrics that a table for people shows."""
    return worth_showing(list(document.scores), [values_of(document.scores)])


def unit_note(document: Document) -> str:
    """A sentence on the units of the intervals, and on metrics that the table leaves out."""
    return over_note(document, left_out=len(names_shown(document)) < len(document.scores))


def over_note(document: Document, *, left_out: bool) -> str:
    """A sentence on the units of the intervals, and, if `left_out`, on R@k that are not shown."""
    over = f"intervals: 95 %, over {document.over}"
    return f"{over}; {LEFT_OUT}" if left_out else over


def unknown_of(document: Document) -> dict[str, dict[str, Score]]:
    """Under partial labels, the scores with all unknown labels wrong, and with all right, by the
    name of their column. Empty for complete labels.
    """
    both = {"unknown wrong": document.unknown_wrong, "unknown right": document.unknown_right}
    return both if document.unknown_wrong else {}


def tables(document: Document) -> list[PrintedTable]:
    """A report as tables for people. Tables without lines are left out.

    The first table has the metrics of the whole tree. The second has those that exist at every
    level, with a column per level, fine to coarse; a cell is the score ± half its 95 % interval.
    The others have the values on each of several tests, and the scores under other trees.
    """
    levels = list(reversed(document.levels))
    # {metric without its level: {level: score}}, such as {"AP": {"genus": …, "species": …}}
    rows: dict[str, dict[str, Score]] = {}
    for name, score in document.scores.items():
        parsed = MetricName.parse(name)
        if "level" in parsed.definition.takes:
            # a metric without a level in its name is of the finest level
            rows.setdefault(str(replace(parsed, level=None)), {})[parsed.level or levels[0]] = score

    # metrics that were computed at each of several levels
    spread = {name: scores for name, scores in rows.items() if len(scores) == len(levels) > 1}
    # names_shown leaves out R@k that are 100 % already; a line stays if it is shown at any level
    kept = {str(replace(MetricName.parse(name), level=None)) for name in names_shown(document)}
    cells = []
    for name, scores in spread.items():
        if name in kept:
            cells.append((name, *(margin(name, scores[level]) for level in levels)))
    # the full names of the metrics in the table by level; a name omits the finest level
    covered = {
        name if level == levels[0] else f"{name}/{level}" for name in spread for level in levels
    }
    others = [name for name in names_shown(document) if name not in covered]
    by_level = PrintedTable(("metric", *levels), cells, notes=[])
    found = [
        table(document, others) if others else None,
        by_level,
        by_test(document),
        by_tree(document),
    ]

    return [content for content in found if content and content.cells]


def by_test(document: Document) -> PrintedTable:
    """A table with a line per metric and a column per test; it has no lines if there is only one
    test."""
    # {metric: mean} of each test; empty if there is only one
    columns = document.by_test.values()
    names = names_shown(document) if columns else []
    cells = []
    for name in names:
        cells.append((name, *(shown(name, scores[name]) for scores in columns)))
    return PrintedTable(("metric", *document.by_test), cells, notes=[])


def by_tree(document: Document) -> PrintedTable:
    """A table with a line per tree, the dataset's own first. It has a column for each metric that
    takes all levels together, such as H-AP, since only these have scores under other trees. It has
    no lines if there is no other tree.

    A cell is the score and, in brackets, its paired difference from the score under the own tree,
    ± half the 95 % interval of the difference.
    """
    # all trees have the same metrics, so those of the first one are taken
    names = next((list(tree_scores.scores) for tree_scores in document.trees.values()), [])
    if not names:
        return PrintedTable(("tree",), cells=[], notes=[])
    cells = [("own", *(shown(name, document.scores[name].value) for name in names))]
    for tree, tree_scores in document.trees.items():
        cells.append((tree, *(_beside_own(name, tree_scores) for name in names)))
    return PrintedTable(("tree", *names), cells, notes=[])


def _beside_own(metric: str, tree: UnderTree) -> str:
    """The score of a metric under a tree and, in brackets, its difference from the own tree ± half
    its interval."""
    value = shown(metric, tree.scores[metric].value)
    difference = _difference(metric, tree.differences[metric])
    return f"{value} ({difference})"


def _difference(metric: str, paired: Mapping[str, str | float | int | None]) -> str:
    """A paired difference as text: with its sign, ± half its interval; a dash if no query defines
    it. `paired` has the fields of `Difference` by name."""
    value = paired["difference"]
    low = paired["low"]
    high = paired["high"]
    # undefined values are None
    if not (isinstance(value, float) and isinstance(low, float) and isinstance(high, float)):
        return NONE
    return f"{shown_difference(metric, value)} ±{shown(metric, (high - low) / 2)}"


def as_csv(document: Document) -> str:
    """A report as CSV with a line per metric, with fractions in full precision.

    The columns are metric, value, low, high, official, queries and skipped; under partial labels
    the values with all unknown levels wrong, and with all right; and the unit of the intervals with
    the number of units.
    """
    # {heading: {metric: score}}, empty for complete labels
    unknown = unknown_of(document)
    rows = []
    for name, score in document.scores.items():
        official = document.official[name].value if name in document.official else None
        others = [scores[name].value if name in scores else None for scores in unknown.values()]
        about = [name, score.value, score.low, score.high, official, score.queries, score.skipped]
        rows.append([*about, *others, document.unit, score.units])
    columns = [*(name.replace(" ", "_") for name in unknown), "unit", "units"]
    return csv_text(
        ["metric", "value", "low", "high", "official", "queries", "skipped", *columns], rows
    )


def title(document: Document) -> str:
    """The name of the method, or else of the file, and of the dataset, in one line."""
    subject = document.method or (document.embedding.file if document.embedding else "arrays")
    return f"{subject} on {document.dataset}"


def hub(document: Document) -> str:
    """A report as `.eval_results/NAME.yaml` of a model's repository on the Hugging Face hub, with
    an entry for each defined metric.

    The hub shows an entry at the dataset whose id the entry states. hbench writes its own name of
    the dataset. If the dataset has another id on the hub, the user replaces it, and may add
    `source: {url: …}` for the embedding file. Texts are written in JSON's quotes, which YAML reads,
    so that no name is taken for a number or a key.
    """
    lines = [
        "# .eval_results/NAME.yaml of the model's repository; dataset.id is the dataset's "
        "repository on the hub"
    ]

    for name, score in document.scores.items():
        if score.value is None:
            continue
        lines += [
            "- dataset:",
            f"    id: {_quoted(document.dataset)}",
            f"    task_id: {_quoted(name)}",
            f"    revision: {_quoted(document.dataset_digest)}",
            f"  value: {round(factor_of(name) * score.value, DIGITS)}",
            f"  date: {_quoted(document.date)}",
            f"  notes: {_quoted(document.signature)}",
        ]

    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    """A text in JSON's quotes, which YAML reads as a text, never as a number or a key."""
    return json.dumps(value, ensure_ascii=False)


def heading(document: Document) -> str:
    """One line with the method, the dataset, and the unit of the numbers, such as percent."""
    return f"{title(document)}, {percent_note(names_shown(document))}"


FORMATS: dict[str, Callable[[Document], str]] = {
    "hub": hub,
    "json": lambda document: document.model_dump_json(indent=1) + "\n",
    "csv": as_csv,
    "markdown": lambda document: markdown(
        table(document), title=f"{heading(document)}: {document.signature}"
    ),
    "latex": lambda document: latex(
        table(document), title=f"{heading(document)}: {document.signature}"
    ),
}
