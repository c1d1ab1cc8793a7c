"""hbench demo: run all steps on the built-in benchmark, in a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbench.cli.names import FOLDER
from hbench.cli.reporting import ReportFiles, examined, show_report, write_report
from hbench.cli.terminal import bar, bars, progress, say

if TYPE_CHECKING:
    from hbench.datasets import Dataset

NEXT = """
Next:
  hbench leaderboard show glyphs                      who is ahead
  hbench evaluate {embedding} --dataset glyphs --metrics H-AP,AP/base,R@1
  hbench look {embedding} --dataset glyphs --severe 5 -o mistakes.html
  hbench plot mistakes {embedding} --dataset glyphs -o mistakes.pdf
  hbench tree draw glyphs -o glyphs.svg               the label tree as a picture
  hbench datasets                                     the benchmarks of the papers
Your own model: embed every item of glyphs test, write id + embedding to a .parquet, and
evaluate that file."""

RESULTS = 20  # of each query, on the pages


@click.command("demo")
@click.option(
    "--out",
    "-o",
    type=FOLDER,
    default="hbench-demo",
    show_default=True,
    help="Folder for the files.",
)
@click.option(
    "--dim",
    type=click.IntRange(1, 1024),
    default=64,
    show_default=True,
    help="Dimensions kept by the PCA.",
)
def command(out: Path, dim: int) -> None:
    """Score a PCA baseline on the built-in benchmark glyphs: embedding file, report, picture, and
    pages to open.

    Example: hbench demo --out demo
    """
    from hbench import datasets
    from hbench.engine.settings import Settings
    from hbench.evaluation.evaluate import report_on
    from hbench.evaluation.submission.embedding import EmbeddingSubmission
    from hbench.look.pages.folder import refuse_folder
    from hbench.look.plots import plot
    from hbench.look.report.folder import write_report as write_pages
    from hbench.look.report.runs import read_runs, with_embeddings
    from hbench.submissions import embeddings

    # before anything is computed: raises if the folder holds other files than pages of a report
    refuse_folder(out / "pages", "report")
    say(
        "glyphs: letters of five scripts in sixteen fonts; é for ê is a mild mistake, ж for é a "
        "severe one"
    )
    data = datasets.load("glyphs")
    embedding = out / "glyphs-pca.parquet"
    _embed_by_pca(data, embedding, dim)
    submission = EmbeddingSubmission(embeddings.read(embedding))
    checked = examined(submission, data, Settings(), f"pixels → PCA ({dim})")
    with bars("ranking") as on_test:
        report = report_on(checked, top_k=RESULTS, on_test=on_test)
    written = out / "glyphs-pca.json"
    write_report(report, ReportFiles(written))
    plot(report, "levels").write(out / "glyphs-pca.png")
    with bar("making pages"):
        # RESULTS of each query are shown
        page = write_pages(
            with_embeddings(read_runs([written]), [embedding], RESULTS), out / "pages"
        )
    show_report(report.document, "table")
    for file in sorted(out.glob("glyphs-pca*")):
        say(f"wrote {file}")
    say(NEXT.format(embedding=embedding))
    say(f"\nOpen this page: {page}")


def _embed_by_pca(data: Dataset, out: Path, dim: int) -> None:
    """Write an embedding file of the test's pixels, projected on the first `dim` principal
    components of the training images."""
    import numpy as np
    from sklearn.decomposition import PCA

    from hbench.core.compiled import one_blas_thread
    from hbench.datasets.benchmarks import glyphs
    from hbench.submissions import embeddings

    with progress() as shown:
        task = shown.add_task("drawing the letters", total=3)  # draw, project, write
        pixels = []
        for manifest in data.manifests.values():
            images = glyphs.images(manifest)
            # in float64: in float32 products differ between processors, and between the rows of
            # equal letters, whose vectors would then not be equal
            pixels.append(images.reshape(len(images), -1) / 255)
        # (N, height · width) each, 0 to 1; glyphs has these two manifests, in this order
        train, test = pixels

        shown.update(task, description="projecting their pixels", completed=1)
        # One thread, so that the vectors do not depend on the number of threads; for 1,024 pixels
        # several are slower, too. An exact solver: the default may choose a randomised one.
        with one_blas_thread():
            fitted = PCA(dim, svd_solver="covariance_eigh").fit(train)
            vectors = fitted.transform(test).astype(np.float32)

        shown.update(task, description="writing the embeddings", completed=2)
        embeddings.write(out, data.tests["test"].items.tolist(), vectors)
        shown.update(task, completed=3)
