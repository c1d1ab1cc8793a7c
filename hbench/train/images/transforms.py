"""Augments training images: each use of an image is cropped, flipped or otherwise varied with its
own seed.

`augmentations` are for image files, and use torchvision. They return uint8 (C, H, W), which takes a
fourth of the bytes of floats on the way to a GPU, where `Normalise` converts them. Small images in
memory are varied by `shift_images`.
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

Prepare = Callable[[Image.Image], Tensor]  # returns (C, H, W), uint8 or normalised floats
Outside = Literal["zeros", "border"]
SIDES = (3 / 4, 4 / 3)  # the range of width / height of a random part

augmentations: Registry[Callable[[Images], Prepare]] = Registry("augmentation")


@augmentations.register("resized_crop")
def resized_crop(settings: Images) -> Prepare:
    """Resize as `settings.fit` says, crop a random part, resize that to `size`, and flip (HAPPIER,
    rank losses). The part's share of the area is within `scale`, its width / height within SIDES.
    """
    from torchvision.transforms import v2

    how = v2.InterpolationMode(settings.interpolation)
    random_part = v2.RandomResizedCrop(
        settings.size, settings.scale, SIDES, interpolation=how, antialias=True
    )
    return _varied(settings, [*resize_steps(settings, settings.fit), random_part])


@augmentations.register("rand_augment")
def rand_augment(settings: Images) -> Prepare:
    """As `resized_crop`, with two changes of shape or colour before the flip (RandAugment, Cubuk et
    al. 2020). SIDES: the range of the random part's width / height. With a `fit` other than "none"
    the image is resized first, as in testing, and the part is cut out of that."""
    from torchvision.transforms import v2

    how = v2.InterpolationMode(settings.interpolation)
    random_part = v2.RandomResizedCrop(
        settings.size, settings.scale, SIDES, interpolation=how, antialias=True
    )
    changes = v2.RandAugment(interpolation=how)  # two changes, which is torchvision's default
    # `_varied` adds the flip at the end
    return _varied(settings, [*resize_steps(settings, settings.fit), random_part, changes])


@augmentations.register("crop")
def crop(settings: Images) -> Prepare:
    """Fit, crop `size` at a random place, and flip ([R] §5.1)."""
    from torchvision.transforms import v2

    random_place = v2.RandomCrop(settings.size, pad_if_needed=True)
    return _varied(settings, [*resize_steps(settings, settings.fit), random_place])


@augmentations.register("none")
def centre_crop(settings: Images) -> Prepare:
    """Fit and crop the centre, without any variation, as for embedding."""
    from torchvision.transforms import v2

    return _pipeline(
        settings, [*resize_steps(settings, settings.test_fit), v2.CenterCrop(settings.size)]
    )


class Normalise(nn.Module):
    """forward(images (B, C, H, W)) -> (images / 255 − mean) / std, float32, for uint8. Floats are
    normalised already, and are returned unchanged.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, settings: Images) -> None:
        """Keep the mean and deviation of each colour, (C, 1, 1), as buffers, so that they move to a
        device with the net. Checkpoints do not have them: they are in the recipe."""
        super().__init__()
        self.register_buffer("mean", torch.tensor(settings.mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(settings.std)[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Convert bytes (B, C, H, W) to normalised floats; floats are returned unchanged."""
        if images.is_floating_point():  # from a user's own transform, or from images in memory
            return images
        return (images.float() / 255 - self.mean) / self.std


def side_before_crop(size: int) -> int:
    """Return the side in pixels to which images are resized before their centre of `size` pixels is
    cropped: 256 for 224, as is usual for ImageNet.

    >>> side_before_crop(224)
    256
    """
    return round(size * 8 / 7)


def resize_steps(settings: Images, fit: str) -> list[torch.nn.Module]:
    """Return a list with the step that resizes an image before the crop, empty for `fit` "none".
    "square" resizes both sides to `settings.resize` pixels, any other value the shorter side."""
    from torchvision.transforms import v2

    if fit == "none":
        return []
    size = [settings.resize]  # for torchvision a list of one is the size of the shorter side
    if fit == "square":
        size = [settings.resize, settings.resize]
    return [v2.Resize(size, v2.InterpolationMode(settings.interpolation), antialias=True)]


def _varied(settings: Images, steps: list[torch.nn.Module]) -> Prepare:
    """Make the augmentation of `steps`, which crop an image, followed by the random changes that
    all augmentations share: flip, change colours, erase a part."""
    from torchvision.transforms import v2

    changes: list[torch.nn.Module] = [v2.RandomHorizontalFlip(settings.flip)]
    if settings.jitter:
        changes.append(v2.ColorJitter(settings.jitter, settings.jitter, settings.jitter))
    if settings.erase:
        changes += [v2.ToImage(), v2.RandomErasing(settings.erase)]  # works on tensors only
    return _pipeline(settings, [*steps, *changes])


@dataclass(frozen=True)
class OwnTransform:
    """A user's own transform, FILE.py:NAME: a function that takes a Pillow image, and returns one
    or a tensor (C, size, size), uint8 or normalised floats."""

    code: OwnCode
    settings: Images

    def __call__(self, image: Image.Image) -> Tensor:
        """Apply the transform to a picture, and return a tensor (C, size, size), uint8 or floats as
        the user's function gives them: bytes are normalised later, floats count as normalised.
        Raises ConfigError if the result has another shape."""
        from torchvision.transforms import v2

        # a net with a single input channel gets grey pictures
        colours = "L" if len(self.settings.mean) == 1 else "RGB"
        made = self.code.load()(image.convert(colours))
        # convert torchvision's Image to a plain tensor: it would intercept every torch function
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
    """Return the function that augments a training image: a registered one, or a user's own,
    FILE.py:NAME."""
    if is_own_code(settings.augment):
        transform = OwnTransform(OwnCode.parse(settings.augment), settings)
        # Try it on a black image, so that errors are raised here and not in a worker. The random
        # state is restored, since the trial must not affect later random numbers.
        with torch.random.fork_rng(devices=[]):
            transform(Image.new("RGB", (settings.resize, settings.resize)))
        return transform
    return augmentations[settings.augment](settings)


def _pipeline(settings: Images, steps: list[torch.nn.Module]) -> Prepare:
    """Make a function that applies `steps` to a picture and returns a tensor (C, H, W), uint8. The
    picture is grey (L) or RGB, by the number of colours in `settings.mean`."""
    from torchvision.transforms import v2

    colours = "L" if len(settings.mean) == 1 else "RGB"
    pipeline = v2.Compose([*steps, v2.ToImage()])

    def prepare(image: Image.Image) -> Tensor:
        """Convert a picture to a tensor (C, H, W), uint8."""
        tensor: Tensor = pipeline(image.convert(colours))
        return tensor.as_subclass(torch.Tensor)  # a plain tensor, not torchvision's subclass

    return prepare


def uniform_numbers(draws: NDArray[np.int64], number: int) -> NDArray[np.float64]:
    """Draw `number` uniform numbers in [0, 1) for every seed (B,): (B, number). The numbers depend
    only on the seed, not on the other seeds. Constants and shifts are those of SplitMix64 (Steele
    et al. 2014).

    >>> bool((uniform_numbers(np.array([7, 8]), 2)[1:] == uniform_numbers(np.array([8]), 2)).all())
    True
    """
    with np.errstate(over="ignore"):  # SplitMix64 computes modulo 2^64
        steps = np.arange(1, number + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = draws.astype(np.uint64)[:, None] + steps
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits = z ^ (z >> np.uint64(31))
    # keep the upper 53 bits, the precision of a float64
    uniform: NDArray[np.float64] = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniform


def shift_images(
    images: Tensor, draws: NDArray[np.int64], scale: tuple[float, float], outside: Outside = "zeros"
) -> Tensor:
    """Scale images (B, C, H, W) by a random factor between the two numbers of `scale`, rotate them
    by up to 6°, and shift them by up to 1/16 of their side. `draws` (B,): a seed for each image.
    `outside`: what fills the area beyond the edge, black ("zeros") or the pixel at the edge
    ("border").
    """
    # (B, 4), in [0, 1): for the factor, the rotation, and the shifts along both sides of each image
    drawn = torch.from_numpy(uniform_numbers(draws, 4)).to(images)
    factor = scale[0] + (scale[1] - scale[0]) * drawn[:, 0]
    turn = (2 * drawn[:, 1] - 1) * (6 * torch.pi / 180)  # -6° … 6°, in radians
    # affine_grid maps positions in the result to positions in the image, so divide by the factor
    cos = torch.cos(turn) / factor
    sin = torch.sin(turn) / factor
    move = (2 * drawn[:, 2:] - 1) / 8  # coordinates run from −1 to 1: 1/8 is 2 of 32 pixels
    # (B, 2, 3): the affine map of each image
    theta = torch.stack(
        [torch.stack([cos, -sin, move[:, 0]], 1), torch.stack([sin, cos, move[:, 1]], 1)], 1
    )
    grid = functional.affine_grid(theta, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode=outside, align_corners=False)
