"""hbench demo: go the whole way on the built-in benchmark, in a minute."""

from pathlib import Path

import click

from hbench.cli.names import FOLDER
from hbench.cli.reporting import examined, show_report, write_report
from hbench.cli.terminal import bar, bars, progress, say

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
    import numpy as np
    from sklearn.decomposition import PCA

    from hbench import datasets
    from hbench.datasets.benchmarks import glyphs
    from hbench.engine.settings import Settings
    from hbench.evaluation.evaluate import report_on
    from hbench.evaluation.submission import EmbeddingSubmission
    from hbench.look.pages.folder import refuse_folder
    from hbench.look.plots import plot
    from hbench.look.report.folder import write_report as write_pages
    from hbench.look.report.runs import read_runs, with_embeddings
    from hbench.submissions import embeddings

    refuse_folder(out / "pages", "report")
    say(
        "glyphs: letters of five scripts in sixteen fonts; é for ê is a mild mistake, ж for é a "
        "severe one"
    )
    with progress() as shown:
        task = shown.add_task("drawing the letters", total=3)
        data = datasets.load("glyphs")
        images = (glyphs.images(manifest) for manifest in data.manifests.values())
        train, test = (
            each.reshape(len(each), -1).astype(np.float32) / np.float32(255) for each in images
        )  # in 0 … 1
        shown.update(task, description="projecting their pixels", completed=1)
        vectors = (
            PCA(dim, svd_solver="covariance_eigh").fit(train).transform(test).astype(np.float32)
        )
        shown.update(task, description="writing the embeddings", completed=2)
        embedding = out / "glyphs-pca.parquet"
        embeddings.write(embedding, data.tests["test"].items.tolist(), vectors)
        shown.update(task, completed=3)
    submission = EmbeddingSubmission(embeddings.read(embedding))
    checked = examined(submission, data, Settings(), f"pixels → PCA ({dim})")
    with bars("ranking") as on_test:
        report = report_on(checked, top_k=RESULTS, on_test=on_test)
    written = out / "glyphs-pca.json"
    write_report(
        report, {"output": written, "by_query": out / "glyphs-pca.by-query.parquet", "row": None}
    )
    plot(report, "levels").write(out / "glyphs-pca.png")
    with bar("making pages"):
        page = write_pages(
            with_embeddings(read_runs([written]), [embedding], RESULTS), out / "pages"
        )
    show_report(report.document, "table")
    for file in sorted(out.glob("glyphs-pca*")):
        say(f"wrote {file}")
    say(NEXT.format(embedding=embedding))
    say(f"\nOpen this page: {page}")
