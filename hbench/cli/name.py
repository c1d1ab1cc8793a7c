"""hbench name: give items a path in the label tree, as deep as it can be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli.names import FILE, OUT_FILE
from hbench.cli.option_blocks import block
from hbench.cli.table_options import TABLE, TableOptions
from hbench.cli.terminal import say, show, show_json, show_table

if TYPE_CHECKING:
    from hbench.datasets import Dataset
    from hbench.evaluation.by_name.asked import Calibration, Named
    from hbench.evaluation.by_name.compared import NamesCompared
    from hbench.evaluation.by_name.named import NamedPictures
    from hbench.evaluation.by_name.trusted import Trusted

WRITTEN = (".csv", ".tsv", ".parquet")


def _refuse_outputs(output: Path | None, page: Path | None) -> None:
    """Raise UsageError, before anything is read, if the table (`output`) or the `page` has an
    unknown format or cannot be written. None: not requested."""
    from hbench.core.files import refuse_unwritable

    if page is not None and page.suffix.lower() != ".html":
        raise click.UsageError(f"{page} is no page: end its name in .html.")
    if output is not None and output.suffix.lower() not in WRITTEN:
        raise click.UsageError(f"{output} is no table: end its name in {', '.join(WRITTEN)}.")
    for path in (output, page):
        if path is not None:
            refuse_unwritable(path)


@dataclass(frozen=True)
class NamingOptions:
    """The options of the source of names: vectors of nodes, labelled items, or FILE itself."""

    nodes: Path | None
    gallery: Path | None
    ids: Path | None
    scale: float
    k: int

    def read(self, file: Path, data: Dataset) -> Named:
        """Read FILE. It has the vectors of the items if --nodes (vectors of nodes) or --gallery
        (labelled items) is given as the source of names. Else FILE has the names: it is a table of
        predictions for the dataset's only test."""
        from hbench.evaluation.by_name.asked import test_of
        from hbench.evaluation.by_name.predicted import predictions_in
        from hbench.submissions import embeddings

        if self.nodes is None and self.gallery is None:
            return predictions_in(file, test_of(data))
        return embeddings.read(file, ids=self.ids)

    def named(
        self, given: Named, data: Dataset, unit: str | None, items: list[str] | None = None
    ) -> NamedPictures:
        """Name items by the vectors or predictions in `given`, and by the options: `nodes` or
        `gallery`, the file of the vectors of nodes or of labelled items; `scale`, a factor of
        cosines; and `k`, the number of neighbours that have a share. `items`: the ids of the items;
        None: the test's queries. `unit`: what intervals are taken over, a level or "query"; None:
        the finest level.
        """
        from hbench.evaluation.by_name.sources import name

        return name(
            given,
            data,
            self.nodes,
            gallery=self.gallery,
            scale=self.scale,
            k=self.k,
            unit=unit,
            items=items,
        )


SOURCE = block(
    "source",
    NamingOptions,
    [
        click.option("--nodes", type=FILE, help="Vectors of nodes, by name or path."),
        click.option(
            "--gallery", type=FILE, help="Vectors of items with labels: name by neighbours."
        ),
        click.option("--ids", type=FILE, help="The ids of a .npy or .safetensors file."),
        click.option(
            "--scale", type=float, default=100.0, show_default=True, help="Of the cosines in sum."
        ),
        click.option(
            "--k", type=int, default=10, show_default=True, help="Neighbours that have a share."
        ),
    ],
)


@dataclass(frozen=True)
class PromiseOptions:
    """The options of a promise: the share of answers that should be right, and the items on which
    the threshold is set."""

    trust: float | None
    calibrate: str | None

    def refuse_alone(self) -> None:
        """Raise click's UsageError if options for a threshold are given without a promise."""
        if self.calibrate and self.trust is None:
            raise click.UsageError("--calibrate sets the threshold of --trust: give both.")

    def calibration(self, data: Dataset, given: Named, source: NamingOptions) -> Calibration:
        """Return what the threshold is set on, as --calibrate says: a share of the classes (float),
        ids of named items (list), or other items (`Others`). Without --calibrate None: the
        threshold is set on one half of the classes and tested on the other, and vice versa.

        The vectors of a split's items are looked up in `given`, and then in the file of the
        gallery, which may hold the training split. `source` are the options for reading files.
        """
        from hbench.evaluation.by_name.asked import read_calibration
        from hbench.submissions import embeddings

        sources = [given]
        if source.gallery is not None and self.calibrate is not None:
            sources.append(embeddings.read(source.gallery))
        # --calibrate may also name a file of other items, which is read like the file of `given`
        return read_calibration(self.calibrate, data, sources, lambda file: source.read(file, data))

    def items(self, on: Calibration, data: Dataset, given: Named) -> list[str] | None:
        """Return the items to name; None for the test's queries. With a promise, new items are
        named as well."""
        from hbench.evaluation.by_name.asked import ids_of, items_answered

        return None if self.trust is None else items_answered(on, data, ids_of(given))

    def answers(
        self, named: NamedPictures, data: Dataset, on: Calibration, source: NamingOptions
    ) -> Trusted | None:
        """Return the answers at the promise's threshold; None without a promise.

        `on`: what the threshold is set on, as `calibration` returns it: a share of the classes, ids
        of named items, other items (`Others`), or None for halves of the classes. `self.trust`: the
        share of answers that should be right. `source`: the options by which other items are named
        first.
        """
        from hbench.evaluation.by_name.asked import Others, refuse_labels

        if self.trust is None:
            return None
        unit = named.unit
        if isinstance(on, float):
            # `part`: which items belong to this share of the classes, bool (N,)
            return named.trust(self.trust, named.part(on))
        if not isinstance(on, Others):
            return named.trust(self.trust, on)
        others = source.named(on.given, data, unit, on.items)
        refuse_labels(others, on.source)  # predictions that are the labels themselves prove nothing
        say(f"note: {on.remark}")
        return named.trust(self.trust, others)


PROMISE = block(
    "promise",
    PromiseOptions,
    [
        click.option(
            "--trust", type=float, help="Answer as deep as this share is right, such as .95."
        ),
        click.option(
            "--calibrate",
            metavar="FILE|SPLIT|SHARE",
            help="What to set it on: a file as FILE, of labelled items; a file of ids; a split, "
            "such as train; or a share of the classes.  [default: halves of them]",
        ),
    ],
)


@click.command("name", short_help="give items a path in the tree, as deep as can be trusted")
@click.argument("file", type=FILE)
@click.option("--dataset", "-d", required=True, help="A dataset's name, folder or table.")
@SOURCE
@TABLE
@PROMISE
@click.option("--against", type=FILE, help="A table of predictions to compare with, paired.")
@click.option("--unit", help="What intervals go by: a level, or query.  [default: the finest]")
@click.option(
    "--out", "-o", "output", type=OUT_FILE, help="Write the names: .csv, .tsv or .parquet."
)
@click.option("--page", type=OUT_FILE, help="Write a page with confusions at every level: .html.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(
    file: Path,
    dataset: str,
    *,
    source: NamingOptions,
    table: TableOptions,
    promise: PromiseOptions,
    against: Path | None,
    unit: str | None,
    output: Path | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Give every item of FILE a path in the dataset's tree: by vectors of names, by neighbours, or,
    without both, as FILE has it, a table of predictions.

    Three readers of names: each (the best node of every level), sum (softmax of the finest, summed
    upwards) and down (from the root, the best child each time).

    New items, of which the dataset has no label, get answers by a threshold set on others:

    Example: hbench name new.csv -d labels.csv --trust .95 --calibrate known.csv -o answers.csv
    """
    _refuse_outputs(output, page)
    promise.refuse_alone()  # --calibrate without --trust
    # The calibration, on which the threshold is set, is read before anything is named, since the
    # items to be named depend on it (`items_answered`).
    data = table.load(dataset)
    given = source.read(file, data)
    calibration = promise.calibration(data, given, source)
    named = source.named(given, data, unit, promise.items(calibration, data, given))
    for warning in named.warnings:
        say(f"note: {warning}")
    # the answers; None without a promise
    trusted = promise.answers(named, data, calibration, source)
    compared = None if against is None else _compare_with_predictions(named, data, against, unit)
    if page is not None:
        from hbench.look.naming import write_page

        write_page(named, page, trusted)
        say(f"wrote {page}")
    if output is not None:
        # with a promise write the answers, and not the whole paths
        written = named if trusted is None else trusted
        written.write(output)
        say(f"wrote {output}")
    if as_json:
        beside = {} if compared is None else {"against": compared.document()}
        show_json(_json_document(named, trusted) | beside)
        return
    _show_names(named, trusted)
    if compared is not None and against is not None:
        _show_differences(compared, file, against)


def _compare_with_predictions(
    named: NamedPictures, data: Dataset, against: Path, unit: str | None
) -> NamesCompared:
    """Compare names with the predictions in the table `against`, item by item, and return the
    paired differences. `unit`: what intervals are taken over, a level or "query"; None: the
    default of `name`."""
    from hbench.evaluation.by_name.sources import name

    other = name(against, data, unit=unit)
    for warning in other.warnings:
        say(f"note: {against}: {warning}")
    return named.against(other)


def _json_document(named: NamedPictures, trusted: Trusted | None) -> dict[str, Any]:
    """Make the document for --json: the scores, {reader: {what is measured: score}}; the
    reliability of masses (shares of the probability), {level: bins}; and, with --trust, the answers
    of which a share is promised to be right (`trusted`). A bin is [lower end, items, mean mass,
    share right]; bins without items are left out."""
    scores = {}
    for reader, of_reader in named.scores.items():
        scores[reader] = {measure: score.model_dump() for measure, score in of_reader.items()}
    reliability = {}
    for level, bins in named.reliability().items():
        reliability[level] = [
            [each.low, each.items, each.mass, each.right] for each in bins if each.items
        ]
    document = {"signature": named.signature, "scores": scores, "reliability": reliability}
    return document if trusted is None else {**document, "trust": trusted.document()}


def _show_names(named: NamedPictures, trusted: Trusted | None) -> None:
    """Print the tables of named items: the answers, if a share of right answers is promised
    (`trusted`), and, if true labels are known, the scores of each reader, and how often names with
    a given mass (share of the probability) are right. A reader is a way to choose a name by the
    similarities."""
    show(named.remark)
    if trusted is not None:
        show(trusted.remark)
        show_table("answers, percent", *_answers(named, trusted))
    if named.has_truth.any():  # of new items nobody knows what is right
        # all values are in percent, except hops, which are counted in edges
        show_table("names, percent; hops: edges", *_scores(named))
        show_table("mass, and what is right of it, percent", *_reliability(named))
    show(named.signature)


def _show_differences(against: NamesCompared, file: Path, other: Path) -> None:
    """Print the table of the paired differences (`against`) between the names of `file` and of
    `other`."""
    from hbench.evaluation.by_name.compared import HEADER
    from hbench.records.queries import units_in_words

    # values differ in their numbers of items and units: an item, or a whole unit, may lack a value
    units = max(each.units for each in against)
    # all values are in percent, except hops, which are counted in edges
    show_table(
        f"{file.stem} − {other.stem}, percent; hops: edges",
        ["value", "first", "second", *HEADER],
        against.rows(),
        f"over {units_in_words(against.unit, units)}; p: two-sided paired sign-flip test; "
        f"corrected: by Holm's method for all {len(against.differences)} values",
    )


def _answers(named: NamedPictures, trusted: Trusted) -> tuple[list[str], list[list[str]]]:
    """Make the table of answers, as header and rows. Its rows are the answers at the promise's
    threshold and, where they can be measured, at the common fixed thresholds (.8, .6 and .4); items
    without a label have a row of their own. Its columns are the share of items that are answered
    (said), the share of these answers that is right, the coverage (how much of the tree the answers
    rule out, 1 for a leaf), and for each level the number of its answers and the share right."""
    header = ["thresholds", "said", "right of it", "coverage"]
    header += [f"at {level}" for level in named.manifest.levels]
    kinds = {}
    if trusted.is_measured:
        kinds = {f"for {trusted.target:g}": trusted.outcome, ".8/.6/.4": trusted.fixed}
    if trusted.unlabelled is not None:
        kinds[f"for {trusted.target:g}, without label"] = trusted.unlabelled
    rows = []
    for kind, outcome in kinds.items():
        shares = [outcome.said, outcome.right_of_said, outcome.coverage]
        by_level = [f"{each.items:,} ({_percent(each.right)})" for each in outcome.by_level]
        rows.append([kind, *map(_percent, shares), *by_level])
    return header, rows


def _scores(named: NamedPictures) -> tuple[list[str], list[list[str]]]:
    """Make the table of values by every reader (each, sum, down), as header and rows."""
    readers = list(named.scores)
    rows = []
    for value in named.scores[readers[0]]:
        scores = [named.scores[reader][value] for reader in readers]
        rows.append([value, *(_shown(value, score.value) for score in scores)])
    return ["value", *readers], rows


def _reliability(named: NamedPictures) -> tuple[list[str], list[list[str]]]:
    """Make the table of how often masses are right, as header and rows: for ten bins of the mass,
    from 0 to 1, and every level, the number of items in the bin and the share that is right. For a
    calibrated net this share equals the mass."""
    by_level = named.reliability()
    rows = []
    for bins in zip(*by_level.values(), strict=True):
        cells = [f"{each.items:,} ({_percent(each.right)})" if each.items else "–" for each in bins]
        rows.append([f"{bins[0].low:.1f} … {bins[0].high:.1f}", *cells])
    return ["mass", *by_level], rows


def _percent(value: float) -> str:
    """Format a share in percent; a dash if it is undefined."""
    return "–" if math.isnan(value) else f"{100 * value:.1f}"


def _shown(value: str, mean: float | None) -> str:
    """Format a mean for people: in percent, except for hops."""
    if mean is None:
        return "–"
    return f"{mean:.2f}" if value == "hops" else f"{100 * mean:.2f}"
