"""Defines the verb `hbench detect`, which trains an object detector from a recipe and scores it on
Pascal VOC.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbench.cli.names import Known
from hbench.cli.terminal import say, show, show_json, show_table
from hbench.core.text import percent
from hbench_detection import recipe as recipes

if TYPE_CHECKING:
    from hbench_detection.report import DetectionReport


@click.command("detect", short_help="train an object detector, and score it")
@click.argument("recipe", type=Known("recipe", recipes.names))
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder that holds VOC2007/ and, where it is asked for, VOC2012/; or VOCdevkit/.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help='Change one setting: backbone="resnet101".',
)
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    help="Folder of the run.  [default: runs/RECIPE]",
)
@click.option("--resume", is_flag=True, help="Go on after the last whole epoch in that folder.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:1.")
@click.option(
    "--score",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Train nothing, but score this detections.json (COCO's format).",
)
@click.option(
    "--print", "print_only", is_flag=True, help="Print the recipe in full and train nothing."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    recipe: str,
    *,
    root: Path | None,
    changes: tuple[str, ...],
    out: Path | None,
    resume: bool,
    device: str,
    score: Path | None,
    print_only: bool,
    as_json: bool,
) -> None:
    """Train Faster R-CNN by RECIPE (voc07-rambo, voc07-cross-entropy, or a TOML file), then print
    AP50 and AP50:95.

    The folder of the run gets detections.json and report.json, which `hbench leaderboard add voc07`
    takes.

    Example: hbench detect voc07-rambo --root /data/VOCdevkit
    """
    chosen = recipes.resolve(recipe, changes)
    if print_only:
        show(recipes.as_toml(chosen).rstrip("\n"))
        return
    if root is None:
        raise click.UsageError("--root is needed: the folder that holds VOC2007/, or VOCdevkit/.")

    # imported here, since printing a recipe needs neither torch nor `run`
    import torch

    from hbench_detection import run

    folder = out or Path("runs") / Path(recipe).stem
    if score is not None and resume:
        raise click.UsageError("--score trains nothing: leave --resume out.")
    if score is not None:
        report = run.scored_again(chosen, root, score, folder)
    else:
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        report = run.run(
            chosen,
            root,
            folder,
            device=device,
            resume=resume,
            on_epoch=lambda epoch, loss: say(f"epoch {epoch} of {chosen.epochs}: loss {loss:.4f}"),
        )

    if as_json:
        show_json(report.model_dump(mode="json"))
    else:
        _show(report)

    written = f"wrote {folder / run.REPORT}"
    # a report on other images or classes ("own@…") has no leaderboard
    if report.dataset.startswith("voc07@"):
        written += f": hbench leaderboard add voc07 {folder / run.REPORT} makes a row of it"
    say(written)


def _show(report: DetectionReport) -> None:
    """Print the scores over all classes, then those of each class."""
    rows = [
        [name, percent(value, 1)] for name, value in {**report.scores, **report.per_class}.items()
    ]
    show_table(f"{report.method}, {report.backbone}, percent", ["", "AP"], rows)
