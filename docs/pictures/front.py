"""Draws the pictures of the README's front, glyphs-tree.png and strips.png, by the commands of
hbench themselves.

Run: python docs/pictures/front.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

HERE = Path(__file__).parent
SMALLER = 12  # dimensions of the second model: the first of the demo's
QUERIES = (
    "georgian/lu/10ae/DejaVuSerif-BoldItalic",
    "cyrillic/ll/0446/DejaVuSerif-Italic",
    "greek/ll/1f07/DejaVuSerif-Italic",
)


def hbench(*words: str, folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "hbench", *words], cwd=folder, check=True)


def keep(picture: Path, name: str) -> None:
    """Keep a picture in as few colours as keep it as it looks."""
    with Image.open(picture) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
            HERE / name, optimize=True
        )


def tree(folder: Path) -> None:
    hbench("tree", "draw", "glyphs", "-o", "tree.png", folder=folder)
    keep(folder / "tree.png", "glyphs-tree.png")


def strips(folder: Path) -> None:
    hbench("demo", folder=folder)
    whole = pq.read_table(folder / "hbench-demo" / "glyphs-pca.parquet")
    vectors = np.stack(whole["embedding"].to_numpy())[:, :SMALLER]
    pq.write_table(
        pa.table({"id": whole["id"], "embedding": list(vectors)}), folder / "pca12.parquet"
    )
    shutil.copy(folder / "hbench-demo" / "glyphs-pca.parquet", folder)
    chosen = [word for query in QUERIES for word in ("--item", f"{query}.png")]
    files = ["glyphs-pca.parquet", "pca12.parquet", "-d", "glyphs"]
    hbench("look", *files, *chosen, "-k", "8", "-o", "strips.png", folder=folder)
    keep(folder / "strips.png", "strips.png")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        tree(Path(temporary))
        strips(Path(temporary))
