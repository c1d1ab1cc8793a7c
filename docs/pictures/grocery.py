"""Draws the pictures of docs/studies.md by the commands of hbench themselves, from two files
of embeddings of the test: of a net that was not trained, and of one that was.

Run: python docs/pictures/grocery.py FROZEN.parquet TRAINED.parquet
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
COLOURS = 192  # as few as keep photographs as they look: all three pictures have less than 1 MB
APPLE = "test/Fruit/Apple/Red-Delicious/Red-Delicious_030.jpg"
MILK = "test/Packages/Milk/Arla-Medium-Fat-Milk/Arla-Medium-Fat-Milk_002.jpg"
SUSPECTS = (
    "test/Fruit/Kiwi/Kiwi_032.jpg",
    "test/Vegetables/Carrots/Carrots_023.jpg",
    "test/Vegetables/Pepper/Red-Bell-Pepper/Red-Bell-Pepper_020.jpg",
)


def hbench(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "hbench", *words], check=True)


def keep(picture: Path, name: str, *, width: int) -> None:
    """Keep a picture at this width, in few colours."""
    with Image.open(picture) as image:
        height = round(image.height * width / image.width)
        smaller = image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
        smaller.quantize(COLOURS, dither=Image.Dither.NONE).save(HERE / name, optimize=True)


def strips(files: list[str], items: tuple[str, ...], out: Path, *, results: int) -> None:
    asked = [word for item in items for word in ("--item", item)]
    hbench("look", *files, "-d", "grocery", *asked, "-k", str(results), "-o", str(out))


def main(frozen: str, trained: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / "drawn.png"
        strips([frozen, trained], (APPLE, MILK), drawn, results=6)
        keep(drawn, "grocery-strips.png", width=1000)
        strips([frozen], SUSPECTS, drawn, results=4)
        keep(drawn, "grocery-suspects.png", width=700)
        hbench("plot", "confusion", trained, "-d", "grocery", "--level", "coarse", "-o", str(drawn))
        keep(drawn, "grocery-confusion.png", width=700)


if __name__ == "__main__":
    main(*sys.argv[1:])
