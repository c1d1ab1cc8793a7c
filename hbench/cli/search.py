"""hbench search: what a model retrieves for any picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbench.cli.embed_options import NET
from hbench.cli.names import DATASET, FILE, OUT_FILE
from hbench.cli.reporting import show_results

if TYPE_CHECKING:
    from hbench.datasets import Dataset


@click.command("search")
@click.argument("model")
@click.argument("pictures", nargs=-1, required=True, type=FILE)
@click.option("--dataset", "-d", type=DATASET, help="What is searched.  [default: that of the run]")
@click.option(
    "--embeddings",
    type=FILE,
    help="The dataset's vectors by this model.  [default: test.parquet of the run]",
)
@click.option("--test", help="Which test, where a dataset has several.  [default: the first]")
@click.option(
    "-k", type=click.IntRange(1, 1000), default=10, show_default=True, help="Results of each."
)
@NET
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
@click.option("--csv", "as_csv", is_flag=True, help="As CSV on stdout, a line per result.")
@click.option("--out", "-o", type=OUT_FILE, help="Write strips: .png, .svg, .pdf or .html.")
def command(
    model: str,
    pictures: tuple[Path, ...],
    *,
    dataset: str | None,
    embeddings: Path | None,
    test: str | None,
    k: int,
    net: str | None,
    as_json: bool,
    as_csv: bool,
    out: Path | None,
) -> None:
    """Show what MODEL retrieves for PICTURES from anywhere, nearest first by cosine.

    MODEL is a run's folder, which has the vectors of its dataset, or one that `hbench embed` takes,
    with --dataset and --embeddings. The pictures have no labels: results are marked by what they
    share with the first one, and the class that most of them have is named.

    Example: hbench search runs/birds owl.jpg -k 20 -o owl.html
    """
    from hbench.core.files import refuse_unwritable
    from hbench.look.figures import refuse_suffix
    from hbench.look.inputs import test_of
    from hbench.look.strips import SUFFIXES
    from hbench.submissions import embeddings as files
    from hbench.train.embedding.embed_dataset import embedder
    from hbench.train.embedding.search import gallery_of, search

    if out is not None:
        refuse_suffix(out, SUFFIXES)
        refuse_unwritable(out)
    vectors = embeddings or _of_run(Path(model))
    data = _dataset(dataset, Path(model))
    gallery = gallery_of(data.tests[test_of(data, test)], files.read(vectors), data.name)
    # `net`: FILE.py:NAME, if the net of the run is a program of the user's
    results = search(embedder(model, net=net), pictures, gallery, k=k)
    show_results(results, out, as_json=as_json, as_csv=as_csv)


def _of_run(run: Path) -> Path:
    """Return the file of a run's vectors. Raises click's UsageError if the folder has no finished
    run."""
    from hbench.train.loop import EMBEDDINGS

    file = run / EMBEDDINGS
    if not file.is_file():
        raise click.UsageError(
            f"{run} holds no {EMBEDDINGS}: give --embeddings FILE, of hbench embed {run}."
        )
    return file


def _dataset(name: str | None, run: Path) -> Dataset:
    """Return the dataset to search: the one of this name, or else the run's."""
    from hbench import datasets
    from hbench.train.recipes.files import resolve
    from hbench.train.records.refusals import RECIPE

    if name is not None:
        return datasets.load(name)
    recipe = run / RECIPE
    if not recipe.is_file():
        raise click.UsageError(f"{run} has no {RECIPE}: name the --dataset.")
    return datasets.load(resolve(str(recipe)).dataset)
