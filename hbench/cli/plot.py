"""hbench plot: the pictures of a paper, from reports, embedding files, runs and leaderboards."""

from pathlib import Path

import click

from hbench.cli.names import DATASET, FILE, OUT_FILE
from hbench.cli.table_options import TABLE, TableOptions
from hbench.cli.terminal import say


class KindsInHelp(click.Command):
    """A command whose help lists the kinds of plots, which are imported only for that."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each kind of plot below the options: what it shows, and what it is drawn from."""
        from hbench.look.plots import kinds

        with formatter.section("Kinds"):
            formatter.write_dl(
                [(name, f"{kinds[name].about}; from {kinds[name].files}") for name in kinds]
            )


@click.command("plot", cls=KindsInHelp)
@click.argument("kind")
@click.argument("files", nargs=-1, metavar="[FILES or NAMES]...")
@click.option(
    "--out", "-o", type=OUT_FILE, required=True, help="Write the picture: .png, .svg or .pdf."
)
@click.option(
    "--dataset",
    "-d",
    type=DATASET,
    help="The dataset of embedding files, by name, folder or table.",
)
@TABLE
@click.option("--test", help="Which test, where a dataset has several.  [default: the first]")
@click.option(
    "--name", "names", multiple=True, help="What a file is called in the picture; one for each."
)
@click.option("--metric", "-m", "metrics", multiple=True, help="Draw this metric; repeatable.")
@click.option("--level", help="A level of the tree.  [default: the coarsest]")
@click.option(
    "--by-query", type=FILE, help="The values of every query (hbench evaluate --by-query)."
)
@click.option("--method", metavar="NAME", help="t-sne or umap.  [default: t-sne]")
def command(
    kind: str,
    files: tuple[str, ...],
    out: Path,
    *,
    dataset: str | None,
    table: TableOptions,
    test: str | None,
    names: tuple[str, ...],
    metrics: tuple[str, ...],
    level: str | None,
    by_query: Path | None,
    method: str | None,
) -> None:
    """Draw a KIND of picture for print: one column wide, 8 pt, with its conditions in small print.

    \b
    Example: hbench plot levels mine.json other.json -o levels.pdf
    """
    from hbench.core.files import refuse_unwritable
    from hbench.look.figures import refuse_suffix
    from hbench.look.plots import PlotRequest, draw

    refuse_suffix(out)
    refuse_unwritable(out)
    request = PlotRequest(
        files,
        table.load_if_named(dataset),
        test=test,
        names=names,
        metrics=metrics,
        level=level,
        by_query=by_query,
        method=method,
    )
    draw(kind, request).write(out)
    say(f"wrote {out}")
