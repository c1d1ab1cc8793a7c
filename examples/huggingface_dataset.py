"""Loads a built set by Hugging Face datasets: its parquet manifest, with the pictures as an image column."""

import csv
import tempfile
from pathlib import Path

import datasets
from PIL import Image

import hbench

if __name__ == "__main__":
    datasets.disable_progress_bars()
    folder = Path(tempfile.mkdtemp())
    orders = {"barn owl": "owls", "galah": "parrots"}
    rows = [(f"{bird}{number}.png", orders[bird], bird) for bird in orders for number in range(2)]
    for name, *_ in rows:
        Image.new("RGB", (8, 8), "white").save(folder / name)
    with (folder / "birds.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("item", "family", "species"), *rows])
    hbench.load(str(folder / "birds.csv")).tests["test"].write(folder / "test.parquet")

    built = datasets.load_dataset(
        "parquet", data_files={"test": str(folder / "test.parquet")}, cache_dir=str(folder / "cache")
    )
    test = built["test"].map(lambda row: {"image": str(folder / row["item"])}).cast_column("image", datasets.Image())
    print(test.column_names, test[0]["image"].size)
