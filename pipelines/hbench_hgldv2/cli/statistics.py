"""`statistics`: landmarks per super-category and images per landmark, in numbers beside the published ones and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hbench.cli import terminal
from hbench.core.errors import DataError, UsageError
from hbench.core.files import replacing
from hbench_hgldv2.cli import options
from hbench_hgldv2.dataset import statistics
from hbench_hgldv2.labels import released
from hbench_hgldv2.work_folder import SPLITS, Work

FORMATS = (".svg", ".png", ".pdf")


@click.command()
@click.option(
    "--released",
    "files",
    type=(click.Choice(SPLITS), click.Path(path_type=Path, exists=True, dir_okay=False)),
    multiple=True,
    metavar="SPLIT FILE",
    help="A five-column file, instead of those of assemble.",
)
@options.raw("with it images are counted.")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="statistics.svg in the work folder, or .png, .pdf.")
@options.as_json
@click.pass_obj
def command(
    work: Work, *, files: Sequence[tuple[str, Path]], raw: Path | None, out: Path | None, as_json: bool
) -> None:
    """Count what a hierarchy has beside what is published, and draw Fig. 9 and 10 of the paper (SupRank).

    \b
    hbench hgldv2 statistics --raw gldv2/raw
    hbench hgldv2 statistics --released index index_label_to_hierarchical.csv -o index.png
    """
    target = out or work / "statistics.svg"
    if target.suffix not in FORMATS:
        raise UsageError(f"{target} is no picture", expected="a name that ends in " + ", ".join(FORMATS))
    paths = dict(files) or {split: path for split in SPLITS if (path := work.hierarchy(split)).exists()}
    splits = {split: released.read(path) for split, path in paths.items()}
    if not any(row.hierarchical_label for rows in splits.values() for row in rows):
        raise DataError("no landmark has a super-category", fix="hbench hgldv2 assemble, or --released SPLIT FILE")
    images = {split: statistics.images_of(raw, split) for split in splits} if raw else {}
    found = statistics.counts(splits, images)
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as temporary:
        statistics.draw(temporary, splits, images, target.suffix.removeprefix("."))
    if as_json:
        terminal.show_json([count._asdict() for count in found])
        return
    table = [(what, f"{number:,}", "" if known is None else f"{known:,}") for what, number, known in found]
    terminal.show_table("counts", statistics.Count._fields, table)
    terminal.say(str(target))
