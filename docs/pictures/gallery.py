"""Runs the commands of docs/gallery.md and keeps their pictures in docs/pictures/gallery.

Run: PYTHONPATH=$PWD python docs/pictures/gallery.py [FOLDER]; runs that are there already are not
trained again. With --check, as in CI, trainings take two steps, and the pictures that come out are
only compared with those that are kept, by name and size.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

from PIL import Image

import studies.__main__
from hbench.cli import group

GROUPS = {"hbench": group, "studies": studies.__main__.group}

DOCS = Path(__file__).parents[1]
KEPT = Path(__file__).parent / "gallery"
MOST = 100_000  # bytes of a picture
SHORT = ["--set", "epochs=2", "--set", "steps_per_epoch=1"]


def lines(page: str) -> list[list[str]]:
    """The commands of a page, each as its words."""
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [
        shlex.split(line.removeprefix("$ ").removeprefix("python -m "))
        for block in blocks
        for line in block.splitlines()
    ]


def target(words: list[str]) -> str:
    """What a command writes: the word after -o, --out or >."""
    return words[next(at for at, word in enumerate(words) if word in {"-o", "--out", ">"}) + 1]


def run(words: list[str], folder: Path) -> Path:
    """Run a command in a folder and in this process, which has loaded everything, but for a
    training that is there; give what it wrote.
    """
    made = folder / target(words)
    program, verb, *rest = words[: words.index(">")] if ">" in words else words
    if verb == "train" and (made / "report.json").exists():
        return made
    said = StringIO()
    with chdir(folder), redirect_stdout(said):
        GROUPS[program]([verb, *rest], standalone_mode=False)
    if ">" in words:
        made.write_text(said.getvalue(), encoding="utf-8")
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
    """Run every command and keep its picture."""
    for words in lines((DOCS / "gallery.md").read_text(encoding="utf-8")):
        made = run(words, folder)
        if made.suffix == ".png":
            sys.stderr.write(f"{keep(made)}\n")


def check(folder: Path) -> None:
    """Run every command with short trainings; end with a message where a picture is missing, new,
    or of another size.
    """
    sizes = {}
    for words in lines((DOCS / "gallery.md").read_text(encoding="utf-8")):
        made = run([*words, *(SHORT if words[1] == "train" else [])], folder)
        if made.suffix == ".png":
            with Image.open(keep(made, folder / "kept")) as image:
                sizes[made.name] = image.size
    for path in KEPT.iterdir():
        with Image.open(path) as image:
            if sizes.pop(path.name, None) != image.size:
                raise SystemExit(
                    f"{path.name} is not what docs/gallery.md draws: run docs/pictures/gallery.py"
                )
    if sizes:
        raise SystemExit(f"not in {KEPT}: {', '.join(sizes)}")


if __name__ == "__main__":
    own = [word for word in sys.argv[1:] if word != "--check"]
    with tempfile.TemporaryDirectory() as temporary:
        (check if "--check" in sys.argv else main)(Path(own[0] if own else temporary))
