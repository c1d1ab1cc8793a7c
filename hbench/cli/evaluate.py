"""hbench evaluate: score an embedding or ranking file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hbench.cli import reporting
from hbench.cli.names import FILE, FOLDER
from hbench.cli.table_options import TABLE, loaded
from hbench.cli.terminal import bars, say, show_json


@click.command("evaluate")
@click.argument("file", type=FILE, required=False)
@reporting.with_options(reporting.SETTINGS)
@reporting.with_options(TABLE)
@click.option(
    "--edges", metavar="PARENT,CHILD", help="The columns of a list of edges, for --trees."
)
@click.option(
    "--ids", type=FILE, help="The ids of a .npy or .safetensors file: .txt, .csv or .json."
)
@click.option(
    "--query", type=FILE, help="Embeddings of the queries, where they are in a file of their own."
)
@click.option("--gallery", type=FILE, help="Embeddings of the gallery, likewise.")
@click.option(
    "--leave-out", type=click.Choice(["zero"]), help="Leave out items whose vectors are all zero."
)
@click.option("--check", is_flag=True, help="Only validate the file; every problem is listed.")
@click.option("--method", help="The method's name, for the report and the leaderboard row.")
@reporting.with_options(reporting.FILES)
@click.option(
    "--top-k",
    type=click.IntRange(0, 1000),
    default=0,
    metavar="K",
    help="Keep the first K results of every query next to --out, and its values, for `hbench "
    "report`.",
)
@click.option(
    "--trees",
    metavar="FILES",
    help="Score under other trees of the same classes too: wordnet.csv,wikidata.nwk,shuffled.",
)
@click.option(
    "--nodes",
    type=FILE,
    help="Vectors of nodes of the tree, by name or path: they are the queries.",
)
@click.option(
    "--resume", type=FOLDER, help="Keep finished blocks in this folder; continue from them."
)
@click.option(
    "--blocks",
    metavar="I/N",
    help="Compute this share of the work only, into --resume DIR, which any number of processes "
    "may fill.",
)
@reporting.with_options(reporting.MACHINE)
def command(
    file: Path | None, dataset: str, check: bool, format_: str, as_json: bool, **options: Any
) -> None:
    """Score FILE, embeddings or rankings of a dataset's test items, joined by id.

    \b
    Embeddings: .parquet (file or folder), .npz, .npy + ids, .safetensors + ids, Arrow IPC.
    Rankings:   id,images CSV (Google Landmarks), TREC run, parquet with query,item,score.

    Example: hbench evaluate emb.parquet --dataset sop -o mine.json
    """
    execution = reporting.execution_of(options)
    _refuse_options(options)
    reporting.refuse_missing(
        [file, *(options[name] for name in ("query", "gallery", "ids", "nodes"))]
    )
    data = loaded(dataset, options)
    given = reporting.submitted(
        _queries_file(file, options), options["ids"], options["gallery"], movable=True
    )
    given = reporting.without_zeros(given, options["leave_out"])
    with reporting.read_if_refused(data):
        settings = reporting.settings_of(options)
        checked = reporting.examined(given, data, settings, options["method"])
    if check:
        reporting.show_read(understood.document() for understood in checked.subject.read)
        for doubt in checked.subject.doubts:
            say(f"doubt: {doubt}")
        for warning in checked.warnings:
            say(f"remark: {warning}")
        say(f"{checked.submission.source.file} can be scored on {checked.data.name}")
        if as_json:
            doubts, remarks = map(list, (checked.subject.doubts, checked.warnings))
            show_json({"signature": checked.signature(), "doubts": doubts, "remarks": remarks})
        return

    files = [
        (path, options["ids"]) for path in (file, options["query"], options["gallery"]) if path
    ]
    with execution.open(files, announce=say) as execute, bars("ranking") as on_test:
        if execution.blocks:
            number = execution.keep_blocks(checked, execute, on_test)
            say(
                f"share {execution.blocks}, {number} blocks, is in {execution.resume}; without "
                "--blocks this command reports"
            )
            return
        if options["nodes"]:
            report = reporting.report_by_name(
                checked, options, memory=execution.memory, execute=execute, on_test=on_test
            )
        else:
            report = execution.report(checked, execute, on_test)

    reporting.write_report(report, options)
    reporting.show_report(report.document, "json" if as_json else format_)


APART = ("trees", "top_k", "blocks")  # what goes with items as queries alone


def _refuse_options(options: dict[str, Any]) -> None:
    """Refuse options whose files are missing, and files that could not be written."""
    if options["row"] and not options["method"]:
        raise click.UsageError("--row needs --method, the name of the row.")
    if options["blocks"] and (options["output"] or options["by_query"] or options["row"]):
        raise click.UsageError(
            "--out, --by-query and --row are written by the run that reports, without --blocks."
        )
    if options["nodes"] and (apart := [name for name in APART if options[name]]):
        option = apart[0].replace("_", "-")
        raise click.UsageError(f"--{option} is for items as queries: leave it or --nodes out.")
    if options["top_k"]:
        if not options["output"]:
            raise click.UsageError("--top-k needs --out: the results are kept next to the report.")
        options["by_query"] = options["by_query"] or options["output"].with_suffix(
            reporting.BY_QUERY
        )
    reporting.refuse_unwritable(options)


def _queries_file(file: Path | None, options: dict[str, Any]) -> Path:
    """Return the file, or that of the queries, which needs a gallery."""
    chosen: Path | None = file or options["query"]
    if (
        chosen is None
        or (file and options["query"])
        or (file is None) != (options["gallery"] is not None)
    ):
        raise click.UsageError("Give either one FILE, or --query and --gallery together.")
    return chosen
