"""hbench report: a folder of pages that shows one evaluation, or compares several."""

from pathlib import Path

import click

from hbench.cli.names import DATASET, FILE
from hbench.cli.option_blocks import with_options
from hbench.cli.table_options import TABLE, TableOptions
from hbench.cli.terminal import bar, say, show
from hbench.cli.two_files import OPTIONS, pairs_of


@click.command("report")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="RUN.json [OTHER.json]...")
@click.option(
    "--out",
    "-o",
    type=FILE,
    required=True,
    help="The folder to make; a former report in it is replaced.",
)
@click.option(
    "--embeddings",
    multiple=True,
    type=FILE,
    help="A scored file: adds its curve, and results not kept.",
)
@with_options(OPTIONS)
@click.option(
    "--dataset",
    "-d",
    type=DATASET,
    help="The dataset's folder or table, where its name does not find it.",
)
@TABLE
@click.option("--test", help="Which test, where a dataset has several.  [default: the first]")
@click.option("--by", metavar="METRIC", help="Ranks queries and classes.  [default: H-AP]")
@click.option(
    "-k",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Results by --embeddings.",
)
@click.option(
    "--pictures",
    type=click.IntRange(0),
    default=12_000,
    show_default=True,
    metavar="N",
    help="Draw the pictures of all items if there are at most N, for the explorer; else only of "
    "the queries and results on the pages.",
)
def command(
    files: tuple[Path, ...],
    out: Path,
    *,
    embeddings: tuple[Path, ...],
    query: tuple[Path, ...],
    gallery: tuple[Path, ...],
    dataset: str | None,
    table: TableOptions,
    test: str | None,
    by: str | None,
    k: int,
    pictures: int,
) -> None:
    """Make a folder of static pages of RUN.json: scores, mistakes, classes, queries, and an
    explorer; of several runs the differences, too.

    A report by name (hbench evaluate --nodes) beside it adds a page of names.

    Files next to a report are used: RUN.by-query.parquet and RUN.top-k.parquet (hbench evaluate
    --top-k 20 -o RUN.json). Open DIR/index.html; no server is needed, and nothing is loaded from
    elsewhere.

    Example: hbench report mine.json baseline.json -o pages
    """
    from hbench.look.inputs import EmbeddingFile
    from hbench.look.pages.folder import refuse_folder
    from hbench.look.report.folder import write_report
    from hbench.look.report.runs import read_runs, with_embeddings

    refuse_folder(out, "report")
    # Without options for the table, only its name or path is handed on: `read_runs` loads it with
    # the options that the report states
    data = table.load_if_named(dataset) if table.is_said else dataset
    reported = read_runs(files, dataset=data, test=test, by=by)
    scored: list[EmbeddingFile] = [*embeddings, *pairs_of(query, gallery)]
    if scored:
        with bar("ranking") as on_block:
            reported = with_embeddings(reported, scored, k, on_block)
    for note in reported.missing():
        say(f"note: {note}")
    with bar("writing pages"):
        page = write_report(reported, out, pictures=pictures)
    say("open this page:")
    show(str(page))
