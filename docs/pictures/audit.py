"""Draws audit.png: the page of an audit of glyphs, of which 2 % got a wrong label on purpose.

Run: python docs/pictures/audit.py; it needs a Chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

import hbench
from hbench.datasets import Dataset
from hbench.look.audit import write_pages

HERE = Path(__file__).parent
RATE = 0.02
WIDTH, HEIGHT = 1000, 760


def with_errors(data: Dataset) -> Dataset:
    """The dataset with labels of other items for a share of its items."""
    test = data.tests["test"]
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(test), round(RATE * len(test)), replace=False)
    labels = test.labels.copy()
    labels[chosen] = test.labels[rng.permutation(len(test))[: len(chosen)]]
    return replace(data, tests={"test": replace(test, labels=labels)})


def pictured(page: Path, out: Path) -> None:
    """Take a picture of the top of a page."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        opened.goto(page.as_uri())
        opened.locator(".case").first.focus()
        opened.keyboard.press("r")
        opened.evaluate("scrollTo(0, 0)")
        opened.screenshot(path=out)
        browser.close()


def main(folder: Path) -> None:
    """Score the demo's vectors, audit them, and keep the picture."""
    subprocess.run([sys.executable, "-m", "hbench", "demo"], cwd=folder, check=True)
    vectors = folder / "hbench-demo" / "glyphs-pca.parquet"
    found = hbench.audit(vectors, with_errors(hbench.load("glyphs")))
    sys.stderr.write(f"{found}\n")
    pictured(write_pages(found, folder / "audit"), folder / "audit.png")
    with Image.open(folder / "audit.png") as image:
        small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        small.save(HERE / "audit.png", optimize=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
