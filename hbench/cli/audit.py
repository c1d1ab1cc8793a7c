"""hbench audit: find wrong labels, copies and doubtful names by vectors."""

from __future__ import annotations

from pathlib import Path

import click

from hbench.cli.names import FILE, SIMILARITY
from hbench.cli.table_options import TABLE, TableOptions
from hbench.cli.terminal import bar, say, show, show_json, show_table

SHOWN_SUSPECTS = 5


@click.command("audit", short_help="find wrong labels, copies and doubtful names")
@click.argument("file", type=FILE)
@click.option("--dataset", "-d", required=True, help="A dataset's name, folder or table.")
@click.option("--out", "-o", "folder", type=FILE, required=True, help="The folder to write.")
@click.option("--ids", type=FILE, help="The ids of a .npy or .safetensors file.")
@TABLE
@click.option(
    "--neighbours",
    "-k",
    type=click.IntRange(3, 100),
    default=10,
    show_default=True,
    metavar="K",
    help="The nearest items of each item, whose labels speak for or against its own.",
)
@click.option("--similarity", type=SIMILARITY, help="[default: the dataset's]")
@click.option(
    "--most",
    type=click.IntRange(1),
    default=1_000,
    show_default=True,
    help="Suspects of each list at most.",
)
@click.option("--json", "as_json", is_flag=True, help="The numbers as one JSON document.")
def command(
    file: Path,
    dataset: str,
    folder: Path,
    *,
    ids: Path | None,
    table: TableOptions,
    neighbours: int,
    similarity: str | None,
    most: int,
    as_json: bool,
) -> None:
    """Find labels that the neighbours of items contradict, by FILE, vectors of a net that was not
    trained on these labels. All splits are taken together.

    Far suspects belong to another branch of the tree, near ones to a sibling; groups are many items
    of one class that look like one other. The folder holds a page to decide on, suspects.csv,
    copies.csv, completions.csv, merges.csv and audit.json; files of yours in it stay.

    Example: hbench audit dino.parquet -d birds.csv -o audit
    """
    from hbench.auditing.audit import audit
    from hbench.look.audit import KIND, write_pages
    from hbench.look.pages.folder import refuse_folder
    from hbench.submissions import embeddings

    refuse_folder(folder, KIND)  # before anything is read and ranked, which may take long
    data = table.load(dataset)
    vectors = embeddings.read(file, ids=ids)
    with bar("ranking") as on_block:
        found = audit(
            vectors,
            data,
            neighbours=neighbours,
            similarity=similarity,
            most=most,
            on_block=on_block,
        )
    page = write_pages(found, folder)
    for remark in found.remarks:
        say(f"note: {remark}")
    say("open this page:")
    say(str(page))
    if as_json:
        show_json(found.summary())
        return

    # groups come first, since one decision may settle all items of a group
    groups = [
        [group["label"], group["proposed"], f"{len(group['items']):,}"]
        for group in found.summary()["groups"][:SHOWN_SUSPECTS]
    ]
    if groups:
        header = ["label", "neighbours say", "items"]
        show_table("groups: one decision each", header, groups, left=("label", "neighbours say"))
    # one list of suspects for each kind: far, whose proposed label is in another branch, and near
    for each in found.lists:
        of_kind = [row for row in found.suspects.to_pylist() if row["list"] == each.kind]
        # `level`: the coarsest level at which the two labels differ
        cells = [
            [row["item"], row["label"], row["proposed"], row["level"], _percent(row["sureness"])]
            for row in of_kind[:SHOWN_SUSPECTS]
        ]
        header = ["item", "label", "neighbours say", "leaves at", "sure"]
        left = ("label", "neighbours say", "leaves at")
        show_table(f"{each.kind} suspects", header, cells, left=left)
    show(found.in_words())


def _percent(sureness: float | None) -> str:
    """Format a sureness, a share from 0 to 1, in percent; a dash if it is unknown."""
    return "–" if sureness is None else f"{100 * sureness:.0f} %"
