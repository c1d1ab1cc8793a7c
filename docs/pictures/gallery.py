"""Runs the commands of docs/gallery.md and keeps their pictures in docs/pictures/gallery.

Run: python docs/pictures/gallery.py [FOLDER]; runs that are in the folder already are not trained again.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).parents[1]
KEPT = Path(__file__).parent / "gallery"
MOST = 100_000  # bytes of a picture


def lines(page: str) -> list[list[str]]:
    """The commands of a page, each as its words."""
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [shlex.split(line.removeprefix("$ ")) for block in blocks for line in block.splitlines()]


def target(words: list[str]) -> str:
    """What a command writes: the word after -o or --out."""
    return words[next(at for at, word in enumerate(words) if word in {"-o", "--out"}) + 1]


def run(words: list[str], folder: Path) -> Path:
    """Run a command in a folder, but for a training that is there, and give what it wrote."""
    made = folder / target(words)
    if not (words[1] == "train" and (made / "report.json").exists()):
        subprocess.run([sys.executable, "-m", *words], cwd=folder, check=True)
    return made


def keep(picture: Path, where: Path = KEPT) -> Path:
    """Copy a picture among those of the docs, in as few colours as keep it as it looks."""
    kept = where / picture.name
    where.mkdir(exist_ok=True)
    with Image.open(picture) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(kept, optimize=True)
    if kept.stat().st_size > MOST:
        raise SystemExit(f"{kept} has {kept.stat().st_size:,} bytes, more than {MOST:,}")
    return kept


def main(folder: Path) -> None:
    for words in lines((DOCS / "gallery.md").read_text(encoding="utf-8")):
        made = run(words, folder)
        if made.suffix == ".png":
            sys.stderr.write(f"{keep(made)}\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(*sys.argv[1:2]) if sys.argv[1:] else Path(temporary))
