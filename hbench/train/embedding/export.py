"""Writes a model as ONNX: from images as they are decoded, uint8 (B, C, size, size), to embeddings
of length 1, (B, D).

The file is compared with the model before it is kept. Its metadata say how an image is brought to
that size.
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

APART = 1e-5  # of a number of an embedding, at most
CHECKED = 4  # images
OPSET = 18


class FromBytes(nn.Module):
    """A net that takes images as they are decoded, uint8 (B, C, size, size), and returns embeddings
    of length 1, (B, D): the file then needs no further code around it."""

    def __init__(self, model: Embedder) -> None:
        """The net with the scaling of colours in front, so that both are in the file."""
        super().__init__()
        self.net = nn.Sequential(Normalise(model.images), model.model)

    def forward(self, images: Tensor) -> Tensor:
        return functional.normalize(self.net(images))


def export_onnx(model: Embedder, file: Path) -> float:
    """Write a model to a file of ONNX, and return by how much its embeddings differ at most from
    the model's, on random images. The model is on the processor.

    Raises UsageError for a file that exists, HBenchError where the embeddings differ by more than
    1e-5.
    """
    import onnx
    import onnxruntime  # type: ignore[import-untyped]

    if file.exists():
        raise UsageError(f"{file} exists", fix="remove it, or name another --onnx")
    # a net whose input are bytes (B, C, H, W): colours are scaled by mean and deviation inside
    net = FromBytes(model).eval()
    side = model.images.size
    shape = (CHECKED, len(model.images.mean), side, side)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    with replacing(file) as temporary:
        # for any number of images, and with the weights in the file itself
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
        # of another number of images than it was written with, to see that this number is free
        some = images[: CHECKED - 1]
        (found,) = session.run(None, {"images": some.numpy()})
        with torch.inference_mode():
            expected = net(some).numpy()
        apart = float(np.abs(found - expected).max())
        if not apart <= APART:  # so that NaN is refused, too
            raise HBenchError(
                "the embeddings of the ONNX file are not the model's, so it is not kept",
                expected=f"at most {APART:g} apart",
                found=f"{apart:.1e}",
            )
    return apart


def _about(model: Embedder) -> dict[str, str]:
    """Collect, as the file's metadata, what whoever runs it has to know: how to bring an image to
    what it takes, and what it returns. A model with a transform of its own says that in its
    identity, in place of the settings of images."""
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
