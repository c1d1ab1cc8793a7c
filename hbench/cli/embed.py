"""hbench embed: embed a dataset's images with a model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from hbench.cli.names import DATASET, FILE
from hbench.cli.terminal import progress, say

if TYPE_CHECKING:
    from hbench.core.errors import HBenchError
    from hbench.datasets import Dataset
    from hbench.train.embedding.embed_dataset import Embedder, EmbedOptions

EVERY = 10  # seconds between two lines, where no bar is watched
OF_MODEL = ("size", "weights", "key_map", "net")
OF_IMAGES = {
    "models", "size", "scales", "flip", "workers", "precision", "skip_unreadable", "key_map", "net",
    "trust_code",
}  # fmt: skip


def _scales(_context: click.Context, _option: click.Parameter, text: str) -> tuple[float, ...]:
    try:
        scales = tuple(float(part) for part in text.split(","))
    except ValueError:
        scales = ()
    if not scales or not all(0 < scale < math.inf for scale in scales):
        raise click.BadParameter(f"{text!r}: expected numbers above 0, such as 1,0.7071,0.5")
    return scales


@click.command("embed")
@click.argument("model", required=False)
@click.option(
    "--models", type=FILE, help="Instead of MODEL: a file with a model per line; --out is a folder."
)
@click.option("--dataset", "-d", type=DATASET, required=True, help="A dataset's name or folder.")
@click.option(
    "--out",
    "-o",
    required=True,
    type=FILE,
    help="The file: .parquet, .npz or .npy; of --models, their folder.",
)
@click.option(
    "--split",
    default="test",
    show_default=True,
    help="train, test (all tests), or one test by its name.",
)
@click.option(
    "--size", type=click.IntRange(min=1), help="Side of the images.  [default: the model's]"
)
@click.option(
    "--weights",
    default="pretrained",
    show_default=True,
    help="pretrained, random, or a file of weights.",
)
@click.option(
    "--scales",
    default="1",
    show_default=True,
    callback=_scales,
    help="Embed at several scales and take the mean: 1,0.7071,0.5.",
)
@click.option("--flip", is_flag=True, help="Embed the mirrored image too, and take the mean.")
@click.option(
    "--batch", type=click.IntRange(min=1), default=64, show_default=True, help="Images at a time."
)
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    help="Processes that decode.  [default: one per processor, to 10]",
)
@click.option(
    "--precision",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    default="float32",
    show_default=True,
)
@click.option(
    "--skip-unreadable", is_flag=True, help="Leave out images that cannot be read, and name them."
)
@click.option(
    "--key-map", type=FILE, help="TOML that renames keys of a file of weights: old = new."
)
@click.option(
    "--net", metavar="FILE.py:NAME", help="Of a run whose net is a program: that program."
)
@click.option(
    "--trust-code",
    multiple=True,
    type=FILE,
    help="Let this Python file run, which --models names; remembered until it changes.",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:1.")
@click.option(
    "--names", is_flag=True, help="Embed the names of the tree's nodes instead, for --nodes."
)
@click.option(
    "--template",
    "templates",
    multiple=True,
    metavar="TEXT",
    help="With --names: a sentence with {} for the name, or {path}; of several, the mean.  "
    "[default: a photo of {}]",
)
@click.option(
    "--other-names",
    type=FILE,
    help="With --names: a table of further names: node, name and, perhaps, language.",
)
@click.option("--language", help="Of --other-names, only these, in place of a node's own name.")
def command(
    model: str | None,
    models: Path | None,
    dataset: str,
    out: Path,
    split: str,
    *,
    names: bool,
    templates: tuple[str, ...],
    **options: Any,
) -> None:
    """Embed every image of a split with MODEL, in manifest order; interrupted, the same command
    resumes. With --names, embed the names of its tree.

    \b
    MODEL: a run's folder or checkpoint, torchvision:resnet50, timm:NAME, open_clip:ARCH/TAG, or
    transformers:OWNER/NAME of the Hugging Face hub (timm:hf-hub:OWNER/NAME,
    open_clip:hf-hub:OWNER/NAME): with its own transform, at its own size;
    or ./FILE.py:NAME, a net of your own.

    Of --models, one that cannot be had is named at the end (exit code 4) and the others continue.

    \b
    Example: hbench embed torchvision:resnet50 --dataset sop --out sop-r50.parquet
             hbench embed --models models.txt --dataset sop --out embeddings/
             hbench embed open_clip:ViT-B-16/openai -d sop --names -o names.parquet
    """
    if names:
        _refuse_options_of_images(click.get_current_context())
        kept = ("weights", "batch", "device", "other_names", "language")
        choices = {key: options[key] for key in kept}
        _embed_names(model, dataset, out, split=split, templates=templates, choices=choices)
        return
    others = [options.pop(name) for name in ("other_names", "language")]
    if templates or any(others):
        raise click.UsageError(
            "--template, --other-names and --language are of --names: images have no sentences."
        )
    if (model is None) == (models is None):
        raise click.UsageError("Give either MODEL or --models.")
    _embed_images(model, models, dataset, out, split=split, options=options)


def _refuse_options_of_images(context: click.Context) -> None:
    """Raise UsageError where an option was given that names have no use for."""
    given = [
        f"--{name.replace('_', '-')}"
        for name in context.params
        if name in OF_IMAGES and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"--names takes no {', '.join(given)}: it is of images.")


def _embed_names(
    model: str | None,
    dataset: str,
    out: Path,
    *,
    split: str,
    templates: tuple[str, ...],
    choices: dict[str, Any],
) -> None:
    """Embed the names of nodes, with a bar, and say what was embedded and what comes next."""
    from hbench import datasets
    from hbench.evaluation.by_name.nodes import paths_of
    from hbench.train.embedding.embed_dataset import items_of
    from hbench.train.embedding.embed_names import PHOTO, embed_names, first_sentences
    from hbench.train.embedding.other_names import read_names

    if model is None:
        raise click.UsageError("Give MODEL: --names takes one model.")
    data = datasets.load(dataset)
    sentences = templates or (PHOTO,)
    with progress() as bars:
        task = bars.add_task(f"embedding names of {data.name}", total=None)
        embed_names(
            model,
            data,
            out,
            split=split,
            templates=sentences,
            on_progress=lambda done, number: bars.update(task, completed=done, total=number),
            **choices,
        )
    others = None
    if choices["other_names"] is not None:
        tree = items_of(data, split).tree
        others = read_names(choices["other_names"], tree, choices["language"])
        say(f"{len(others):,} of {len(paths_of(tree)):,} nodes have other names")
    first = first_sentences(data, split, sentences[0], others)
    shown = ", ".join(f"“{text}”" for text in first)
    say(f"embedded sentences such as {shown}")
    say(f"wrote {out}: hbench evaluate IMAGES --dataset {dataset} --nodes {out}")


def _embed_images(
    model: str | None,
    models: Path | None,
    dataset: str,
    out: Path,
    *,
    split: str,
    options: dict[str, Any],
) -> None:
    """Embed the images of a split with one model, or with every model of a list."""
    from hbench import datasets
    from hbench.train.embedding import embed_dataset as embedding
    from hbench.train.embedding.embed_models import read_models, refuse_failed
    from hbench.train.processes import chosen_device
    from hbench.train.recipes.consent import trust

    for file in options.pop("trust_code"):
        trust(file)
    listed = read_models(models, out) if models else {}
    of_model: dict[str, Any] = {name: options.pop(name) for name in OF_MODEL}
    device = options.pop("device")
    chosen_device(device)  # one that is not there is refused before any model is loaded
    images = SplitImages(datasets.load(dataset), split, embedding.EmbedOptions(**options), device)

    def load_model(name: str) -> Embedder:
        return embedding.embedder(name, **of_model)

    if model is None:
        failed = _embed_with_each(images, listed, load_model)
        if len(failed) < len(listed) and split != "train":
            say(f"hbench evaluate-all {out} --dataset {dataset} --out REPORTS compares them")
        refuse_failed(failed, len(listed))
        return

    embed_split(load_model(model), images, out)
    command = f"hbench evaluate {out} --dataset {dataset}"
    if split == "train":
        command += " needs the test items"
    say(f"wrote {out}: {command}")


class SplitImages(NamedTuple):
    """The images of a split, and how they are embedded."""

    data: Dataset
    split: str
    options: EmbedOptions
    device: str


def _embed_with_each(
    images: SplitImages, listed: dict[str, Path], load_model: Callable[[str], Embedder]
) -> dict[str, HBenchError]:
    """Embed with every model of a list whose file is not there; return the errors of those that
    fail.
    """
    from hbench.train.embedding.embed_dataset import is_embedded
    from hbench.train.embedding.embed_models import embed_models

    def embed_unless_there(name: str, file: Path) -> str:
        given = load_model(name)
        if is_embedded(given, file, images.data, images.split, images.options):
            return f"{file} is there"
        embed_split(given, images, file)
        return f"wrote {file}"

    return embed_models(listed, embed_unless_there, lambda name, outcome: say(f"{name}: {outcome}"))


def embed_split(given: Embedder, images: SplitImages, file: Path) -> None:
    """Embed with a bar, or a line from time to time where no bar is watched."""
    import hbench
    from hbench.core.errors import examples
    from hbench.submissions import embeddings

    data, split, options, device = images
    with progress() as bars:
        task = bars.add_task(f"embedding {data.name} {split}", total=None)
        last_said = [time.monotonic()]

        def watch(done: int, number: int) -> None:
            bars.update(task, completed=done, total=number)
            if bars.disable and time.monotonic() - last_said[-1] >= EVERY:
                last_said.append(time.monotonic())
                say(f"embedded {done:,} of {number:,} images")

        hbench.embed(
            given, data, file, split=split, options=options, device=device, on_progress=watch
        )
    left_out = embeddings.read(file).left_out if options.skip_unreadable else ()
    if left_out:
        say(f"left out {len(left_out):,} images that cannot be read: {examples(left_out)}")
