"""Builds a dataset from a folder of pictures, and loads it by Hugging Face datasets: an image
column, labels, splits.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import datasets
from PIL import Image

if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    for place, path in enumerate(
        ("owls/barn-owl", "owls/bay-owl", "parrots/galah", "parrots/corella")
    ):
        (folder / "birds" / path).mkdir(parents=True)
        Image.new("RGB", (8, 8), (60 * place, 90, 160)).save(folder / "birds" / path / "one.png")
    words = [
        "--from",
        folder / "birds",
        "--levels",
        "family,species",
        "--split-by",
        "species",
        "--cards",
        "--out",
        folder / "built",
    ]
    subprocess.run([sys.executable, "-m", "hbench", "build", "birds", *words], check=True)

    birds = datasets.load_dataset(str(folder / "built"), cache_dir=str(folder / "cache"))
    first = birds["test"][0]
    print(
        sorted(birds),
        first["image"].size,
        birds["test"].features["species"].int2str(first["species"]),
    )
