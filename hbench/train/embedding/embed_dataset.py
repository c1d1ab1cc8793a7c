"""Embeds a dataset's images with any model, in resumable parts, into a file for `hbench evaluate`.

The model is a checkpoint of `hbench train`, or a backbone, SOURCE:NAME, whose features are the
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
from hbench.train.records.refusals import RECIPE
from hbench.train.steps.run import PRECISIONS, training_manifest


class Embedder(NamedTuple):
    """A model, and the settings of its images. `identity`: a text of all that its vectors depend
    on, which other parts of an embedding are compared with. `prepare`: the transform with which its
    source evaluates it, where it has one, in place of `images`. `words`: those of `hbench embed`
    that load it again, none for a model that no command loads.
    """

    model: nn.Module
    images: Images
    identity: str
    prepare: Prepare | None = None
    words: tuple[str, ...] = ()


@checked_class
@dataclass(frozen=True)
class EmbedOptions:
    """Options of embedding: `batch` images at a time, at `scales` of their size, also mirrored if
    `flip`.

    A part is written after `part` images or `seconds`, whichever comes first. `workers` processes
    decode image files (None: one per processor, at most 10). `precision`: float32, bfloat16 or
    float16. `skip_unreadable`: leave out images that cannot be read.
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
        """The options of `hbench embed` that say these settings, as far as vectors depend on them
        and they are not the default."""
        words = []
        if self.scales != DEFAULT_OPTIONS.scales:
            words += ["--scales", ",".join(map(repr, self.scales))]  # to the last digit
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
    """Load the model of a run's folder or checkpoint, or of SOURCE:NAME with its own pooling and
    without a projection. `net`: of a run whose net is a program, FILE.py:NAME, that program.

    A program that is named here is run, and consented to. Raises UnknownName, and DataError where a
    checkpoint or weights cannot be loaded. `size`: pixels of the sides, None for the model's own;
    `weights`, `key_map`: as of `embed`.
    """
    for named in filter(is_own_code, (source, net or "")):
        trust(OwnCode.parse(named).file)
    folder = Path(source)
    # a path that is not there is refused as a checkpoint, a bare name without ":" as a backbone
    if folder.exists() or (":" not in source and folder.name != source):
        if size or weights != PRETRAINED or key_map:
            raise UsageError(
                f"{folder} is of a run, which has its size and weights",
                fix="leave size, weights and key map out",
            )
        return _from_checkpoint(folder, net)

    loading = made.words_to_load(source, size=size, weights=weights, key_map=key_map)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # random weights are the same when an embedding is resumed
        backbone = build_backbone(source, weights=weights, pools=True, key_map=key_map)

    side = size or backbone.size
    if side != backbone.size:
        refuse_unfit_size(source, backbone, side, fix="leave the size out")
    # a net that was trained on centre crops gets the middle of a larger image
    resize = side_before_crop(side) if backbone.crops else side
    images = Images(size=side, resize=resize, mean=backbone.mean, std=backbone.std)
    # the weights themselves: those of a name may be others tomorrow, as those of a file may
    words = [source, weights, str(side), weights_digest(backbone.net)[:16]]
    if is_own_code(source):
        words.append(embeddings.digest([OwnCode.parse(source).file])[:16])
    identity = " ".join(words)
    if backbone.prepare is None:
        return Embedder(backbone.net, images, identity, words=loading)

    transform = backbone.prepare(side)
    return Embedder(
        backbone.net,
        images,
        f"{identity} {transform}",
        lambda image: transform(image.convert("RGB")),
        loading,
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
        on_progress: is called with the number of images done and of all images.

    Returns:
        The path of the file.

    Raises:
        UnknownName: a model that does not exist.
        UsageError: a file that exists, or another run's.
        DataError: an image that cannot be read, unless these are skipped.
    """
    if not isinstance(model, str) and not hasattr(model, "prepare"):
        raise UsageError(
            "model must be a text",
            expected="such as timm:resnet50 or ./FILE.py:NAME",
            found=type(model).__name__,
        )
    file = Path(out)
    data = dataset if isinstance(dataset, Dataset) else load(dataset)
    _refuse_file(file, options)
    chosen = _only_device(device)  # first, so that an absent one is refused before any work
    if isinstance(model, str):
        model = embedder(model, size=size, weights=weights, key_map=key_map)
    manifest = items_of(data, split)
    images = _images(model, data.name, manifest, options)
    request = _request(model, manifest, split, options)
    parts = take_parts(file, request)
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
    """Return the device of this name. Raises UsageError where it is not there, and for one of
    several processes of torchrun: each would embed all images, and write the same files."""
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
    """Open the images of a manifest, of the dataset called `name`, as the model takes them; raises
    DataError where they are not on this disk. Only images that are decoded from files can be
    unreadable, so only those can be skipped."""
    if model.prepare:
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
    """Embed those of the `number` images that no part in the folder `parts` has, and write them as
    further parts; `on_row` is called with the number of images done so far."""
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
    """Embed the images of these rows (n,) of the manifest; yield them in parts of the size that the
    options say, (rows, vectors) each. `on_row` is called with the row after the last one done."""
    # the mean of the vectors at all scales and, with `flip`, of mirrored images
    views = Views(model.model, options.scales, flip=options.flip)
    net = nn.Sequential(Normalise(model.images), views).to(device).eval()
    workers = workers_for(images, model.images) if options.workers is None else options.workers
    with torch.autocast(
        device.type, PRECISIONS[options.precision], enabled=options.precision != "float32"
    ):
        pieces = embeddings_of_images(
            net, images, rows, batch=options.batch, workers=workers, device=device
        )
        yield from in_parts(pieces, options.part, options.seconds, on_row)


def refuse_existing(file: Path) -> None:
    """Raise UsageError for a file that exists, or in whose format embeddings are not written."""
    if file.exists():
        raise UsageError(f"{file} exists", fix="remove it, or name another --out")
    embeddings.refuse_suffix(file)


def _refuse_file(file: Path, options: EmbedOptions) -> None:
    """Raise UsageError for a file that embeddings cannot be written to: of images that are left
    out, only some formats can say so."""
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
    """Whether a parquet file is there with the embeddings that `embed` would write: its metadata
    say of which model, images and options they are. Raises UsageError for a file with others, and
    for one that cannot be read.
    """
    if not file.exists():
        return False

    expected = in_words(_request(model, items_of(data, split), split, options))
    try:
        with open_parquet(file) as parquet:
            stored = {
                key.decode(): value.decode()
                for key, value in (parquet.schema_arrow.metadata or {}).items()
            }
    except (OSError, ValueError, pa.ArrowException):
        stored = {}  # no parquet file, so none of these embeddings either

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
    """Collect the values that identify these embeddings: parts of another model, split or options
    are not theirs."""
    without_effect = {"workers", "part", "seconds"}  # they may change from one attempt to the next
    settings = {
        name: value for name, value in asdict(options).items() if name not in without_effect
    }
    return {"model": model.identity, "manifest": manifest.digest, "split": split, **settings}


def _from_checkpoint(path: Path, net: str | None) -> Embedder:
    """Load the model of a run's folder, or of one of its checkpoints. A net that is a program is
    run only where somebody names it, as `net`, FILE.py:NAME, or has consented to it before: the
    recipe in a folder may be anybody's."""
    folder = checkpoints.best(path)  # the best checkpoint of a run; a checkpoint is its own best
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
    # the checkpoint has the weights: none are fetched, only to be replaced
    changes = {"weights": RANDOM, "backbone": net or backbone}
    settings = Model(**{**recipe.model.model_dump(), **changes})
    model = build_model(settings, recipe.images)
    checkpoints.load_model(folder, model)
    digest = hashlib.sha256((folder / checkpoints.MODEL).read_bytes()).hexdigest()
    return Embedder(model, recipe.images, f"checkpoint {digest}")


def items_of(data: Dataset, split: str) -> Manifest:
    """Return the training manifest, the items of all tests, or one of several tests by name.
    `split`: "train", "test" for all tests, or the name of one."""
    if split == "train":
        return training_manifest(data)
    if split == "test":
        return all_tests(data)
    if split not in data.tests:
        raise UnknownName("split", split, list(dict.fromkeys(["train", "test", *data.tests])))
    return data.tests[split]
