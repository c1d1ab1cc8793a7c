"""Shows what models retrieve: the first results of chosen queries as text, values, CSV, or strips
in a notebook.

`hbench look` calls `browse`; a notebook displays its results.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hbench.core.arguments import checked
from hbench.core.errors import UsageError, visible
from hbench.core.tables import lines, without_formula
from hbench.datasets import Dataset, load
from hbench.datasets.manifest import Manifest
from hbench.evaluation.by_name.nodes import read as read_nodes
from hbench.evaluation.examination import Examined
from hbench.evaluation.measurement import Measurement, measure
from hbench.look.inputs import EmbeddingFile, TwoFiles, examined_files, test_of
from hbench.look.palette import mark_of
from hbench.look.strips import (
    Strip,
    StripRow,
    StripSheet,
    page_of,
    retrievals,
    strip_of,
    write_strips,
)
from hbench.look.strips.by_name import sheet_by_name
from hbench.look.strips.retrievals import (
    SHOWN_RESULTS,
    UNRELATED,
    WAYS,
    Choice,
    Hit,
    Queries,
    first_results,
    hits_of,
    level_name,
    right_of,
)
from hbench.metrics.names import goodness
from hbench.records.shown import shown
from hbench.submissions.embeddings import Embeddings

COLUMNS = ("file", "query", "rank", "id", "score", "level", "shares")
MEASURED = frozenset({"worst", "best", "severe"})  # ways that need a metric
FRAME = 325  # height of a row in a notebook in pixels, with its heading
HEAD = 230  # height of the parts above and below the rows, in pixels


@dataclass(frozen=True, repr=False)
class Results:
    """The first results of some queries by one or more models; a notebook shows them as strips."""

    sheet: StripSheet

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """Return the strips in a frame, which separates them from the page of the notebook."""
        rows = sum(len(strip.rows) for strip in self.sheet.strips)
        style = f"width:100%;height:{HEAD + FRAME * rows}px;border:0"
        return (
            f'<iframe sandbox="" style="{style}" srcdoc="{escape(page_of(self.sheet))}"></iframe>'
        )

    def show(self) -> None:
        """Display the strips in a notebook; elsewhere print the text."""
        # in a notebook IPython has already been imported; elsewhere it need not be installed
        notebook = sys.modules.get("IPython")
        if notebook is not None and notebook.get_ipython() is not None:
            notebook.display.display(self)
        else:
            sys.stdout.write(self.text() + "\n")

    def write(self, path: str | Path) -> None:
        """Write the strips as .png, .svg, .pdf or .html; raises UsageError for another suffix."""
        write_strips(self.sheet, Path(path))

    def text(self) -> str:
        """Return the results as text for a person to read. The line of a result has the mark and
        the name of its level, and its class."""
        levels = self.sheet.levels
        lines = []
        # the names of levels are padded to the longest name
        width = max(map(len, (*levels, UNRELATED)))
        for strip in self.sheet.strips:
            lines += [f"{strip.query}  ({strip.about})"]
            for row in strip.rows:
                if len(strip.rows) > 1:
                    lines.append(f"  {self.sheet.heading(row)}")
                # `row.right` is the first right result, which is shown last if it comes later
                lines += [
                    f"  {hit.rank:3}  {hit.score:6.3f}  {mark_of(hit.level, len(levels))} "
                    f"{level_name(hit.level, levels):{width}}"
                    f"  {hit.name}  "
                    f"{hit.item}{_remark_on(hit, is_right=hit is row.right)}"
                    for hit in row.shown
                ]
            lines += [""]

        return "\n".join(map(visible, lines)).rstrip("\n")

    def csv(self) -> str:
        """Return a CSV with a line for each result. An apostrophe is put before each cell that a
        spreadsheet would take for a formula. The first right result is not in it if it comes after
        the first k results."""
        rows = [
            (
                row.name,
                strip.query,
                hit.rank,
                hit.item,
                hit.score,
                hit.level,
                level_name(hit.level, self.sheet.levels),
            )
            for strip in self.sheet.strips
            for row in strip.rows
            for hit in row.hits
        ]

        return lines(COLUMNS, [list(map(_in_csv, row)) for row in rows])

    def records(self) -> list[dict[str, Any]]:
        """Return the results of every query as plain values, grouped by the file's name, which is
        unique. The first right result is not among them if it comes after the first k results."""
        rows = []
        for strip in self.sheet.strips:
            results: dict[str, list[dict[str, Any]]] = {row.name: [] for row in strip.rows}
            for row in strip.rows:
                for hit in row.hits:
                    known = {
                        "rank": hit.rank,
                        "item": hit.item,
                        "score": hit.score,
                        "level": hit.level,
                    }
                    results[row.name].append(
                        known | {"shares": level_name(hit.level, self.sheet.levels)}
                    )

            # NaN becomes None, since JSON has no NaN; only NaN differs from itself
            values = {row.name: None if row.value != row.value else row.value for row in strip.rows}
            measured = {"by": self.sheet.by, "values": values} if self.sheet.by else {}
            rows.append(
                {"query": strip.query, "about": strip.about, **measured, "results": results}
            )

        return rows


@checked
def browse(
    files: str | Path | TwoFiles | Sequence[str | Path | TwoFiles],
    dataset: str | Path | Dataset,
    *,
    nodes: str | Path | Embeddings | Mapping[str, ArrayLike] | None = None,
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
    """Rank the gallery for some queries by one or more embedding files, and show the first results.

    Queries are chosen in one way: `queries`, `class_name`, `worst`, `best`, `severe` or
    `at_random`; by default, eight of the worst. The first file decides which queries are the worst,
    the best or the most severe.

    Args:
        files: embedding files. If queries and gallery are in two files, pass
            `hbench.look.inputs.TwoFiles(query, gallery)`.
        dataset: a name, a folder, a table, or a Dataset.
        nodes: vectors of nodes of the tree, as in `hbench.evaluate`. The nodes are then the
            queries, and only one embedding file is allowed.
        test: which test. Default: the first.
        by: the metric that orders queries. Default: "H-AP".
        similarity: as in `hbench.evaluate`. Default: the dataset's.
        ties: as in `hbench.evaluate`.
        k: the number of results of each query. Default: 10.
        queries: ids of queries, or names of nodes.
        class_name: show queries of this class, at any level, or the nodes below this node.
        worst: show this many queries with the worst values.
        best: show this many queries with the best values.
        severe: show this many queries whose first results have the lowest levels.
        at_random: show this many queries, chosen at random.

    Returns:
        Results that a notebook displays, with `.text()`, `.csv()`, `.records()` and `.write(path)`.

    Raises:
        UsageError: several ways to choose at once.
        UnknownName: a query, class, metric or test that does not exist.
        SubmissionError: files that cannot be ranked.
    """
    paths = _paths(files, k)  # raises if there is no file, or no result to show
    # WAYS are the names of these arguments
    choice = _choice(
        dict(zip(WAYS, (queries, class_name, worst, best, severe, at_random), strict=True))
    )
    data = dataset if isinstance(dataset, Dataset) else load(dataset)
    test = test_of(data, test)
    k = min(k, len(data.tests[test]))  # no list is longer than the test
    # files are checked for all tests of the dataset, as in an evaluation
    examined = examined_files(paths, data, by, similarity=similarity, ties=ties)
    if nodes is None:
        return _results(test, _names(paths), examined, choice, by=by, k=k)

    return _results_by_name(
        test, _names(paths), examined, choice, vectors=read_nodes(nodes, data.levels), by=by, k=k
    )


def _results_by_name(
    test: str,
    names: Sequence[str],
    examined: Sequence[Examined],
    choice: Choice,
    *,
    vectors: Embeddings,
    by: str,
    k: int,
) -> Results:
    """Show the first results of the chosen nodes of the tree by a single embedding file.

    Args:
        test: the name of the test.
        names: the names of the files.
        examined: the examined files. Raises UsageError if there are several.
        choice: how the nodes to show are chosen.
        vectors: the vectors of nodes.
        by: the metric by which nodes are chosen.
        k: the number of first results.
    """
    if len(examined) > 1:
        raise UsageError("names are shown for one file", found=f"{len(examined)} files")
    data = examined[0].data
    # `sheet_by_name` takes a dataset with a single test
    one = replace(examined[0], data=replace(data, tests={test: data.tests[test]}))
    return Results(sheet_by_name(one, vectors, choice, model=names[0], by=by, k=k))


def _results(
    test: str,
    names: Sequence[str],
    examined: Sequence[Examined],
    choice: Choice,
    *,
    by: str,
    k: int,
) -> Results:
    """Show the first results of the chosen queries of a test by every file.

    Args:
        test: the name of the test.
        names: the names of the files.
        examined: the examined files.
        choice: how the queries to show are chosen.
        by: the metric, which is measured only if the way of choosing needs one.
        k: the number of first results.
    """
    manifest = examined[0].data.tests[test]
    # for each file, the values of `by` and the levels of the first results of all queries; the
    # first model decides which queries are the worst, the best or the most severe
    measured = [_measure_test(one, test) for one in examined] if choice.way in MEASURED else []
    # positions among the queries
    chosen = _choose_queries(manifest, choice, by=by, measured=measured[0] if measured else None)
    # for each file, the first k results of the chosen queries, in the order of these queries; a
    # file that has a ranking is refused, since a strip needs vectors
    tops = [
        first_results(manifest, one.submission.embeddings("a strip"), chosen, one.conditions, k)
        for one in examined
    ]
    # the queries' positions in the manifest; `query` below is a position among the queries
    in_manifest = np.flatnonzero(manifest.query).tolist()

    def row(model: int, place: int, query: int) -> StripRow:
        """Make the row of a query by a model, with its first k results (`hits`) and, if it comes
        later, the first right one (`right`). `place` is the query's row in the model's lists, which
        have only the chosen queries; `query` is its position among all queries."""
        return StripRow(
            name=names[model],
            hits=hits_of(manifest, tops[model], place, in_manifest[query]),
            number=model,
            right=right_of(manifest, tops[model], place, in_manifest[query], shown=k),
        )

    strips = []
    for number, query in enumerate(chosen.tolist()):
        rows = [row(model, number, query) for model in range(len(names))]
        strips.append(_with_values(strip_of(manifest, query, rows), query, by, measured))

    signature = examined[0].signature([test])
    return Results(
        StripSheet(
            strips=strips,
            levels=manifest.tree.levels,
            caption=signature,
            picture=manifest.picture,
            by=by if measured else "",
        )
    )


def _in_csv(cell: Any) -> str:
    """Return a cell as text that no spreadsheet takes for a formula."""
    return str(without_formula(cell))


def _remark_on(hit: Hit, *, is_right: bool) -> str:
    """Return what is special about a result, in brackets."""
    remarks = ""
    if hit.copy:
        remarks += "  (a copy)"
    if is_right:
        remarks += "  (the first right one)"
    return remarks


def _with_values(strip: Strip, query: int, by: str, measured: Sequence[Measurement]) -> Strip:
    """Add every model's value of a query to the strip, if values were measured. The value of a
    single model is written into the strip's heading."""
    if not measured:
        return strip
    values = [float(each.values[0][query]) for each in measured]  # only `by` was measured
    rows = [row._replace(value=value) for row, value in zip(strip.rows, values, strict=True)]
    about = strip.about
    if len(rows) == 1:
        about += f" · {by} {shown(by, values[0], 1)}"  # one decimal
    return strip._replace(rows=rows, about=about)


def _measure_test(examined: Examined, test: str) -> Measurement:
    """Measure a model's values on a test; raises UsageError if the test has no ranking to
    measure."""
    return measure(examined.job(test, fix="choose queries by id or at random"))


def _paths(
    files: str | Path | TwoFiles | Sequence[str | Path | TwoFiles], k: int
) -> list[EmbeddingFile]:
    """Return the paths of one model's file or of several models' files.

    Raises UsageError if there is no file, or if `k` allows no result.
    """
    given = [files] if isinstance(files, str | Path | TwoFiles) else files
    if not isinstance(given, list | tuple) or not all(
        isinstance(file, str | Path | TwoFiles) for file in given
    ):
        raise UsageError(
            "files must be an embedding file, or a list of them", found=type(files).__name__
        )
    paths = [
        TwoFiles(*map(Path, file)) if isinstance(file, TwoFiles) else Path(file) for file in given
    ]
    if not paths or k < 1:
        raise UsageError(
            "there is nothing to show",
            expected="a file, and k ≥ 1",
            found=f"{len(paths)} files, k = {k}",
        )
    return paths


def _choice(options: dict[str, Any]) -> Choice:
    """Return how queries are chosen: one of WAYS with its value; by default some of the worst.

    `options` has the argument for every way. An empty argument, such as 0, None or (), counts as
    not given.
    """
    given = {name: value for name, value in options.items() if value}
    if low := [name for name, value in given.items() if isinstance(value, int) and value < 0]:
        raise UsageError("a number of queries is 1 or more", found=f"{low[0]} = {given[low[0]]}")
    if len(given) > 1:
        raise UsageError(
            "choose queries one way", expected=f"one of {', '.join(WAYS)}", found=", ".join(given)
        )
    return Choice(*next(iter(given.items()), ("worst", SHOWN_RESULTS)))


def _choose_queries(
    manifest: Manifest, choice: Choice, *, by: str, measured: Measurement | None
) -> Queries:
    """Choose queries. The result has positions among the queries.

    Args:
        manifest: the items of the test.
        choice: the way and its value: ids for "queries", a name for "class_name", else the number
            of queries.
        by: the metric that was measured, the only one.
        measured: the values of `by` and the levels of the first results; None for a way that is not
            in MEASURED.
    """
    way, value = choice
    if measured is None:
        if way == "queries":
            return retrievals.by_id(manifest, value)
        if way == "class_name":
            # SHOWN_RESULTS is also the default number of queries
            return retrievals.of_class(manifest, value)[:SHOWN_RESULTS]
        return retrievals.at_random(manifest, value)
    # (Q,): higher is better
    values = goodness(by, measured.values[0])
    if way == "severe":
        return retrievals.most_severe_first(values, measured.first_level)[:value]
    sorted_ = retrievals.worst_first(-values if way == "best" else values)
    # queries whose label ends early come last: low values are no fault of the model there
    return retrievals.known_first(manifest, sorted_)[:value]


def _names(files: Sequence[EmbeddingFile]) -> list[str]:
    """Name the files. If several files have the same name, the name of the folder is put in front,
    and if that does not help, a number is put behind."""
    times = Counter(file.name for file in files)
    names = []
    for file in files:
        one = file.query if isinstance(file, TwoFiles) else file
        folder = one.absolute().parent.name
        names.append(f"{folder}/{file.name}" if times[file.name] > 1 else file.name)

    # files of the same name in folders of the same name get numbers
    numbered = []
    for at, name in enumerate(names, start=1):
        number = names[:at].count(name)
        numbered.append(f"{name} ({number})" if names.count(name) > 1 else name)
    return numbered
