"""Browses what models retrieve: the first results of chosen queries as text, values, CSV, or strips in a notebook.

`browse` is what `hbench look` calls; its results show themselves in a notebook.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from hbench.core.errors import UsageError, visible
from hbench.core.tables import lines, without_formula
from hbench.core.text import percent
from hbench.datasets import Dataset, load
from hbench.datasets.manifest import Manifest
from hbench.engine.measure import Measurement, measure
from hbench.look import retrievals
from hbench.look.inputs import examined_embeddings, test_of
from hbench.look.palette import mark_of
from hbench.look.retrievals import UNRELATED, Hit, Queries, first_results, hits_of, level_name
from hbench.look.strips import Sheet, StripRow, page_of, strip_of, write_strips
from hbench.metrics.names import goodness

SHOWN = 8
COLUMNS = ("file", "query", "rank", "id", "score", "level", "shares")
WAYS = ("queries", "class_name", "worst", "best", "severe", "at_random")
MEASURED = frozenset({"worst", "best", "severe"})  # ways that need a metric
FRAME = 230  # pixels of a strip in a notebook
HEAD = 140


@dataclass(frozen=True, repr=False)
class Results:
    """The first results of some queries by one or more models; a notebook shows them as strips."""

    sheet: Sheet

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """The strips in a frame of their own, so that neither page disturbs the other."""
        rows = sum(len(strip.rows) for strip in self.sheet.strips)
        style = f"width:100%;height:{min(HEAD + FRAME * rows, 900)}px;border:0"
        return f'<iframe sandbox="" style="{style}" srcdoc="{escape(page_of(self.sheet))}"></iframe>'

    def show(self) -> None:
        """Show the strips in a notebook, wherever in a cell; elsewhere write the text to stdout."""
        notebook = sys.modules.get("IPython")
        if notebook is not None and notebook.get_ipython() is not None:
            notebook.display.display(self)
        else:
            sys.stdout.write(self.text() + "\n")

    def write(self, path: str | Path) -> None:
        """Write the strips as .png, .svg, .pdf or .html. Raises UsageError for another suffix."""
        write_strips(self.sheet, Path(path))

    def text(self) -> str:
        """For a person: a line per result, with the mark and the name of its level."""
        levels, shown = self.sheet.levels, []
        width = max(map(len, (*levels, UNRELATED)))
        for strip in self.sheet.strips:
            shown += [f"{strip.query}  ({strip.about})"]
            for row in strip.rows:
                shown += [f"  {row.name}"] * (len(strip.rows) > 1)
                shown += [
                    f"  {hit.rank:3}  {hit.score:6.3f}  {mark_of(hit.level, len(levels))} "
                    f"{level_name(hit.level, levels):{width}}  {hit.item}"
                    for hit in row.hits
                ]
            shown += [""]
        return "\n".join(map(visible, shown)).rstrip("\n")

    def csv(self) -> str:
        """A line per result. A cell that a spreadsheet would take for a formula begins with an apostrophe."""
        rows = [
            (row.name, strip.query, hit.rank, hit.item, hit.score, hit.level, level_name(hit.level, self.sheet.levels))
            for strip in self.sheet.strips
            for row in strip.rows
            for hit in row.hits
        ]
        return lines(COLUMNS, [[str(without_formula(cell)) for cell in row] for row in rows])

    def records(self) -> list[dict[str, Any]]:
        """As plain values: of every query its results by file."""
        rows = []
        for strip in self.sheet.strips:
            results = {row.name: [_record(hit, self.sheet.levels) for hit in row.hits] for row in strip.rows}
            rows.append({"query": strip.query, "about": strip.about, "results": results})
        return rows


def _record(hit: Hit, levels: Sequence[str]) -> dict[str, Any]:
    known = {"rank": hit.rank, "item": hit.item, "score": hit.score, "level": hit.level}
    return known | {"shares": level_name(hit.level, levels)}


def browse(
    files: str | Path | Sequence[str | Path],
    dataset: str | Path | Dataset,
    *,
    test: str | None = None,
    by: str = "H-AP",
    similarity: str | None = None,
    ties: str = "pessimistic",
    k: int = 10,
    queries: Sequence[str] = (),
    class_name: str | None = None,
    worst: int | None = None,
    best: int | None = None,
    severe: int | None = None,
    at_random: int | None = None,
) -> Results:
    """The first k results of some queries by embedding files, the queries chosen by the first file in one of the ways:
    by id, of a class, this many of the `worst` or `best` by a metric, those of the most severe first mistakes, or at random.

    `similarity` and `ties` as for `hbench.evaluate`; by default the dataset's similarity.

    Raises UsageError for several ways at once, UnknownName for names, SubmissionError for files that cannot be ranked.
    """
    paths = [Path(files)] if isinstance(files, str | Path) else list(map(Path, files))
    options = dict(zip(WAYS, (queries, class_name, worst, best, severe, at_random), strict=True))
    way, value = _way({name: value for name, value in options.items() if value})
    data = dataset if isinstance(dataset, Dataset) else load(dataset)
    name = test_of(data, test)
    examined = [examined_embeddings(path, data, by, similarity=similarity, ties=ties) for path in paths]
    manifest = examined[0].data.tests[name]
    measured = None
    if way in MEASURED:
        measured = measure(examined[0].job(name, fix="choose queries by id or at random"))
    chosen = _chosen(manifest, way, value, by=by, measured=measured)
    tops = [
        first_results(manifest, one.submission.embeddings("a strip"), chosen, one.conditions, k) for one in examined
    ]
    strips = []
    for number, query in enumerate(chosen.tolist()):
        rows = [StripRow(file, hits_of(manifest, top, number)) for file, top in zip(_names(paths), tops, strict=True)]
        strip = strip_of(manifest, query, rows)
        if measured is not None:
            strip = strip._replace(about=f"{strip.about} · {by} {percent(measured.values[0][query], 1)}")
        strips.append(strip)
    return Results(Sheet(strips, manifest.tree.levels, examined[0].signature([name]), manifest.picture))


def _way(options: Mapping[str, Any]) -> tuple[str, Any]:
    """The one way that is given to choose queries, and its value; by default some of the worst."""
    if len(options) > 1:
        raise UsageError("choose queries one way", expected=f"one of {', '.join(WAYS)}", found=", ".join(options))
    return next(iter(options.items()), ("worst", SHOWN))


def _chosen(manifest: Manifest, way: str, value: Any, *, by: str, measured: Measurement | None) -> Queries:
    """The queries that are chosen in this way; those of a way in MEASURED by the values of the metric."""
    if measured is None:
        if way == "queries":
            return retrievals.by_id(manifest, value)
        if way == "class_name":
            return retrievals.of_class(manifest, value)[:SHOWN]
        return retrievals.at_random(manifest, value)
    values = goodness(by, measured.values[0])
    if way == "severe":
        return retrievals.most_severe_first(values, measured.first_level)[:value]
    return retrievals.worst_first(-values if way == "best" else values)[:value]


def _names(files: Sequence[Path]) -> list[str]:
    """The names of files; those that share theirs with the folder before it, or a number after it."""
    names = [path.name for path in files]
    longer = [
        f"{path.absolute().parent.name}/{path.name}" if names.count(path.name) > 1 else path.name for path in files
    ]
    return [
        f"{name} ({longer[: at + 1].count(name)})" if longer.count(name) > 1 else name for at, name in enumerate(longer)
    ]
