"""hbench name: give items a path in the label tree, as deep as it can be trusted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli import reporting
from hbench.cli.names import FILE
from hbench.cli.table_options import TABLE, loaded
from hbench.cli.terminal import say, show, show_json, show_table

if TYPE_CHECKING:
    from hbench.evaluation.by_name.compared import NamesCompared
    from hbench.evaluation.by_name.named import NamedPictures
    from hbench.evaluation.by_name.trusted import Trusted

WRITTEN = (".csv", ".tsv", ".parquet")


def _refuse_outputs(output: Path | None, page: Path | None) -> None:
    """Refuse a table or a page in a format that is not written, or where it cannot be."""
    from hbench.core.files import refuse_unwritable

    if page is not None and page.suffix != ".html":
        raise click.UsageError(f"{page} is no page: end its name in .html.")
    if output is not None and output.suffix.lower() not in WRITTEN:
        raise click.UsageError(f"{output} is no table: end its name in {', '.join(WRITTEN)}.")
    for path in (output, page):
        if path is not None:
            refuse_unwritable(path)


@click.command("name", short_help="give items a path in the tree, as deep as can be trusted")
@click.argument("file", type=FILE)
@click.option("--dataset", "-d", required=True, help="A dataset's name, folder or table.")
@click.option("--nodes", type=FILE, help="Vectors of nodes, by name or path.")
@click.option("--gallery", type=FILE, help="Vectors of items with labels: name by neighbours.")
@click.option("--ids", type=FILE, help="The ids of a .npy or .safetensors file.")
@reporting.with_options(TABLE)
@click.option(
    "--scale", type=float, default=100.0, show_default=True, help="Of the cosines in sum."
)
@click.option("--k", type=int, default=10, show_default=True, help="Neighbours that have a share.")
@click.option("--trust", type=float, help="Answer as deep as this share is right, such as .95.")
@click.option("--calibrate", help="A file of ids, or a share of classes, to set it on.")
@click.option("--against", type=FILE, help="A table of predictions to compare with, paired.")
@click.option("--unit", help="What intervals go by: a level, or query.  [default: the finest]")
@click.option("--out", "-o", "output", type=FILE, help="Write the names: .csv, .tsv or .parquet.")
@click.option("--page", type=FILE, help="Write a page with confusions at every level: .html.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(
    file: Path, dataset: str, *, output: Path | None, as_json: bool, **options: Any
) -> None:
    """Give every item of FILE a path in the dataset's tree: by vectors of names, by neighbours, or,
    without both, as FILE has it, a table of predictions.

    Three readers of names: each (the best node of every level), sum (softmax of the finest, summed
    upwards) and down (from the root, the best child each time).

    Example: hbench name images.parquet -d birds --gallery images.parquet --trust .95 -o answers.csv
    """
    from hbench.evaluation.by_name.sources import name

    page = options["page"]
    _refuse_outputs(output, page)
    if options["calibrate"] and options["trust"] is None:
        raise click.UsageError("--calibrate sets the threshold of --trust: give both.")
    data = loaded(dataset, options)
    given = _read(file, options)
    named = name(
        given,
        data,
        options["nodes"],
        gallery=options["gallery"],
        scale=options["scale"],
        k=options["k"],
        unit=options["unit"],
    )
    for warning in named.warnings:
        say(f"note: {warning}")
    trusted = _trusted(named, options)
    against = _against(named, data, options)
    if page is not None:
        from hbench.look.naming import write_page

        write_page(named, page, trusted)
        say(f"wrote {page}")
    if output is not None:
        written = named if trusted is None else trusted
        written.write(output)
        say(f"wrote {output}")
    if as_json:
        beside = {} if against is None else {"against": against.document()}
        show_json(_document(named, trusted) | beside)
        return
    _show(named, trusted)
    if against is not None:
        _show_differences(against, file, options["against"])


def _read(file: Path, options: dict[str, Any]) -> Any:
    """The vectors of the items; a table of predictions is read by its form."""
    if options["nodes"] is None and options["gallery"] is None:
        return file
    from hbench.submissions import embeddings

    return embeddings.read(file, ids=options["ids"])


def _trusted(named: NamedPictures, options: dict[str, Any]) -> Trusted | None:
    """The answers at the threshold of --trust; None without it."""
    if options["trust"] is None:
        return None
    calibrate = options["calibrate"]
    if calibrate is None:
        return named.trust(options["trust"], unit=options["unit"])
    if Path(calibrate).is_file():
        from hbench.sheets.sheet import read_table

        table = read_table(Path(calibrate))
        chosen: Any = [str(item) for item in table[table.column_names[0]].to_pylist()]
    else:
        try:
            share = float(calibrate)
        except ValueError:
            share = 0.0
        if not 0 < share < 1:
            raise click.UsageError(
                f"--calibrate {calibrate} is neither a file of ids nor a share of the classes, "
                "such as .5."
            )
        chosen = named.part(share, unit=options["unit"])
    return named.trust(options["trust"], chosen, unit=options["unit"])


def _against(named: NamedPictures, data: Any, options: dict[str, Any]) -> NamesCompared | None:
    """The differences to the predictions of --against; None without them."""
    if options["against"] is None:
        return None
    from hbench.evaluation.by_name.sources import name

    other = name(options["against"], data, unit=options["unit"])
    for warning in other.warnings:
        say(f"note: {options['against']}: {warning}")
    return named.against(other)


def _document(named: NamedPictures, trusted: Trusted | None) -> dict[str, Any]:
    """What --json shows."""
    scores = {}
    for reader, of_reader in named.scores.items():
        scores[reader] = {value: score.model_dump() for value, score in of_reader.items()}
    reliability = {}
    for level, bins in named.reliability().items():
        reliability[level] = [
            [each.low, each.items, each.mass, each.right] for each in bins if each.items
        ]
    document = {"signature": named.signature, "scores": scores, "reliability": reliability}
    return document if trusted is None else {**document, "trust": trusted.document()}


def _show(named: NamedPictures, trusted: Trusted | None) -> None:
    """The tables: what is promised, scores, reliability."""
    show(named.remark)
    if trusted is not None:
        show(trusted.remark)
        show_table("answers, percent", *_answers(named, trusted))
    readers = list(named.scores)
    rows = []
    for value in named.scores[readers[0]]:
        scores = [named.scores[reader][value] for reader in readers]
        rows.append([value, *(_shown(value, score.value) for score in scores)])
    show_table("names, percent; hops: edges", ["value", *readers], rows)
    show_table("mass, and what is right of it, percent", *_reliability(named))
    show(named.signature)


def _show_differences(against: NamesCompared, file: Path, other: Path) -> None:
    """The table of the paired differences."""
    from hbench.evaluation.by_name.compared import HEADER
    from hbench.records.queries import units_in_words

    units = max(each.units for each in against)
    show_table(
        f"{file.stem} − {other.stem}, percent; hops: edges",
        ["value", "first", "second", *HEADER],
        against.rows(),
        f"over {units_in_words(against.unit, units)}; p: two-sided paired sign-flip test; "
        f"corrected: by Holm's method for all {len(against.differences)} values",
    )


def _answers(named: NamedPictures, trusted: Trusted) -> tuple[list[str], list[list[str]]]:
    """The answers at the threshold, and beside them those of the thresholds in use."""
    header = ["thresholds", "said", "right of it", "coverage"]
    header += [f"at {level}" for level in named.manifest.levels]
    rows = []
    kinds = {f"for {trusted.target:g}": trusted.outcome, ".8/.6/.4": trusted.fixed}
    for kind, outcome in kinds.items():
        shares = [outcome.said, outcome.right_of_said, outcome.coverage]
        by_level = [f"{each.items:,} ({_percent(each.right)})" for each in outcome.by_level]
        rows.append([kind, *map(_percent, shares), *by_level])
    return header, rows


def _reliability(named: NamedPictures) -> tuple[list[str], list[list[str]]]:
    """Masses in ten bins, and beside them, for every level, items and the share right."""
    by_level = named.reliability()
    rows = []
    for bins in zip(*by_level.values(), strict=True):
        cells = [f"{each.items:,} ({_percent(each.right)})" if each.items else "–" for each in bins]
        rows.append([f"{bins[0].low:.1f} … {bins[0].high:.1f}", *cells])
    return ["mass", *by_level], rows


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.1f}"


def _shown(value: str, mean: float | None) -> str:
    """A mean as people read it: hops as they are, the rest in percent."""
    if mean is None:
        return "–"
    return f"{mean:.2f}" if value == "hops" else f"{100 * mean:.2f}"
