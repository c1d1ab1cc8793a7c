"""hbench look: what a model retrieves for some queries, as text, data, or strips of pictures."""

from dataclasses import asdict, dataclass
from pathlib import Path

import click

from hbench.cli.names import FILE, OUT_FILE, SIMILARITY, TESTED
from hbench.cli.option_blocks import block, with_options
from hbench.cli.reporting import show_results
from hbench.cli.table_options import TABLE_BESIDE_ITEMS, TableOptions
from hbench.cli.two_files import OPTIONS, pairs_of

SHOWN_RESULTS = 8


@dataclass(frozen=True)
class ChosenQueries:
    """The options that choose the queries to show; at most one of them may be given."""

    queries: tuple[str, ...]
    class_name: str | None
    worst: int | None
    best: int | None
    severe: int | None
    at_random: int | None

    def refuse_several_ways(self) -> None:
        """Raise click's UsageError if more than one of them was given."""
        if sum(map(bool, asdict(self).values())) > 1:
            raise click.UsageError(
                "Choose queries one way: --item, --class, --worst, --best, --severe or --random."
            )


CHOICE = block(
    "choice",
    ChosenQueries,
    [
        click.option(
            "--item",
            "queries",
            multiple=True,
            metavar="ID",
            help="This query, or name; repeatable.",
        ),
        click.option(
            "--class",
            "class_name",
            metavar="NAME",
            help="Queries of this class, at any level of the tree.",
        ),
        click.option(
            "--worst",
            type=click.IntRange(1),
            metavar="N",
            help=f"The N worst by --by.  [default: {SHOWN_RESULTS}]",
        ),
        click.option("--best", type=click.IntRange(1), metavar="N", help="The N best by --by."),
        click.option(
            "--severe",
            type=click.IntRange(1),
            metavar="N",
            help="N whose first result shares the least.",
        ),
        click.option(
            "--random",
            "at_random",
            type=click.IntRange(1),
            metavar="N",
            help="N at random, the same every time.",
        ),
    ],
)


@click.command("look")
@click.argument("files", nargs=-1, type=FILE)
@with_options(OPTIONS)
@TESTED
@TABLE_BESIDE_ITEMS
@click.option("--test", help="Which test, where a dataset has several.  [default: the first]")
@click.option(
    "--nodes",
    type=FILE,
    help="Vectors of nodes of the tree, by name or path: they are the queries.",
)
@CHOICE
@click.option(
    "--by",
    default="H-AP",
    show_default=True,
    metavar="METRIC",
    help="What worst and best are measured by.",
)
@click.option(
    "--similarity", type=SIMILARITY, help="As for `hbench evaluate`.  [default: the dataset's]"
)
@click.option(
    "--report",
    type=FILE,
    help="Rank as the evaluation of this report (JSON) did: its similarity and ties.",
)
@click.option(
    "-k", type=click.IntRange(1, 1000), default=10, show_default=True, help="Results of each query."
)
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
@click.option("--csv", "as_csv", is_flag=True, help="As CSV on stdout, a line per result.")
@click.option("--out", "-o", type=OUT_FILE, help="Write strips: .png, .svg, .pdf or .html.")
def command(
    files: tuple[Path, ...],
    dataset: str,
    *,
    query: tuple[Path, ...],
    gallery: tuple[Path, ...],
    table: TableOptions,
    test: str | None,
    nodes: Path | None,
    choice: ChosenQueries,
    by: str,
    similarity: str | None,
    report: Path | None,
    k: int,
    as_json: bool,
    as_csv: bool,
    out: Path | None,
) -> None:
    """Show what embedding FILES retrieve for some queries; several files one under the other, each
    with its own values.

    The queries are chosen by the first file. With --nodes they are names.

    Example: hbench look mine.parquet --dataset glyphs --severe 5 -o mistakes.png
    """
    from hbench.core.files import refuse_unwritable
    from hbench.look.inputs import EmbeddingFile
    from hbench.look.strips import SUFFIXES
    from hbench.look.strips.results import browse

    if out is not None:
        if out.suffix.lower() not in SUFFIXES:
            raise click.UsageError(
                f"{out} is not a picture or page: end its name in {', '.join(SUFFIXES)}."
            )
        refuse_unwritable(out)
    # --query is a file here: tell a user who gives a query's id which option takes it
    hint = " To choose a query by its id, say --item ID." if query else ""
    models: list[EmbeddingFile] = [*files, *pairs_of(query, gallery, hint=hint)]
    if not models:
        raise click.UsageError("Give FILES of embeddings, or --query FILE --gallery FILE.")
    choice.refuse_several_ways()
    ties = "pessimistic"  # as an evaluation takes them, unless its report says otherwise
    if report is not None:
        if similarity is not None:
            raise click.UsageError("--report states the similarity: leave --similarity out.")
        similarity, ties = _similarity_and_ties(report)  # of the report's evaluation
    data = table.load(dataset, kept=report)  # a table is read as it was for the report
    results = browse(
        models,
        data,
        test=test,
        nodes=nodes,
        by=by,
        k=k,
        similarity=similarity,
        ties=ties,
        **asdict(choice),  # which queries: arguments of `browse` with the options' names
    )
    show_results(results, out, as_json=as_json, as_csv=as_csv)


def _similarity_and_ties(report: Path) -> tuple[str, str]:
    """Return the similarity and the order of ties of a report's evaluation."""
    from hbench.engine.settings import Signature
    from hbench.records import document as reports

    words = Signature.parse(reports.read(report).signature).words
    return words.similarity, words.ties
