"""Exports a model as ONNX. The exported net takes decoded images, uint8 (B, C, size, size), and
returns embeddings of length 1, (B, D).

The file is kept only if its embeddings equal those of the model. Its metadata say how to resize
images.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hbench.core.errors import HBenchError, UsageError
from hbench.core.files import replacing
from hbench.train.embedding.embed_dataset import Embedder
from hbench.train.images.transforms import Normalise

APART = 1e-5  # the largest allowed difference of a coordinate
CHECKED = 4  # random images for the export; one fewer are compared
OPSET = 18  # the version of ONNX's operators


class FromBytes(nn.Module):
    """A net that takes decoded images, uint8 (B, C, size, size), and returns embeddings of length
    1, (B, D), so that its users need no further code."""

    def __init__(self, model: Embedder) -> None:
        """Put the normalisation of colours before the net, so that the file has both."""
        super().__init__()
        self.net = nn.Sequential(Normalise(model.images), model.model)

    def forward(self, images: Tensor) -> Tensor:
        return functional.normalize(self.net(images))


def export_onnx(model: Embedder, file: Path) -> float:
    """Write a model, which is on the CPU, to an ONNX file. Return the largest difference between
    the coordinates of its embeddings and those of the model, on random images.

    Raises UsageError if the file exists, HBenchError if the embeddings differ by more than 1e-5.
    """
    import onnx
    import onnxruntime  # type: ignore[import-untyped]

    if file.exists():
        raise UsageError(f"{file} exists", fix="remove it, or name another --onnx")
    net = FromBytes(model).eval()  # normalises the colours of decoded images, then embeds
    side = model.images.size
    shape = (CHECKED, len(model.images.mean), side, side)  # `mean` has a number for each colour
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    with replacing(file) as temporary:
        # with a variable number of images, and with the weights in the file itself
        torch.onnx.export(
            net,
            (images,),
            temporary,
            input_names=["images"],
            output_names=["embeddings"],
            dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        graph = onnx.load(temporary)
        onnx.helper.set_model_props(graph, _about(model))
        onnx.save(graph, temporary)

        session = onnxruntime.InferenceSession(str(temporary), providers=["CPUExecutionProvider"])
        # compare on another number of images than in the export, to check that it is variable
        some = images[: CHECKED - 1]
        (found,) = session.run(None, {"images": some.numpy()})
        with torch.inference_mode():
            expected = net(some).numpy()
        apart = float(np.abs(found - expected).max())
        if not apart <= APART:  # also true for NaN
            raise HBenchError(
                "the embeddings of the ONNX file are not the model's, so it is not kept",
                expected=f"at most {APART:g} apart",
                found=f"{apart:.1e}",
            )
    return apart


def _about(model: Embedder) -> dict[str, str]:
    """Collect the file's metadata for its users: how to prepare images, and what the model takes
    and returns.

    If a model has its own transform, the settings of images other than the size do not apply. In
    their place, the file has the model's identity, a text that includes the transform.
    """
    images: dict[str, Any] = model.images.model_dump(mode="json")
    kept = ("size", "resize", "test_fit", "interpolation")
    how: dict[str, Any] = {key: images[key] for key in kept}
    if model.prepare is not None:
        how = {"size": images["size"], "transform": model.identity}
    return {
        "images": json.dumps(how),
        "input": "uint8 (B, C, size, size), as decoded: the file normalises them",
        "output": "float32 (B, D), of length 1",
    }
