"""What both losses of `hbench detect` learn on drawn pictures: the table of docs/detection.md.

300 pictures of 64 pixels (discs, squares, bars) as VOC2007, 40 others as its test, a small net from
random weights, batches of 4. AP50 after 1, 2 and 4 epochs of 75 steps, one number a seed.

    python -m benchmarks.detection
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from hbench_detection.detector import detector_of
from hbench_detection.recipe import DetectionRecipe, resolve
from hbench_detection.run import detect, learn
from hbench_detection.scores import scores_of
from hbench_detection.voc import VocPart, part_of

from tests.detection import shapes

SMALL = [
    "backbone=small", "weights=random", 'classes=["disc", "square", "bar"]', "batch=4", "warmup=5",
    "shorter=64", "longer=64", "epochs=4",
]  # fmt: skip
ROWS = {
    "cross-entropy, `lr` .02": ("voc07-cross-entropy", ["lr=.02"]),
    "cross-entropy, `lr` .01 (as shipped)": ("voc07-cross-entropy", []),
    "RaMBO, `memory` 7, `lr` .1 (as shipped)": ("voc07-rambo", []),
    "RaMBO, `memory` 7, `lr` .05": ("voc07-rambo", ["lr=.05"]),
    "RaMBO, `memory` 7, `lr` .02": ("voc07-rambo", ["lr=.02"]),
    "RaMBO, `memory` 2, `lr` .05": ("voc07-rambo", ["lr=.05", "classification.memory=2"]),
    "RaMBO, no memory, `lr` .05": ("voc07-rambo", ["lr=.05", "classification.memory=0"]),
}
SEEDS = (0, 1, 2)
EPOCHS = (1, 2, 4)


def main() -> None:
    """Train every row with every seed, and print the table."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    torch.set_num_threads(1)
    print("| | 75 steps | 150 | 300 |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        shapes.draw(Path(folder) / "VOC2007", "trainval", 300)
        shapes.draw(Path(folder) / "VOC2007", "test", 40)
        for label, (name, changes) in ROWS.items():
            by_seed = []
            for seed in SEEDS:
                recipe = resolve(name, [*SMALL, *changes, f"seed={seed}"])
                by_seed.append(ap50_by_epoch(recipe, Path(folder)))
            cells = [" ".join(f"{values[at]:.2f}"[1:] for values in by_seed) for at in EPOCHS]
            print(f"| {label} | {' | '.join(cells)} |", flush=True)


def ap50_by_epoch(recipe: DetectionRecipe, root: Path) -> dict[int, float]:
    """AP50 after each of EPOCHS of one run."""
    test = part_of(root, recipe.test, recipe.classes)
    torch.manual_seed(recipe.seed)
    model = detector_of(recipe)
    found = {}

    def score(epoch: int, _loss: float) -> None:
        """Score the net after this epoch, if it is one of EPOCHS."""
        if epoch in EPOCHS:
            found[epoch] = ap50_on(model, test, recipe)

    learn(model, part_of(root, recipe.train, recipe.classes), recipe, on_epoch=score)
    return found


def ap50_on(model: torch.nn.Module, test: VocPart, recipe: DetectionRecipe) -> float:
    """AP50 of what a net detects on the test pictures."""
    return scores_of(detect(model, test), test.boxes, recipe.classes).ap50


if __name__ == "__main__":
    main()
