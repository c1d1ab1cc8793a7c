"""hbench embed: embed a dataset's images with a model."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from hbench.cli.embed_options import (
    IMAGES,
    MODEL,
    NAMES,
    ImageOptions,
    ModelOptions,
    NameOptions,
)
from hbench.cli.names import DATASET, FILE
from hbench.cli.option_blocks import given_among
from hbench.cli.terminal import progress, say

if TYPE_CHECKING:
    from hbench.core.errors import HBenchError
    from hbench.datasets import Dataset
    from hbench.train.embedding.embed_dataset import Embedder, EmbedOptions

EVERY = 10  # seconds between two lines, where no bar is watched
# the parameters that --names has no use for
OF_IMAGES_ALONE = (
    "models",
    "size",
    "scales",
    "flip",
    "workers",
    "precision",
    "skip_unreadable",
    "key_map",
    "net",
    "trust_code",
)


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
@MODEL
@IMAGES
@click.option(
    "--trust-code",
    multiple=True,
    type=FILE,
    help="Let this Python file run, which --models names; remembered until it changes.",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:1.")
@NAMES
def command(
    model: str | None,
    models: Path | None,
    dataset: str,
    out: Path,
    split: str,
    *,
    loading: ModelOptions,
    images: ImageOptions,
    trust_code: tuple[Path, ...],
    device: str,
    naming: NameOptions,
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
    if naming.names:
        _refuse_options_of_images()
        if model is None:
            raise click.UsageError("Give MODEL: --names takes one model.")
        text_model = TextModel(model, loading.weights, images.batch, device)
        _embed_names(text_model, dataset, out, split=split, naming=naming)
        return
    naming.refuse_for_images()  # options of names, without --names
    if (model is None) == (models is None):  # neither or both
        raise click.UsageError("Give either MODEL or --models.")

    from hbench import datasets
    from hbench.train.embedding.embed_models import read_models
    from hbench.train.processes import chosen_device
    from hbench.train.recipes.consent import trust

    for file in trust_code:
        trust(file)
    listed = read_models(models, out) if models else {}  # {model: file to write}
    chosen_device(device)  # one that is not there is refused before any model is loaded
    of_split = SplitImages(datasets.load(dataset), split, images.options, device)
    if model is not None:
        _embed_with_one(loading.load(model), of_split, dataset, out)
    else:
        _embed_with_list(listed, of_split, dataset, out, load_model=loading.load)


def _refuse_options_of_images() -> None:
    """Raise UsageError where an option was given that names have no use for."""
    if given := given_among(OF_IMAGES_ALONE):
        raise click.UsageError(f"--names takes no {', '.join(given)}: it is of images.")


class TextModel(NamedTuple):
    """The model that embeds names: its name, its weights, the batch size, and the device."""

    name: str
    weights: str
    batch: int
    device: str


def _embed_names(
    model: TextModel, dataset: str, out: Path, *, split: str, naming: NameOptions
) -> None:
    """Embed the names of the nodes of a split's tree, with a progress bar, and print what was
    embedded and what to do next."""
    from hbench import datasets
    from hbench.evaluation.by_name.nodes import paths_of
    from hbench.train.embedding.embed_dataset import items_of
    from hbench.train.embedding.embed_names import PHOTO, embed_names, first_sentences
    from hbench.train.embedding.other_names import read_names

    data = datasets.load(dataset)
    # the sentences into which each name is put; by default one about a photo
    sentences = naming.templates or (PHOTO,)
    with progress() as bars:
        task = bars.add_task(f"embedding names of {data.name}", total=None)
        embed_names(
            model.name,
            data,
            out,
            split=split,
            templates=sentences,
            other_names=naming.other_names,
            language=naming.language,
            weights=model.weights,
            batch=model.batch,
            device=model.device,
            on_progress=lambda done, number: bars.update(task, completed=done, total=number),
        )
    # read --other-names again, to print for how many nodes it has names: {path of a node: names}
    others = None
    if naming.other_names is not None:
        tree = items_of(data, split).tree
        others = read_names(naming.other_names, tree, naming.language)
        say(f"{len(others):,} of {len(paths_of(tree)):,} nodes have other names")
    # print a few of the embedded sentences, so that the user notices a wrong template
    first = first_sentences(data, split, sentences[0], others)
    shown = ", ".join(f"“{text}”" for text in first)
    say(f"embedded sentences such as {shown}")
    say(f"wrote {out}: hbench evaluate IMAGES --dataset {dataset} --nodes {out}")


def _embed_with_one(net: Embedder, images: SplitImages, dataset: str, out: Path) -> None:
    """Embed the images of a split with one model, and print what to do next."""
    embed_split(net, images, out)
    command = f"hbench evaluate {out} --dataset {dataset}"
    if images.split == "train":
        command += " needs the test items"
    say(f"wrote {out}: {command}")


def _embed_with_list(
    listed: dict[str, Path],
    images: SplitImages,
    dataset: str,
    out: Path,
    *,
    load_model: Callable[[str], Embedder],
) -> None:
    """Embed the images of a split with every model of a list, each to its file in the folder `out`.
    At the end all models that failed are named together. `listed`: {model: file}. `load_model`:
    loads a model by its name."""
    from hbench.train.embedding.embed_models import refuse_failed

    failed = _embed_with_each(images, listed, load_model)
    # say the next step if any model succeeded; items of the split `train` are never scored
    if len(failed) < len(listed) and images.split != "train":
        say(f"hbench evaluate-all {out} --dataset {dataset} --out REPORTS compares them")
    refuse_failed(failed, len(listed))


class SplitImages(NamedTuple):
    """The images of a split, and the options of embedding them."""

    data: Dataset
    split: str
    options: EmbedOptions
    device: str


def _embed_with_each(
    images: SplitImages, listed: dict[str, Path], load_model: Callable[[str], Embedder]
) -> dict[str, HBenchError]:
    """Embed with every model of a list, unless its file exists already. Return {model: error} of
    the models that failed. `listed`: {model: file}. `load_model`: loads a model by its name."""
    from hbench.train.embedding.embed_dataset import is_embedded
    from hbench.train.embedding.embed_models import embed_models

    def embed_unless_there(name: str, file: Path) -> str:
        """Embed with the model `name`, and return the outcome in words. The model is always loaded,
        since only the model tells whether an existing file has its embeddings."""
        given = load_model(name)
        if is_embedded(given, file, images.data, images.split, images.options):
            return f"{file} is there"
        embed_split(given, images, file)
        return f"wrote {file}"

    return embed_models(listed, embed_unless_there, lambda name, outcome: say(f"{name}: {outcome}"))


def embed_split(given: Embedder, images: SplitImages, file: Path) -> None:
    """Embed the images of a split with the model `given` into a file, with a progress bar or,
    without a terminal, a line from time to time. Finally print which images were left out."""
    import hbench
    from hbench.core.errors import examples
    from hbench.submissions import embeddings

    data, split, options, device = images
    with progress() as bars:
        task = bars.add_task(f"embedding {data.name} {split}", total=None)
        last_said = time.monotonic()
        said = 0  # the number of images that the last line named; 0: no line yet

        def watch(done: int, number: int) -> None:
            """Move the bar to `done` of `number` images. Without a terminal the bar is disabled:
            print a line every EVERY seconds instead and, if any was printed, one at the end."""
            nonlocal last_said, said
            bars.update(task, completed=done, total=number)
            is_due = time.monotonic() - last_said >= EVERY or (said and done == number)
            if bars.disable and is_due and done != said:
                last_said = time.monotonic()
                said = done
                say(f"embedded {done:,} of {number:,} images")

        hbench.embed(
            given, data, file, split=split, options=options, device=device, on_progress=watch
        )
    # the file lists the images that were left out, which happens with --skip-unreadable only
    left_out = embeddings.read(file).left_out if options.skip_unreadable else ()
    if left_out:
        say(f"left out {len(left_out):,} images that cannot be read: {examples(left_out)}")
