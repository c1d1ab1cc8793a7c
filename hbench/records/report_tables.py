"""Writes a report as tables for people and papers, and as the Hugging Face hub reads results.

A table has one line per metric: its score, its interval and the number of queries behind it. What
is written carries the signature, without which a score cannot be quoted.
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

DIGITS = 4  # of percent on the hub


def table(document: Document, names: Sequence[str] | None = None) -> PrintedTable:
    """A report as a table with a line for each of the metrics `names`, by default all that are
    `worth_showing`: metric, score, 95 % interval, the official value if any differs, under partial
    labels the scores with all unknown levels wrong and right, and the number of queries."""
    listed = {name: document.scores[name] for name in names or names_shown(document)}
    official = {name: score for name, score in document.official.items() if name in listed}
    # nine digits: what differs by rounding alone is the same
    differs = {
        name
        for name, score in official.items()
        if percent(score.value, 9) != percent(listed[name].value, 9)
    }
    # under partial labels, unless none of the listed metrics depends on unknown levels
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
    return PrintedTable(tuple(header), cells, [unit_note(document), *document.warnings])


def names_shown(document: Document) -> list[str]:
    """The metrics that a table for people shows."""
    return worth_showing(list(document.scores), [values_of(document.scores)])


def unit_note(document: Document) -> str:
    """Say what the intervals are taken over, and which scores are left out."""
    return over_note(document, left_out=len(names_shown(document)) < len(document.scores))


def over_note(document: Document, *, left_out: bool) -> str:
    """Say what the intervals are taken over, and whether R@k are left out."""
    over = f"intervals: 95 %, over {document.over}"
    return f"{over}; {LEFT_OUT}" if left_out else over


def unknown_of(document: Document) -> dict[str, dict[str, Score]]:
    """Under partial labels, the scores with all unknown labels wrong, and with all right; else
    none.
    """
    both = {"unknown wrong": document.unknown_wrong, "unknown right": document.unknown_right}
    return both if document.unknown_wrong else {}


def tables(document: Document) -> list[PrintedTable]:
    """The report for a person: the metrics of the whole tree, then those that every level has, a
    column per level, then the values on each test where there are several, and the scores under
    other trees.

    Levels run fine to coarse; a cell is the score ± half its 95 % interval.
    """
    levels = list(reversed(document.levels))
    # {metric without its level: {level: score}}
    rows: dict[str, dict[str, Score]] = {}
    for name, score in document.scores.items():
        parsed = MetricName.parse(name)
        if "level" in parsed.definition.takes:
            # a metric that names no level is of the finest
            rows.setdefault(str(replace(parsed, level=None)), {})[parsed.level or levels[0]] = score

    # metrics that were computed at every level, of several, get a line with a column per level
    spread = {name: scores for name, scores in rows.items() if len(scores) == len(levels) > 1}
    kept = {str(replace(MetricName.parse(name), level=None)) for name in names_shown(document)}
    cells = []
    for name, scores in spread.items():
        if name in kept:
            cells.append((name, *(margin(name, scores[level]) for level in levels)))
    # names of what the table by level has: the finest level is left out of a name
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
    """A line per metric, a column per test; no lines where there is one test."""
    columns = document.by_test.values()
    names = names_shown(document) if columns else []
    cells = []
    for name in names:
        cells.append((name, *(shown(name, scores[name]) for scores in columns)))
    return PrintedTable(("metric", *document.by_test), cells, notes=[])


def by_tree(document: Document) -> PrintedTable:
    """A line per tree, the dataset's own first, a column per metric of all levels: the score, and
    in brackets its paired difference from the own tree ± half its 95 % interval; no lines where
    there is no other tree."""
    names = next((list(tree_scores.scores) for tree_scores in document.trees.values()), [])
    if not names:
        return PrintedTable(("tree",), cells=[], notes=[])
    cells = [("own", *(shown(name, document.scores[name].value) for name in names))]
    for tree, differences in document.trees.items():
        cells.append((tree, *(_beside_own(name, differences) for name in names)))
    return PrintedTable(("tree", *names), cells, notes=[])


def _beside_own(metric: str, tree: UnderTree) -> str:
    """The score under a tree, and in brackets its difference from the own tree ± half its
    interval."""
    value = shown(metric, tree.scores[metric].value)
    difference = _difference(metric, tree.differences[metric])
    return f"{value} ({difference})"


def _difference(metric: str, paired: Mapping[str, str | float | int | None]) -> str:
    """A paired difference, the fields of `Difference` by name, as people read it: the difference
    with its sign, ± half its interval; a dash where no query defines it."""
    value = paired["difference"]
    low = paired["low"]
    high = paired["high"]
    if not (isinstance(value, float) and isinstance(low, float) and isinstance(high, float)):
        return NONE
    return f"{shown_difference(metric, value)} ±{shown(metric, (high - low) / 2)}"


def as_csv(document: Document) -> str:
    """A report as CSV with a line per metric, fractions in full precision: metric, value, low,
    high, official, queries, skipped, under partial labels the values with all unknown levels wrong
    and right, and the unit of the intervals with its number."""
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
    """What was scored and on what, in one line: the method, else the file, and the dataset."""
    subject = document.method or (document.embedding.file if document.embedding else "arrays")
    return f"{subject} on {document.dataset}"


def hub(document: Document) -> str:
    """The report as `.eval_results/NAME.yaml` of a model's repository on the Hugging Face hub: an
    entry per metric that is defined, as people read it.

    The hub shows an entry with the dataset of this id; who has that dataset under another name
    there replaces it, and adds `source: {url: …}` where the embedding file can be had. Texts are
    written as JSON, which is YAML, so that no name is taken for a number or a key.
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
    """A text in quotes as JSON has it, which YAML reads, too, and never as a number or a key."""
    return json.dumps(value, ensure_ascii=False)


def heading(document: Document) -> str:
    """What was scored and on what, and what the numbers are, such as percent, in one line."""
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
