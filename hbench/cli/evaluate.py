"""hbench evaluate: score an embedding or ranking file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli.names import DATASET, METRICS, PROTOCOL, SIMILARITY, TIES
from hbench.cli.terminal import progress, say, show, show_json, show_table

if TYPE_CHECKING:
    from hbench.datasets import Dataset
    from hbench.engine.job import Execute
    from hbench.evaluation.leaderboard import Leaderboard
    from hbench.evaluation.measurement import Examined, OnTest, Submission
    from hbench.evaluation.reports.many import ModelStanding
    from hbench.evaluation.reports.report import Document, Report
    from hbench.evaluation.reports.trees import OtherTree

FILE = click.Path(path_type=Path)
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def size(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """A number of bytes, as 500M or 2G."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", value.strip(), re.IGNORECASE)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a size; write it as 500M or 2G")
    return int(float(match[1]) * UNITS[match[2].upper()])


OPTIONS = [
    click.option("--threads", type=click.IntRange(min=1), help="Threads that rank.  [default: all processors]"),
    click.option(
        "--max-memory",
        metavar="SIZE",
        callback=size,
        help="Hold no more beyond the embeddings, as 500M.  [default: 300M]",
    ),
    click.option(
        "--resume",
        type=click.Path(path_type=Path, file_okay=False),
        help="Keep finished blocks in this folder; go on from them.",
    ),
    click.option("--shard", help="Compute part i/n only and write it to --out; `hbench merge` joins the parts."),
    click.option("--workers", type=click.IntRange(min=1), help="Rank in so many processes (needs the extra `cluster`)."),
    click.option("--device", help="Rank on a GPU: cuda, cuda:1.  [default: the processors]"),
    click.option("--scheduler", help="Rank on a dask cluster, as tcp://HOST:PORT (needs the extra `cluster`)."),
]  # fmt: skip


def execution_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command these options."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@contextmanager
def executor(chosen: dict[str, Any], files: list[tuple[Path, Path | None]]) -> Iterator[Execute]:
    """Who computes the blocks, by the options; a cluster reads the files for itself."""
    from hbench.engine.executors.kept_blocks import kept_in
    from hbench.engine.executors.threads import on_threads
    from hbench.evaluation import embeddings

    made: Execute = partial(on_threads, threads=chosen["threads"], announce=say)
    kept = chosen["resume"]
    if chosen["device"]:
        from hbench.engine.executors.gpu import on_device

        if chosen["shard"] or chosen["workers"] or chosen["scheduler"]:
            raise click.UsageError("--device ranks in this process: leave --shard, --workers and --scheduler out.")
        made, kept = on_device(chosen["device"]), kept and kept / chosen["device"].partition(":")[0]
    with ExitStack() as stack:
        if chosen["scheduler"] or chosen["workers"]:
            from hbench.engine.executors import dask

            client = stack.enter_context(dask.connected(chosen["scheduler"], chosen["workers"] or 0))
            reader = dask.FileReader(embeddings.read_for_worker, embeddings.joined)
            made = dask.on_cluster(client, [dask.File(path.resolve(), ids) for path, ids in files], reader)
        yield kept_in(kept, made) if kept else made


@click.command("evaluate")
@click.argument("file", type=FILE, required=False)
@click.option(
    "--dataset",
    "-d",
    type=DATASET,
    required=True,
    help="A dataset's name, its folder, or one manifest (.parquet, .csv).",
)
@click.option("--ids", type=FILE, help="The ids of a .npy or .safetensors file: .txt, .csv or .json.")
@click.option("--query", type=FILE, help="Embeddings of the queries, where they are in a file of their own.")
@click.option("--gallery", type=FILE, help="Embeddings of the gallery, likewise.")
@click.option("--metrics", type=METRICS, help="Metrics separated by commas, as H-AP,AP/genus,R@1.  [default: all]")
@click.option(
    "--protocol",
    type=PROTOCOL,
    default="paper",
    show_default=True,
    help="paper, or official: as the released evaluators.",
)
@click.option("--ties", type=TIES, default="pessimistic", show_default=True, help="What comes first of equal scores.")
@click.option(
    "--similarity",
    type=SIMILARITY,
    help="cosine, dot, l2, poincare(curvature=0.1), lorentz, hamming.  [default: the dataset's]",
)
@click.option(
    "--policy", "policies", metavar="NAME", multiple=True, help="Mend the names of a table given by --dataset."
)
@click.option(
    "--each", is_flag=True, help="FILE is a folder: score every embedding file in it, reports to the folder --out."
)
@click.option("--unit", metavar="LEVEL|query", help="What intervals are taken over.  [default: the finest classes]")
@click.option("--check", is_flag=True, help="Only validate the file; every problem is listed.")
@click.option("--method", help="The method's name, for the report and the leaderboard row.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json", "csv", "markdown", "latex", "mteb", "model-card"]),
    default="table",
)
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on stdout; the same as --format json.")
@click.option("--out", "-o", "output", type=FILE, help="Write the report (JSON) to this file.")
@click.option("--by-query", type=FILE, help="Write every query's values to this parquet file.")
@click.option(
    "--top-k",
    type=click.IntRange(0, 1000),
    default=0,
    metavar="K",
    help="Keep the first K results of every query beside --out, and its values, for `hbench report`.",
)
@click.option(
    "--trees",
    metavar="FILES",
    help="Score under other trees of the same classes too, as wordnet.csv,wikidata.nwk,shuffled.",
)
@click.option("--row", type=FILE, help="Write the leaderboard row (TOML) to this file.")
@execution_options
def command(file: Path | None, dataset: str, check: bool, format_: str, as_json: bool, **options: Any) -> None:
    """Score FILE, embeddings or rankings of a dataset's test items, joined by id.

    \b
    Embeddings: .parquet (file or folder), .npz, .npy + ids, .safetensors + ids, Arrow IPC.
    Rankings:   id,images CSV (Google Landmarks), TREC run, parquet with query,item,score.

    \b
    Example: hbench evaluate emb.parquet --dataset sop -o mine.json --by-query mine.by-query.parquet
             hbench evaluate embeddings/ --each --dataset sop -o reports/
    """
    from hbench import datasets

    if options["each"]:
        _refuse_with_each(file, options, format_, check=check)
        _score_each(file, datasets.load(dataset, options["policies"]), options, as_json=as_json or format_ == "json")
        return
    _refuse_options(options)
    data = datasets.load(dataset, options["policies"])
    others = _trees(options["trees"])
    given = _given(file, options["ids"], options["query"], options["gallery"])
    conditions = _conditions(options)
    if check:
        _check(given, data, conditions)
        return
    files = [(path, options["ids"]) for path in (file, options["query"], options["gallery"]) if path]
    with executor(options, files) as execute:
        means: dict[str, Any] = {"execute": execute, "memory": options["max_memory"]}
        if options["shard"]:
            _write_shard(options["output"], options["shard"], _examined(given, data, conditions), means)
            return
        if others:
            report = _scored_under(others, _examined(given, data, conditions), means)
        else:
            report = scored(given, data, means=means | {"top_k": options["top_k"]}, **conditions)
    write_report(report, options)
    show_report(report.document, "json" if as_json else format_)


def scored(given: Submission, data: Dataset, *, means: dict[str, Any] | None = None, **conditions: Any) -> Report:
    """Score with a progress bar; with the released values too, where the dataset's leaderboard places by them."""
    from hbench.evaluation import measurement

    examined = _examined(given, data, conditions)
    with _bars() as on_test:
        return measurement.report_on(examined, on_test=on_test, **(means or {}))


def _conditions(options: dict[str, Any]) -> dict[str, Any]:
    conditions = {name: options[name] for name in ("protocol", "ties", "similarity", "unit", "method")}
    return conditions | {"metrics": options["metrics"]}


def _refuse_with_each(folder: Path | None, options: dict[str, Any], format_: str, *, check: bool) -> None:
    alone = ("query", "gallery", "ids", "method", "by_query", "shard", "resume", "top_k", "trees")
    if refused := [name for name in alone if options[name]] + ["check"] * check:
        raise click.UsageError(f"--each scores files one by one: leave --{refused[0].replace('_', '-')} out.")
    if folder is None or not folder.is_dir() or not options["output"]:
        raise click.UsageError("--each needs a folder of embedding files, and --out, the folder of their reports.")
    if format_ not in ("table", "json"):
        raise click.UsageError("--each shows a table, or --json.")


def _score_each(folder: Path | None, data: Dataset, options: dict[str, Any], *, as_json: bool) -> None:
    """Score every file that has no report yet, then show them all, best first; a file that is refused does not stop the others."""
    from hbench.core.errors import HBenchError, SubmissionError
    from hbench.core.files import write_text
    from hbench.evaluation.leaderboard import runs
    from hbench.evaluation.reports import many

    assert folder is not None
    found: dict[Path, Document] = {}
    refused: dict[str, HBenchError] = {}
    for file in many.files_in(folder):
        report = options["output"] / f"{file.stem}.json"
        try:
            found[report] = _report_of_each(file, report, data, options)
        except HBenchError as error:
            refused[file.name] = error
            say(f"{file.name}: refused\n{error}")
    if found:
        board = _board(data.name)
        if options["row"]:
            rows = [runs.row_of(document, board or runs.empty_board(document)) for document in found.values()]
            write_text(options["row"], "\n".join(map(runs.block, rows)))
        scores = next(iter(found.values())).scores
        metric = next(name for name in (board and board.metric, "H-AP", *scores) if name in scores)
        _show_standings(many.standings(found, metric), metric, list(refused), as_json=as_json)
    if refused:
        raise SubmissionError(
            f"{len(refused)} of {len(found) + len(refused)} files are refused", found=", ".join(refused)
        )


def _report_of_each(file: Path, report: Path, data: Dataset, options: dict[str, Any]) -> Document:
    from hbench.evaluation import measurement
    from hbench.evaluation.reports import many

    conditions = _conditions(options) | {"method": file.stem}
    examined = _examined(_given(file, None, None, None), data, conditions)
    if document := many.finished(report, examined):
        say(f"{file.name}: {report} is of this file and these conditions")
        return document
    with executor(options, [(file, None)]) as execute, _bars() as on_test:
        made = measurement.report_on(examined, execute=execute, memory=options["max_memory"], on_test=on_test)
    made.write_by_query(report.with_suffix(many.BY_QUERY))
    made.write(report)  # last: a report without values by query is made again
    return made.document


def _show_standings(standings: list[ModelStanding], metric: str, refused: list[str], *, as_json: bool) -> None:
    from hbench.evaluation.reports import formats

    best = standings[0].document
    if as_json:
        models = [each.record() for each in standings]
        show_json({"signature": best.signature, "metric": metric, "models": models, "refused": refused})
        return
    cells = []
    for each in standings:
        gap = each.behind
        behind = (
            (f"{100 * gap.difference:+.2f}", f"{100 * gap.low:+.2f} … {100 * gap.high:+.2f}", gap.corrected_in_words)
            if gap
            else ("best", "", "")
        )
        doubts = str(len(each.document.doubts)) if each.document.doubts else ""
        cells.append((each.document.method or "", formats.with_margin(each.score), *behind, doubts))
    header = ("model", metric, "to the best", "95 % interval", "p (Holm)", "doubts")
    show_table(
        f"{best.dataset}, {best.protocol} protocol, percent",
        header,
        cells,
        f"{formats.unit_note(best)}\n{best.signature}",
    )


def _trees(words: str | None) -> list[OtherTree]:
    from hbench.evaluation.reports import trees

    return trees.parse(words) if words else []


def _scored_under(others: list[OtherTree], examined: Examined, means: dict[str, Any]) -> Report:
    from hbench.evaluation.reports.trees import report_under

    with _bars() as on_test:
        return report_under(examined, others, on_test=on_test, **means)


def refuse_unwritable(files: dict[str, Any]) -> None:
    """Refuse, before any work, places where what was asked for could not be written."""
    from hbench.core import files as atomic

    for name in ("output", "by_query", "row"):
        if files[name]:
            atomic.refuse_unwritable(files[name])


def write_report(report: Report, files: dict[str, Any]) -> None:
    """Write what was asked for: the report, the values by query, the leaderboard row.

    Before anything is shown, since what is shown may meet a closed pipe.
    """
    if files["output"]:
        report.write(files["output"])
    if files["by_query"]:
        report.write_by_query(files["by_query"])
    if report.results is not None:
        from hbench.evaluation.reports import results

        results.write(files["output"].with_suffix(results.SUFFIX), report.results, report.document)
    if files["row"]:
        _write_row(report.document, _board(report.document.dataset), files["row"])


def _refuse_options(options: dict[str, Any]) -> None:
    """What does not go together, and what could not be written."""
    if options["row"] and not options["method"]:
        raise click.UsageError("--row needs --method, the name of the row.")
    if options["shard"] and not options["output"]:
        raise click.UsageError("--shard needs --out, the file of this part.")
    if options["shard"] and (options["by_query"] or options["row"]):
        raise click.UsageError("--by-query and --row are written by hbench merge, from all parts.")
    elsewhere = [name for name in ("shard", "workers", "scheduler", "device", "resume") if options[name]]
    for alone in ("trees", "top-k"):
        if options[alone.replace("-", "_")] and elsewhere:
            raise click.UsageError(f"--{alone} ranks in this process, in one go: leave --{elsewhere[0]} out.")
    if options["trees"] and options["top_k"]:
        raise click.UsageError("--trees and --top-k are of two evaluations.")
    if options["top_k"]:
        if not options["output"]:
            raise click.UsageError("--top-k needs --out: the results are kept beside the report.")
        options["by_query"] = options["by_query"] or options["output"].with_suffix(".by-query.parquet")
    refuse_unwritable(options)


def _examined(given: Submission, data: Dataset, conditions: dict[str, Any]) -> Examined:
    from hbench.evaluation import submission

    board = _board(data.name)
    also = board is not None and board.protocol == "official" and conditions.get("protocol", "paper") == "paper"
    return submission.examine(given, data, also_official=also, **conditions)


def _write_shard(output: Path, part: str, examined: Examined, means: dict[str, Any]) -> None:
    from hbench.evaluation import measurement
    from hbench.evaluation.shards import Part

    with _bars() as on_test:
        measurement.shard_on(output, examined, Part.parse(part), on_test=on_test, **means)
    say(f"part {part} is in {output}; hbench merge joins the parts")


def _given(file: Path | None, ids: Path | None, query: Path | None, gallery: Path | None) -> Submission:
    from hbench.evaluation import embeddings, submission

    if file is not None and query is None and gallery is None:
        return submission.read(file, ids=ids, movable=True)
    if file is None and query is not None and gallery is not None:
        return embeddings.read(query, ids=ids), embeddings.read(gallery, ids=ids)
    raise click.UsageError("Give either one FILE, or --query and --gallery together.")


def _check(given: Submission, data: Dataset, conditions: dict[str, Any]) -> None:
    examined = _examined(given, data, conditions)
    for doubt in examined.subject.doubts:
        say(f"doubt: {doubt}")
    for warning in examined.warnings:
        say(f"remark: {warning}")
    say(f"{examined.subject.source and examined.subject.source.file} can be scored on {data.name}")


def _board(dataset: str) -> Leaderboard | None:
    from hbench.evaluation import leaderboard

    return leaderboard.read(dataset) if dataset in leaderboard.names() else None


@contextmanager
def _bars() -> Iterator[OnTest]:
    """One bar per test, in blocks of queries."""
    with progress() as bars:

        def on_test(name: str) -> Callable[[int, int], None]:
            task = bars.add_task(f"ranking {name}", total=None)
            return lambda done, blocks: bars.update(task, completed=done, total=blocks)

        yield on_test


def _write_row(document: Document, board: Leaderboard | None, path: Path) -> None:
    from hbench.core.files import write_text
    from hbench.evaluation.leaderboard import runs as leaderboard_runs

    row = leaderboard_runs.row_of(document, board or leaderboard_runs.empty_board(document))
    write_text(path, leaderboard_runs.block(row))


def show_report(document: Document, format_: str) -> None:
    """The scores in one of the formats, the remarks, and the place on the dataset's leaderboard."""
    from hbench.evaluation.reports import formats

    board = _board(document.dataset)
    if format_ == "json":
        show_json(document.model_dump(mode="json"))
    elif format_ != "table":
        show(formats.FORMATS[format_](document).rstrip("\n"))
    else:
        heading: str | None = f"{formats.title(document)}, percent"
        for content in formats.tables(document):
            show_table(heading, content.header, content.cells)
            heading = None
        show(
            "\n".join(
                [formats.unit_note(document), document.signature, *(each.signature for each in document.trees.values())]
            )
        )
    for doubt in document.doubts:
        say(f"doubt: {doubt}")
    for note in document.warnings:
        say(f"note: {note}")
    placed = formats.placing(document, board) if board else None
    if placed:
        say(placed)
