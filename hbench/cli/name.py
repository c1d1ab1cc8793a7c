"""hbench name: give pictures a path in the label tree, by the vectors of names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hbench.cli import reporting
from hbench.cli.names import FILE
from hbench.cli.table_options import TABLE, loaded
from hbench.cli.terminal import say, show, show_json, show_table

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


@click.command("name", short_help="give pictures a path in the tree, by vectors of names")
@click.argument("file", type=FILE)
@click.option("--dataset", "-d", required=True, help="A dataset's name, folder or table.")
@click.option("--nodes", type=FILE, required=True, help="Vectors of nodes, by name or path.")
@click.option("--ids", type=FILE, help="The ids of a .npy or .safetensors file.")
@reporting.with_options(TABLE)
@click.option(
    "--scale", type=float, default=100.0, show_default=True, help="Of the cosines in sum."
)
@click.option("--unit", help="What intervals go by: a level, or query.  [default: the finest]")
@click.option("--out", "-o", "output", type=FILE, help="Write the names: .csv, .tsv or .parquet.")
@click.option("--page", type=FILE, help="Write a page with confusions at every level: .html.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(
    file: Path, dataset: str, *, nodes: Path, output: Path | None, as_json: bool, **options: Any
) -> None:
    """Give every picture of FILE, embeddings of a test's queries, a path in the dataset's tree.

    Three readers: each (the best node of every level), sum (softmax of the finest, summed upwards)
    and down (from the root, the best child each time).

    Example: hbench name images.parquet -d birds --nodes names.parquet -o names.csv
    """
    from hbench.evaluation.by_name.named import name
    from hbench.submissions import embeddings

    page = options["page"]
    _refuse_outputs(output, page)
    data = loaded(dataset, options)
    pictures = embeddings.read(file, ids=options["ids"])
    named = name(pictures, data, nodes, scale=options["scale"], unit=options["unit"])
    for warning in named.warnings:
        say(f"note: {warning}")
    if page is not None:
        from hbench.look.naming import write_page

        write_page(named, page)
        say(f"wrote {page}")
    if output is not None:
        named.write(output)
        say(f"wrote {output}")
    if as_json:
        document = {}
        for reader, of_reader in named.scores.items():
            document[reader] = {value: score.model_dump() for value, score in of_reader.items()}
        show_json({"signature": named.signature, "scores": document})
        return

    readers = list(named.scores)
    rows = []
    for value in named.scores[readers[0]]:
        scores = [named.scores[reader][value] for reader in readers]
        rows.append([value, *(_shown(value, score.value) for score in scores)])
    show_table("names, percent; hops: edges", ["value", *readers], rows)
    show(named.signature)


def _shown(value: str, mean: float | None) -> str:
    """A mean as people read it: hops as they are, the rest in percent."""
    if mean is None:
        return "–"
    return f"{mean:.2f}" if value == "hops" else f"{100 * mean:.2f}"
