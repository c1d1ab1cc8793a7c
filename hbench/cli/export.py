"""hbench export: a model as a file that other programs run."""

from pathlib import Path

import click

from hbench.cli.embed_options import NET
from hbench.cli.names import OUT_FILE
from hbench.cli.terminal import say


@click.command("export")
@click.argument("model")
@click.option("--onnx", "file", type=OUT_FILE, required=True, help="The file to write: model.onnx.")
@NET
def command(model: str, file: Path, net: str | None) -> None:
    """Write MODEL, a run's folder or what `hbench embed` takes, as ONNX.

    It takes images as they are decoded, uint8 (B, C, size, size), and gives embeddings of length 1.
    Its metadata say how an image is brought to that size. The file is run on random images and kept
    only if its embeddings are the model's to 1e-5.

    Example: hbench export runs/birds --onnx birds.onnx
    """
    from hbench.train.embedding.embed_dataset import embedder
    from hbench.train.embedding.export import export_onnx

    apart = export_onnx(embedder(model, net=net), file)
    say(f"wrote {file}: on random images its embeddings differ from the model's by {apart:.0e}")
