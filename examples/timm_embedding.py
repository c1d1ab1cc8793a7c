"""Embeds a dataset's test images by a timm model, and scores them. Real weights:
pretrained=True."""

import timm
import torch
from timm.data import create_transform, resolve_model_data_config

import hbench

if __name__ == "__main__":
    test = hbench.load("glyphs").tests["test"]
    model = timm.create_model("resnet10t", pretrained=False, num_classes=0).eval()
    transform = create_transform(
        **resolve_model_data_config(model) | {"input_size": (3, 32, 32)}, is_training=False
    )
    # every fortieth letter, so that the example takes seconds
    places = range(0, len(test.items), 40)
    with torch.inference_mode():
        images = torch.stack(
            [transform(test.picture(test.items[at]).convert("RGB")) for at in places]
        )
        vectors = model(images)
    report = hbench.score(
        vectors,
        test.labels[list(places)],
        level_names=test.tree.levels,
        metrics=["H-AP", "AP/script"],
    )
    print(report.scores)
