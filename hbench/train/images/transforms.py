"""Crops and flips training images anew each time they are used, each by a separate seed.

`augmentations` are for image files, by torchvision. They return uint8 (C, H, W), a fourth of the
bytes that floats would take on their way to a GPU, where `Normalise` converts them. Images held in
memory, which are small, are varied by `shifted`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from hbench.core.errors import ConfigError
from hbench.core.registry import Registry
from hbench.train.recipes.own_code import OwnCode, is_own_code
from hbench.train.recipes.recipe import Images

Prepare = Callable[[Image.Image], Tensor]  # (C, H, W), of bytes, or of normalised floats
Outside = Literal["zeros", "border"]
SIDES = (3 / 4, 4 / 3)  # width by height of a random part, from – to

augmentations: Registry[Callable[[Images], Prepare]] = Registry("augmentation")


@augmentations.register("resized_crop")
def resized_crop(settings: Images) -> Prepare:
    """Fit, crop a random part of `scale` of the area, resize it to `size`, and flip (HAPPIER, rank
    losses).
    """
    from torchvision.transforms import v2

    how = v2.InterpolationMode(settings.interpolation)
    random_part = v2.RandomResizedCrop(
        settings.size, settings.scale, SIDES, interpolation=how, antialias=True
    )
    return _varied(settings, [*resize_steps(settings, settings.fit), random_part])


@augmentations.register("rand_augment")
def rand_augment(settings: Images) -> Prepare:
    """As `resized_crop`, then two changes of shape or colour (RandAugment, Cubuk et al. 2020)."""
    from torchvision.transforms import v2

    how = v2.InterpolationMode(settings.interpolation)
    random_part = v2.RandomResizedCrop(
        settings.size, settings.scale, SIDES, interpolation=how, antialias=True
    )
    changes = v2.RandAugment(interpolation=how)
    return _varied(settings, [*resize_steps(settings, settings.fit), random_part, changes])


@augmentations.register("crop")
def crop(settings: Images) -> Prepare:
    """Fit, crop `size` at a random place, and flip ([R] §5.1)."""
    from torchvision.transforms import v2

    random_place = v2.RandomCrop(settings.size, pad_if_needed=True)
    return _varied(settings, [*resize_steps(settings, settings.fit), random_place])


@augmentations.register("none")
def centre_crop(settings: Images) -> Prepare:
    """Fit and crop the centre, as images are embedded."""
    from torchvision.transforms import v2

    return _pipeline(
        settings, [*resize_steps(settings, settings.test_fit), v2.CenterCrop(settings.size)]
    )


class Normalise(nn.Module):
    """forward(images (B, C, H, W)) -> (images / 255 − mean) / std, float32, for uint8; floats,
    which are normalised, pass.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, settings: Images) -> None:
        """Mean and deviation of each colour, (C, 1, 1), as buffers: they move with the net, and are
        in no checkpoint, since the settings have them."""
        super().__init__()
        self.register_buffer("mean", torch.tensor(settings.mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(settings.std)[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Bytes (B, C, H, W) as floats in the scale that the net expects; floats are so already."""
        if images.is_floating_point():  # of a source's own transform, or held in memory
            return images
        return (images.float() / 255 - self.mean) / self.std


def side_before_crop(size: int) -> int:
    """The side to which images are resized before their middle of this size is cropped, both in
    pixels: 256 for 224, as is usual for nets of ImageNet.

    >>> side_before_crop(224)
    256
    """
    return round(size * 8 / 7)


def resize_steps(settings: Images, fit: str) -> list[torch.nn.Module]:
    """Return the step that resizes an image before the crop, in a list, which is empty for none.
    `fit`: "none"; "square", both sides to `settings.resize` pixels; else the shorter side."""
    from torchvision.transforms import v2

    if fit == "none":
        return []
    size = [settings.resize]  # of the shorter side, as torchvision takes a list of one
    if fit == "square":
        size = [settings.resize, settings.resize]
    return [v2.Resize(size, v2.InterpolationMode(settings.interpolation), antialias=True)]


def _varied(settings: Images, steps: list[torch.nn.Module]) -> Prepare:
    """Make the variation of these steps, which cut a part of an image, and of the changes that
    follow any of them by chance: mirrored, other colours, a part erased."""
    from torchvision.transforms import v2

    changes: list[torch.nn.Module] = [v2.RandomHorizontalFlip(settings.flip)]
    if settings.jitter:
        changes.append(v2.ColorJitter(settings.jitter, settings.jitter, settings.jitter))
    if settings.erase:
        changes += [v2.ToImage(), v2.RandomErasing(settings.erase)]  # erases tensors alone
    return _pipeline(settings, [*steps, *changes])


@dataclass(frozen=True)
class OwnTransform:
    """A transform of somebody's own, FILE.py:NAME: a function of an image of Pillow that returns
    one, or a tensor (C, size, size) of bytes, or of floats that are normalised."""

    code: OwnCode
    settings: Images

    def __call__(self, image: Image.Image) -> Tensor:
        """Apply a transform that somebody brought to a picture; return the tensor (C, size, size).
        Raises ConfigError where its result does not fit the net."""
        from torchvision.transforms import v2

        # a net of one colour takes grey pictures
        colours = "L" if len(self.settings.mean) == 1 else "RGB"
        made = self.code.load()(image.convert(colours))
        # a plain tensor, as torchvision's Image would go through every function of its own
        tensor: Tensor = v2.functional.to_image(made).as_subclass(torch.Tensor)
        expected = (len(self.settings.mean), self.settings.size, self.settings.size)
        if tuple(tensor.shape) != expected:
            raise ConfigError(
                f"{self.code.file}:{self.code.name} returns an image of another shape",
                expected=f"{expected}, by images.size and the number of images.mean",
                found=f"{tuple(tensor.shape)}",
                fix="let it cut or resize to that size, or --set images.size=…",
            )
        return tensor


def variation_of(settings: Images) -> Prepare:
    """Make the function that varies a training image: a registered augmentation, or one of
    somebody's own, FILE.py:NAME."""
    if is_own_code(settings.augment):
        transform = OwnTransform(OwnCode.parse(settings.augment), settings)
        # tried on a black image here, where what is wrong with it can be said, not in a worker;
        # what it draws at random must not change what is drawn later
        with torch.random.fork_rng(devices=[]):
            transform(Image.new("RGB", (settings.resize, settings.resize)))
        return transform
    return augmentations[settings.augment](settings)


def _pipeline(settings: Images, steps: list[torch.nn.Module]) -> Prepare:
    """Make a function from a picture to a tensor (C, H, W), uint8: by these steps, in as many
    colours as `settings.mean` has, grey (L) or RGB."""
    from torchvision.transforms import v2

    colours = "L" if len(settings.mean) == 1 else "RGB"
    pipeline = v2.Compose([*steps, v2.ToImage()])

    def prepare(image: Image.Image) -> Tensor:
        """Make of a picture its tensor (C, H, W), uint8."""
        tensor: Tensor = pipeline(image.convert(colours))
        return tensor.as_subclass(torch.Tensor)  # not torchvision's own class of tensors

    return prepare


def uniform_numbers(draws: NDArray[np.int64], number: int) -> NDArray[np.float64]:
    """Draw `number` uniform numbers in [0, 1) for every seed, (B,) -> (B, number), by SplitMix64
    (Steele et al. 2014), whose constants these are: an image's numbers depend on its seed alone,
    whichever images are drawn together.

    >>> bool((uniform_numbers(np.array([7, 8]), 2)[1:] == uniform_numbers(np.array([8]), 2)).all())
    True
    """
    with np.errstate(over="ignore"):
        steps = np.arange(1, number + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = draws.astype(np.uint64)[:, None] + steps
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits = z ^ (z >> np.uint64(31))
    # the upper 53 bits, as many as a float64 holds exactly
    uniform: NDArray[np.float64] = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniform


def shift_images(
    images: Tensor, draws: NDArray[np.int64], scale: tuple[float, float], outside: Outside = "zeros"
) -> Tensor:
    """Scale images (B, C, H, W) by a factor between the two of `scale`, rotate them by up to 6°,
    and shift them by up to 2 of 32 pixels, each by its seed in `draws` (B,).
    """
    # (B, 4), in [0, 1): of each image its size, its turn, and its shifts along both sides
    drawn = torch.from_numpy(uniform_numbers(draws, 4)).to(images)
    size = scale[0] + (scale[1] - scale[0]) * drawn[:, 0]
    turn = (2 * drawn[:, 1] - 1) * (6 * torch.pi / 180)  # -6° … 6°, in radians
    # the map goes from the places of the result to those of the image, so it divides by the size
    cos = torch.cos(turn) / size
    sin = torch.sin(turn) / size
    move = (2 * drawn[:, 2:] - 1) / 8  # the sides are 2 long: 1/8 is 2 of 32 pixels
    # (B, 2, 3): the affine map of each image
    theta = torch.stack(
        [torch.stack([cos, -sin, move[:, 0]], 1), torch.stack([sin, cos, move[:, 1]], 1)], 1
    )
    grid = functional.affine_grid(theta, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode=outside, align_corners=False)
