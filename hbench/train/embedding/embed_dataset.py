"""Embeds a dataset's images with any model into a file for `hbench evaluate`. The work is kept in
parts, so that it can be resumed.

The model is a checkpoint of `hbench train`, or a backbone, SOURCE:NAME, whose features are used as
embeddings.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import Dataset as TorchDataset

from hbench.core.arguments import checked, checked_class
from hbench.core.errors import DataError, UnknownName, UsageError
from hbench.core.untrusted import open_parquet
from hbench.datasets import Dataset, load
from hbench.datasets.manifest import Manifest
from hbench.submissions import embeddings
from hbench.train.embedding import made
from hbench.train.embedding.parts import (
    Piece,
    in_parts,
    in_words,
    join_parts,
    next_row,
    take_parts,
    write_part,
)
from hbench.train.images.batches import Batch, Files, all_tests, images_of, workers_for
from hbench.train.images.transforms import Normalise, Prepare, side_before_crop
from hbench.train.models.backbone import PRETRAINED, RANDOM
from hbench.train.models.backbones import build_backbone, refuse_unfit_size
from hbench.train.models.embed_images import Views, embeddings_of_images
from hbench.train.models.model import build_model
from hbench.train.models.weights import weights_digest
from hbench.train.processes import chosen_device, world_started
from hbench.train.recipes.consent import trust
from hbench.train.recipes.files import resolve
from hbench.train.recipes.own_code import OwnCode, is_own_code
from hbench.train.recipes.recipe import Images, Model
from hbench.train.records import checkpoints
from hbench.train.records.refusals import RECIPE, lost_its_weights
from hbench.train.steps.run import PRECISIONS, training_manifest


class Embedder(NamedTuple):
    """A model that embeds images.

    Attributes:
        model: the net.
        images: the settings of its images.
        identity: a text that tells models with different vectors apart, for resuming.
        prepare: the transform with which the model's source evaluates it, which is used instead of
            `images`; None if there is none.
        words: the arguments of `hbench embed` that load the model again; empty if no command can.
    """

    model: nn.Module
    images: Images
    identity: str
    prepare: Prepare | None = None
    words: tuple[str, ...] = ()


@checked_class
@dataclass(frozen=True)
class EmbedOptions:
    """Options of embedding.

    Attributes:
        batch: images at a time.
        workers: processes that decode image files. Default: one per processor, at most 10.
        scales: factors of the images' size; the vectors at all scales are averaged.
        flip: also average over mirrored images.
        precision: float32, bfloat16 or float16.
        part: a part is written after this number of images …
        seconds: … or after this time, whichever comes first.
        skip_unreadable: leave out images that cannot be read.
    """

    batch: int = 64
    workers: int | None = None
    scales: tuple[float, ...] = (1.0,)
    flip: bool = False
    precision: str = "float32"
    part: int = 4096
    seconds: float = 60.0
    skip_unreadable: bool = False

    @property
    def words(self) -> list[str]:
        """The options of `hbench embed` for these settings, without defaults and settings that do
        not affect the vectors."""
        words = []
        if self.scales != DEFAULT_OPTIONS.scales:
            words += ["--scales", ",".join(map(repr, self.scales))]  # repr keeps all digits
        if self.flip:
            words.append("--flip")
        if self.batch != DEFAULT_OPTIONS.batch:
            words += ["--batch", str(self.batch)]
        if self.precision != DEFAULT_OPTIONS.precision:
            words += ["--precision", self.precision]
        if self.skip_unreadable:
            words.append("--skip-unreadable")
        return words


DEFAULT_OPTIONS = EmbedOptions()


def embedder(
    source: str,
    *,
    size: int | None = None,
    weights: str = "pretrained",
    key_map: Path | None = None,
    net: str | None = None,
) -> Embedder:
    """Load the model of a run's folder or checkpoint, or SOURCE:NAME with its own pooling and
    without a projection.

    Args:
        source: the folder of a run or of a checkpoint, or SOURCE:NAME.
        size: the side of the images in pixels; None: the model's own.
        weights: "pretrained", "random", or a file.
        key_map: a TOML file that renames the keys of that file.
        net: FILE.py:NAME, for a run whose net is a program. Naming a program here is consent to run
            it.

    Raises:
        UnknownName: an unknown source or name.
        DataError: a checkpoint or weights that cannot be loaded.
    """
    for named in filter(is_own_code, (source, net or "")):
        trust(OwnCode.parse(named).file)
    folder = Path(source)
    # a path without ":" that does not exist is refused as a checkpoint, a plain name as a backbone
    if folder.exists() or (":" not in source and folder.name != source):
        if size or weights != PRETRAINED or key_map:
            raise UsageError(
                f"{folder} is of a run, which has its size and weights",
                fix="leave size, weights and key map out",
            )
        return _from_checkpoint(folder, net)

    # the arguments of `hbench embed` that load this model again
    loading = made.words_to_load(source, size=size, weights=weights, key_map=key_map)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # so that a resumed embedding has the same random weights
        backbone = build_backbone(source, weights=weights, pools=True, key_map=key_map)

    side = size or backbone.size
    if side != backbone.size:
        refuse_unfit_size(source, backbone, side, fix="leave the size out")
    # a net that was trained on centre crops gets the centre of a larger image
    resize = side_before_crop(side) if backbone.crops else side
    images = Images(size=side, resize=resize, mean=backbone.mean, std=backbone.std)
    # The identity tells models with different vectors apart, so that an embedding is not resumed
    # with another one. It has a digest of the weights: a name or a file may have others tomorrow.
    words = [source, weights, str(side), weights_digest(backbone.net)[:16]]
    if is_own_code(source):
        words.append(embeddings.digest([OwnCode.parse(source).file])[:16])
    identity = " ".join(words)
    if backbone.prepare is None:
        return Embedder(backbone.net, images, identity, words=loading)

    # the transform with which the net's source evaluates it is used instead of `images`
    transform = backbone.prepare(side)
    return Embedder(
        model=backbone.net,
        images=images,
        identity=f"{identity} {transform}",
        prepare=lambda image: transform(image.convert("RGB")),
        words=loading,
    )


@checked
def embed(
    model: str | Embedder,
    dataset: str | Path | Dataset,
    out: str | Path,
    *,
    split: str = "test",
    options: EmbedOptions = DEFAULT_OPTIONS,
    device: str = "auto",
    size: int | None = None,
    weights: str = "pretrained",
    key_map: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Path:
    """Embed a dataset's images with a model, in the order of the manifest, for `hbench.evaluate`.

    An interrupted embedding is resumed.

    Args:
        model: a run's folder or checkpoint, torchvision:NAME, timm:NAME, open_clip:ARCH/TAG,
            transformers:OWNER/NAME, or what `embedder` returned.
        dataset: a Dataset, or what `hbench.load` takes.
        out: a new .parquet, .npz or .npy file.
        split: "test" (default), "train", or the name of a test.
        options: an `EmbedOptions` of this module: batch, workers, scales, flip, precision ….
        device: a torch device. Default: "auto", a GPU if there is one.
        size: pixels of the images' sides. Default: the model's.
        weights: "pretrained" (default), "random", or a file.
        key_map: a TOML file that renames the keys of that file.
        on_progress: called with the number of images done and of all images.

    Returns:
        The path of the file.

    Raises:
        UnknownName: a model that does not exist.
        UsageError: a file that exists, or has unfinished parts of another model, split or options.
        DataError: an image that cannot be read, unless these are skipped.
    """
    # an Embedder has `prepare`, other objects such as a net have not
    if not isinstance(model, str) and not hasattr(model, "prepare"):
        raise UsageError(
            "model must be a text",
            expected="such as timm:resnet50 or ./FILE.py:NAME",
            found=type(model).__name__,
        )
    file = Path(out)
    data = dataset if isinstance(dataset, Dataset) else load(dataset)
    _refuse_file(file, options)
    chosen = _only_device(device)  # early, so that a missing device is refused before any work
    if isinstance(model, str):
        model = embedder(model, size=size, weights=weights, key_map=key_map)
    manifest = items_of(data, split)
    images = _images(model, data.name, manifest, options)
    request = _request(model, manifest, split, options)
    parts = take_parts(file, request)  # the folder of the parts that are finished
    _embed_the_rest(
        parts,
        model,
        images,
        options,
        number=len(manifest),
        device=chosen,
        on_row=lambda row: on_progress(row, len(manifest)),
    )

    on_progress(len(manifest), len(manifest))
    how = {
        "image_size": model.images.size,
        "made": made.command(model.words, data, split, options.words),
    }
    join_parts(parts, file, manifest, request | how)
    shutil.rmtree(parts)
    return file


def _only_device(device: str) -> torch.device:
    """Return the device of this name. Raises UsageError if it does not exist, and under torchrun
    with several processes, each of which would embed all images and write the same files."""
    world = world_started()
    if world > 1:
        raise UsageError(
            "hbench embed works in one process",
            found=f"{world} processes of torchrun",
            fix="leave torchrun out; hbench train embeds by all of its processes",
        )
    return chosen_device(device)


def _images(
    model: Embedder, name: str, manifest: Manifest, options: EmbedOptions
) -> TorchDataset[Batch]:
    """Open the images of a manifest of the dataset `name` as the model needs them. Raises DataError
    if they are not on this disk. Only images from files can be unreadable and be skipped."""
    if model.prepare:  # the transform of the model's source, which replaces `model.images`
        images: TorchDataset[Batch] = Files(manifest, model.prepare)
    else:
        images = images_of(name, manifest, model.images, vary=False)
    if options.skip_unreadable and isinstance(images, Files):
        images.skips = True
    return images


def _embed_the_rest(
    parts: Path,
    model: Embedder,
    images: TorchDataset[Batch],
    options: EmbedOptions,
    *,
    number: int,
    device: torch.device,
    on_row: Callable[[int], None],
) -> None:
    """Embed the images that no part in the folder `parts` has yet, and write them as further parts.

    `number`: of all images. `on_row`: called with the number of images done so far, those of
    earlier runs included.
    """
    left = np.arange(next_row(parts), number)
    for part in _embed_rows(model, images, left, options, device=device, on_row=on_row):
        write_part(parts, part)


def _embed_rows(
    model: Embedder,
    images: TorchDataset[Batch],
    rows: NDArray[np.int64],
    options: EmbedOptions,
    *,
    device: torch.device,
    on_row: Callable[[int], None],
) -> Iterator[Piece]:
    """Embed the images of these rows (n,) of the manifest. Yield parts: some of the rows, and their
    vectors. A part ends after `options.part` images or `options.seconds`, whichever comes first.
    `on_row`: called with the row after the last one done.
    """
    # averages the vectors at all scales and, with `flip`, of mirrored images
    views = Views(model.model, options.scales, flip=options.flip)
    net = nn.Sequential(Normalise(model.images), views).to(device).eval()
    workers = workers_for(images, model.images) if options.workers is None else options.workers
    with torch.autocast(
        device.type, PRECISIONS[options.precision], enabled=options.precision != "float32"
    ):
        pieces = embeddings_of_images(  # of batches, (rows, vectors) each
            net, images, rows, batch=options.batch, workers=workers, device=device
        )
        yield from in_parts(pieces, options.part, options.seconds, on_row)


def refuse_existing(file: Path) -> None:
    """Raise UsageError if a file exists, or if embeddings cannot be written in its format."""
    if file.exists():
        raise UsageError(f"{file} exists", fix="remove it, or name another --out")
    embeddings.refuse_suffix(file)


def _refuse_file(file: Path, options: EmbedOptions) -> None:
    """Raise UsageError if embeddings cannot be written to a file. If unreadable images are skipped,
    it needs a format that can list them."""
    refuse_existing(file)
    if options.skip_unreadable and file.suffix not in embeddings.KEEP_LEFT_OUT:
        raise UsageError(
            f"{file} could not say which images are left out",
            expected=" or ".join(embeddings.KEEP_LEFT_OUT),
            found=file.suffix or "no suffix",
            fix="name another --out, such as embeddings.parquet",
        )


def is_embedded(
    model: Embedder, file: Path, data: Dataset, split: str, options: EmbedOptions
) -> bool:
    """Whether a parquet file already has the embeddings that `embed` would write. Its metadata tell
    the model, images and options. False: there is no such file. Raises UsageError for a file with
    other embeddings, and for one that cannot be read.
    """
    if not file.exists():
        return False

    # {key: text}, as the metadata have it, there with keys that begin with "hbench."
    expected = in_words(_request(model, items_of(data, split), split, options))
    try:
        with open_parquet(file) as parquet:
            stored = {
                key.decode(): value.decode()
                for key, value in (parquet.schema_arrow.metadata or {}).items()
            }
    except (OSError, ValueError, pa.ArrowException):
        stored = {}  # not a parquet file: treated as one with other embeddings

    if others := [key for key, value in expected.items() if stored.get(f"hbench.{key}") != value]:
        raise UsageError(
            f"{file} holds other embeddings",
            expected="those of this model, dataset and options",
            found=f"another {others[0]}",
            fix="remove it, or name another --out",
        )

    return True


def _request(
    model: Embedder, manifest: Manifest, split: str, options: EmbedOptions
) -> dict[str, object]:
    """Collect the values that identify embeddings: {name: value}. Parts and files with other values
    are of another model, split or other options."""
    without_effect = {"workers", "part", "seconds"}  # may differ between attempts
    settings = {
        name: value for name, value in asdict(options).items() if name not in without_effect
    }
    return {"model": model.identity, "manifest": manifest.digest, "split": split, **settings}


def _from_checkpoint(path: Path, net: str | None) -> Embedder:
    """Load the model of a run's folder, or of one of its checkpoints. A net that is a program is
    run only if the user names it as `net`, FILE.py:NAME, or has consented before: somebody else may
    have written the recipe in the folder."""
    if lost_its_weights(path):
        raise DataError(
            f"the weights of the run in {path} were deleted",
            expected="a checkpoint in it",
            fix=f"hbench train {path / RECIPE} --out ANOTHER_FOLDER trains it again",
        )
    folder = checkpoints.best(path)  # of a run the best checkpoint, of a checkpoint itself
    files_of_recipe = [folder / RECIPE, folder.parent / RECIPE]
    recipe_file = next(filter(Path.exists, files_of_recipe), None)
    if recipe_file is None:
        raise DataError(
            f"{folder} has no recipe", expected=f"{RECIPE} in it or in the folder of its run"
        )
    recipe = resolve(str(recipe_file))
    backbone = recipe.model.backbone
    if is_own_code(backbone) and net is None and not OwnCode.parse(backbone).is_trusted():
        raise UsageError(
            f"the net of {folder} is a program, which its recipe does not run by itself",
            found=backbone,
            fix=f"--net {backbone}, or where that program lies now",
        )
    # random weights, since the checkpoint replaces them: pretrained ones need not be fetched
    changes = {"weights": RANDOM, "backbone": net or backbone}
    settings = Model(**{**recipe.model.model_dump(), **changes})
    model = build_model(settings, recipe.images)
    checkpoints.load_model(folder, model)
    digest = hashlib.sha256((folder / checkpoints.MODEL).read_bytes()).hexdigest()
    return Embedder(model, recipe.images, f"checkpoint {digest}")


def items_of(data: Dataset, split: str) -> Manifest:
    """Return the manifest of a split: "train", "test" (the items of all tests), or the name of a
    test."""
    if split == "train":
        return training_manifest(data)
    if split == "test":
        return all_tests(data)
    if split not in data.tests:
        # each name once: a test may be named "test"
        raise UnknownName("split", split, list(dict.fromkeys(["train", "test", *data.tests])))
    return data.tests[split]
