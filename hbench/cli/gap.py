"""hbench gap: the decomposability gap of embeddings, with its bounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli.names import FILE, SIMILARITY, TESTED
from hbench.cli.table_options import TABLE, TableOptions
from hbench.cli.terminal import bar, say, show_json, show_table

if TYPE_CHECKING:
    from hbench.engine.settings import Words
    from hbench.evaluation.gap import Gap


@click.command("gap")
@click.argument("file", type=FILE)
@TESTED
@TABLE
@click.option("--ids", type=FILE, help="The ids of a .npy or .safetensors file.")
@click.option(
    "--batch",
    type=click.IntRange(min=2),
    default=256,
    show_default=True,
    help="Gallery items per batch.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the random queries and batches.",
)
@click.option(
    "--queries",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    help="Use this many at most, drawn at random.",
)
@click.option(
    "--metrics", default="AP,H-AP,NDCG", show_default=True, help="Metrics separated by commas."
)
@click.option(
    "--similarity", type=SIMILARITY, help="As in hbench evaluate.  [default: the dataset's]"
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(
    file: Path,
    dataset: str,
    metrics: str,
    *,
    table: TableOptions,
    ids: Path | None,
    batch: int,
    seed: int,
    queries: int,
    similarity: str | None,
    as_json: bool,
) -> None:
    """Measure how far metrics inside random batches of the gallery lie above those on the whole
    gallery of FILE.

    A loss that sums over batches optimises the former; the gap says what such a loss leaves
    undone. Beside it stand two upper bounds of AP's gap: that of a model which is perfect inside
    every batch, and that of a model with as many scores on the wrong side of ROADMAP's thresholds
    as this file has: positives below 0.9, negatives above 0.6. A gap may be negative.

    Example: hbench gap mine.parquet --dataset sop --batch 256
    """
    from hbench.core.errors import UsageError
    from hbench.engine.settings import Settings
    from hbench.evaluation.examination import examine
    from hbench.evaluation.gap import gap_of, random_batches, sampled
    from hbench.evaluation.submission import read
    from hbench.evaluation.submission.embedding import retrieval_of

    data = table.load(dataset)
    given = read(file, ids=ids).embeddings("a gap")  # raises for a ranking
    if data.lists:  # the positives of a query are listed, instead of following from labels
        raise UsageError(
            "the gap is measured by labels", expected="a label tree", found="listed positives"
        )
    examined = examine(given, data, Settings(metrics, similarity=similarity))
    # items with several paths, or with paths that end early; the words of the conditions state both
    _refuse_other_paths(examined.conditions.words)
    documents = []
    for name, manifest in examined.data.tests.items():
        items = int(manifest.gallery.sum())
        if items < 2 * batch:  # a batch of nearly the whole gallery leaves no gap to be seen
            fits = items // 2
            raise UsageError(
                "the gallery is too small for two batches",
                expected=f"--batch of at most {fits}" if fits > 1 else "4 items or more",
                found=f"{batch} of {items} items",
            )
        with bar(f"batches of {name}") as on_batch:
            # the test with at most `queries` of its queries, drawn at random
            drawn = sampled(retrieval_of(manifest, given.queries), queries, seed)
            gap = gap_of(
                drawn, examined.conditions, random_batches(items, batch, seed), on_batch=on_batch
            )
        drawn_queries = len(drawn.queries.labels)
        # the signature states the queries and batches of the gap
        conditions = f"queries:{drawn_queries}|batch:{batch}|seed:{seed}"
        signature = f"{examined.signature([name])}|{conditions}"
        documents.append(_json_document(gap, signature))
    if as_json:
        show_json(documents if len(documents) > 1 else documents[0])
        return
    for document in documents:
        _show_gap(document)


def _json_document(gap: Gap, signature: str) -> dict[str, Any]:
    """Make the document for --json: the gap of every metric (inside batches minus whole gallery) as
    fractions; two upper bounds of the gap of AP, for a model that is perfect inside batches
    (`bound`) and for one that is calibrated like this one, or None (`calibrated_bound`); and the
    signature, which says how the gap was measured."""
    # of each metric: its name, its mean inside batches and on the whole gallery, and over how many
    # queries: those for which it is defined in both
    columns = zip(gap.metrics, gap.inside, gap.whole, gap.queries, strict=True)
    return {
        "signature": signature,
        "metrics": {
            name: {"gap": inside - whole, "inside": inside, "whole": whole, "queries": int(queries)}
            for name, inside, whole, queries in columns
        },
        "bound": gap.bound,
        "calibrated_bound": gap.calibrated_bound,
    }


def _show_gap(document: dict[str, Any]) -> None:
    """Print, in percentage points, the gap of every metric with its means inside batches and on the
    whole gallery, and then two upper bounds of the gap of AP. `document`: made by `_json_document`.

    The second bound is for a model with as many positives of a cosine above .9, and as many
    negatives above .6, as were measured; it is None for other similarities."""
    cells = [
        (
            name,
            f"{100 * each['gap']:+.2f}",
            f"{100 * each['inside']:.2f}",
            f"{100 * each['whole']:.2f}",
            f"{each['queries']:,}",
        )
        for name, each in document["metrics"].items()
    ]
    show_table(
        "decomposability gap, points",
        ("metric", "gap", "inside batches", "whole gallery", "queries"),
        cells,
    )
    say(f"largest gap of AP if every batch were perfect: {100 * document['bound']:.2f}")

    if document["calibrated_bound"] is not None:
        say(
            "… with as many scores beyond 0.9 and 0.6 as here: "
            f"{100 * document['calibrated_bound']:.2f}"
        )

    say(document["signature"])


def _refuse_other_paths(words: Words) -> None:
    """Raise UsageError if items have several paths, or paths that end early: the gap is defined for
    one complete path of each item. `words`: the conditions, with the most paths of an item
    (`several`), and whether some paths end early (`partial`)."""
    from hbench.core.errors import UsageError

    if words.several > 1:
        raise UsageError(
            "the gap goes by one path of each item",
            expected="one class at each level",
            found=f"up to {words.several} paths",
        )
    if words.partial:
        raise UsageError(
            "the gap cannot be measured for partial labels",
            fix="leave their items out: hbench build NAME --policy drop …",
        )
