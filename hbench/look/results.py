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

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import UsageError, visible
from hbench.core.tables import lines, without_formula
from hbench.datasets import Dataset, load
from hbench.datasets.manifest import Manifest
from hbench.engine.measure import Measurement, measure
from hbench.evaluation.evaluate import Examined
from hbench.look import retrievals
from hbench.look.inputs import examined_embeddings, test_of
from hbench.look.palette import mark_of
from hbench.look.retrievals import UNRELATED, Choose, Hit, level_name, retrieve
from hbench.look.strips import Sheet, Strip, page_of, write_strips

SHOWN = 8
COLUMNS = ("file", "query", "rank", "id", "score", "level", "shares")
WAYS = ("queries", "class_name", "worst", "best", "severe", "at_random")
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
            for name, found in strip.rows:
                shown += [f"  {name}"] * (len(strip.rows) > 1)
                shown += [
                    f"  {hit.rank:3}  {hit.score:6.3f}  {mark_of(hit.level, len(levels))} "
                    f"{level_name(hit.level, levels):{width}}  {hit.item}"
                    for hit in found.hits
                ]
            shown += [""]
        return "\n".join(map(visible, shown)).rstrip("\n")

    def csv(self) -> str:
        """A line per result. A cell that a spreadsheet would take for a formula begins with an apostrophe."""
        rows = [
            (name, strip.query, hit.rank, hit.item, hit.score, hit.level, level_name(hit.level, self.sheet.levels))
            for strip in self.sheet.strips
            for name, results in strip.rows
            for hit in results.hits
        ]
        return lines(COLUMNS, [[str(without_formula(cell)) for cell in row] for row in rows])

    def records(self) -> list[dict[str, Any]]:
        """As plain values: of every query its results by file."""
        return [
            {
                "query": strip.query,
                "about": strip.about,
                "results": {name: [self._record(hit) for hit in found.hits] for name, found in strip.rows},
            }
            for strip in self.sheet.strips
        ]

    def _record(self, hit: Hit) -> dict[str, Any]:
        return {**hit._asdict(), "shares": level_name(hit.level, self.sheet.levels)}


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
    by id, of a class, the `worst` or `best` so many by a metric, those of the most severe first mistakes, or at random.

    `similarity` and `ties` as for `hbench.evaluate`; by default the dataset's similarity.

    Raises UsageError for several ways at once, UnknownName for names, SubmissionError for files that cannot be ranked.
    """
    paths = [Path(files)] if isinstance(files, str | Path) else list(map(Path, files))
    options = dict(zip(WAYS, (queries, class_name, worst, best, severe, at_random), strict=True))
    choose, by_metric = _choice({name: value for name, value in options.items() if value}, by)
    data = dataset if isinstance(dataset, Dataset) else load(dataset)
    name = test_of(data, test)
    examined = [examined_embeddings(path, data, by, similarity=similarity, ties=ties) for path in paths]
    manifest = examined[0].data.tests[name]
    measured = _measured(examined[0], name) if by_metric else None
    asked = choose(manifest, measured)
    values = None if measured is None else measured.values[0][asked]
    strips = _strips(paths, examined, manifest, asked, k=k)
    if values is not None:
        words = [
            f"{strip.about} · {by} {100 * value:.1f}" for strip, value in zip(strips, values.tolist(), strict=True)
        ]
        strips = [strip._replace(about=about) for strip, about in zip(strips, words, strict=True)]
    return Results(Sheet(strips, manifest.tree.levels, examined[0].signature([name]), manifest.picture))


def _choice(given: Mapping[str, Any], by: str) -> tuple[Choose, bool]:
    """How queries are chosen, by the one way that is given, and whether that needs a metric."""
    if len(given) > 1:
        raise UsageError("choose queries one way", expected=f"one of {', '.join(WAYS)}", found=", ".join(given))
    default: tuple[str, Any] = ("worst", SHOWN)
    way, value = next(iter(given.items()), default)
    ways: dict[str, tuple[Choose, bool]] = {
        "queries": (retrievals.by_id(value), False),
        "class_name": (retrievals.of_class(value, SHOWN), False),
        "at_random": (retrievals.at_random(value), False),
        "severe": (retrievals.most_severe(by, value), True),
        "best": (retrievals.by_value(by, value, best=True), True),
        "worst": (retrievals.by_value(by, value, best=False), True),
    }
    return ways[way]


def _measured(examined: Examined, test: str) -> Measurement:
    return measure(examined.job(test, fix="choose queries by id or at random"))


def _names(files: Sequence[Path]) -> list[str]:
    """The names of files; those that share theirs with the folder before it, or a number after it."""
    names = [path.name for path in files]
    longer = [
        f"{path.absolute().parent.name}/{path.name}" if names.count(path.name) > 1 else path.name for path in files
    ]
    return [
        f"{name} ({longer[: at + 1].count(name)})" if longer.count(name) > 1 else name for at, name in enumerate(longer)
    ]


def _strips(
    files: Sequence[Path], examined: Sequence[Examined], manifest: Manifest, asked: NDArray[np.int64], *, k: int
) -> list[Strip]:
    """A strip for each of the queries at these positions: its class, and what every file finds."""
    found = []
    for one in examined:
        found.append(retrieve(manifest, one.submission.embeddings("a strip"), asked, one.conditions, k))
    strips = []
    for number, path in enumerate(manifest.labels[manifest.query][asked].tolist()):
        words = " › ".join(names[node] for names, node in zip(manifest.tree.names, path, strict=True))
        rows = tuple((name, results[number]) for name, results in zip(_names(files), found, strict=True))
        strips.append(Strip(rows[0][1].query, words, rows))
    return strips
