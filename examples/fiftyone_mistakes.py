"""Writes labels and each query's H-AP in the format of FiftyOne's
FiftyOneImageClassificationDataset, to browse the mistakes there.

Then: fiftyone.Dataset.from_dir("mistakes",
dataset_type=fiftyone.types.FiftyOneImageClassificationDataset)
"""

import json
from pathlib import Path

import numpy as np

import hbench

if __name__ == "__main__":
    test, folder = hbench.load("glyphs").tests["test"], Path("mistakes")
    (folder / "data").mkdir(parents=True)
    items = test.items[::40].tolist()  # every fortieth letter, so that the example takes seconds
    pictures = [test.picture(item).convert("L") for item in items]
    for place, picture in enumerate(pictures):
        picture.save(folder / "data" / f"{place}.png")

    labels, tree = test.labels[::40], test.tree
    vectors = np.stack([np.asarray(picture, dtype=np.float32).ravel() for picture in pictures])
    scores = hbench.score(vectors, labels, level_names=tree.levels, metrics=["H-AP"]).per_query[
        "H-AP"
    ]
    paths = [
        [names[node] for names, node in zip(tree.names, row, strict=True)]
        for row in labels.tolist()
    ]
    described = {
        str(place): {
            "label": path[-1],
            "attributes": {**dict(zip(tree.levels, path, strict=True)), "h_ap": score},
        }
        for place, (path, score) in enumerate(zip(paths, scores.tolist(), strict=True))
        if np.isfinite(score)  # a query without any positive has none
    }
    (folder / "labels.json").write_text(
        json.dumps({"labels": described}, ensure_ascii=False), encoding="utf-8"
    )
    worst = min(described.values(), key=lambda each: each["attributes"]["h_ap"])
    print(len(described), "labels; the worst is a", worst["attributes"]["script"], "letter")
