"""`encode`: embeddings.npz, one vector per label and per wanted group name."""

from __future__ import annotations

import csv
from pathlib import Path

import click

from hbench.cli import terminal
from hbench_hgldv2.artefact import is_done, made_by, open_table, sha256, write
from hbench_hgldv2.cli import options
from hbench_hgldv2.grouping import encode
from hbench_hgldv2.labels.label import Label
from hbench_hgldv2.work_folder import GROUP, Work


@click.command()
@click.option(
    "--encoder",
    default=encode.DEFAULT,
    show_default=True,
    help="tfidf, open_clip:MODEL/PRETRAINED, open_clip:FOLDER of a sentence encoder, or file:EMBEDDINGS.npz.",
)
@click.option("--prompt", default=encode.PROMPT, show_default=True, help="What is encoded; {} is the label.")
@options.names
@click.pass_obj
def command(work: Work, *, encoder: str, prompt: str, names: Path | None) -> None:
    """Encode the labels.

    \b
    hbench hgldv2 encode --encoder tfidf
    """
    run(work, encoder, prompt, names)


def run(work: Work, encoder: str = encode.DEFAULT, prompt: str = encode.PROMPT, names: Path | None = None) -> None:
    """Make embeddings.npz, unless it is there already."""
    inputs = [work / "labels.csv", *([names] if names else [])]
    given = Path(encoder.partition(":")[2])
    named = f"{encoder.partition(':')[0]}:{given.name}" if given.name and given.exists() else encoder
    settings = {"encoder": named, "prompt": prompt, "weights": _weights(given)}
    record = made_by("encode", inputs, settings)
    path = work / "embeddings.npz"
    if is_done(record, path):
        return
    labels = [*work.labels(), *(Label(GROUP + name, name, 0, 0, 0, ()) for name in kinds_in(names))]
    vectors = encode.encode(labels, encoder, prompt)
    write(
        path,
        record,
        {"labels": len(labels), "dimensions": vectors.shape[1]},
        lambda file: encode.save(file, labels, vectors),
    )
    terminal.say(f"{len(labels):,} labels in {vectors.shape[1]} dimensions")


def kinds_in(names: Path | None) -> dict[str, str]:
    """Group name -> kind ("" where not given), from a file with a line each; a header of the official
    list is skipped.
    """
    if names is None:
        return {}
    with open_table(names) as lines:
        rows = [row for row in csv.reader(lines) if row and row[0] != "hierarchical_label"]
    return {row[0]: row[1] if len(row) > 1 else "" for row in rows}


def _weights(given: Path) -> str:
    """What identifies a local encoder: the sha256 of its weights or embeddings; "" for one known by its name."""
    files = [given] if given.is_file() else sorted(given.glob("*.safetensors")) if given.name and given.is_dir() else []
    return sha256(files[0]) if files else ""
