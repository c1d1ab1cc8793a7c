"""Builds the model: a backbone, pooling, a LayerNorm without weights, and a projection. Its
embeddings have length 1.

    embedding = normalise(projection(norm(pooling(backbone(images)))))  # (B, dim)

The model normalises uint8 images itself, on its device.

>>> net = build_model(Model(backbone="hbench:small", weights="random", dim=64))
>>> net(torch.zeros(2, 1, 32, 32)).shape
torch.Size([2, 64])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hbench.core.compiled import one_blas_thread
from hbench.core.errors import DataError
from hbench.core.registry import Registry
from hbench.train.images.transforms import Normalise
from hbench.train.models.backbone import Backbone
from hbench.train.models.backbones import build_backbone, refuse_unfit_size
from hbench.train.recipes.recipe import Images, Model

IMAGES = Images()
NO_SPREAD = 1e-12  # variances up to this share of the largest one are rounding errors

poolings: Registry[Callable[[], nn.Module]] = Registry("pooling")


@poolings.register("avg")
def average_pooling() -> nn.Module:
    """Take the mean over the map."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())


@poolings.register("max")
def max_pooling() -> nn.Module:
    """Take the maximum over the map."""
    return nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten())


@poolings.register("gem")
class GeM(nn.Module):
    """The generalised mean (mean_x max(x, ε)^p)^(1/p) over the map. p is learned, starting from 3
    (Radenović et al., TPAMI 2019).
    """

    def __init__(self) -> None:
        """Start with the exponent 3."""
        super().__init__()
        self.p = nn.Parameter(torch.tensor(3.0))

    def forward(self, features: Tensor) -> Tensor:
        """Pool maps (B, C, H, W) to (B, C)."""
        # clamped, since negative numbers have no real power, and at 0 its gradient is not finite
        return features.clamp(min=1e-6).pow(self.p).mean((-2, -1)).pow(1 / self.p)


@poolings.register("own")
def own_pooling() -> nn.Module:
    """Keep the backbone's own pooling, such as the class token of a vision transformer."""
    return nn.Identity()


class UnitLength(nn.Module):
    """x/‖x‖: normalises the features of GeM before whitening (Radenović et al. 2019)."""

    def forward(self, features: Tensor) -> Tensor:
        """Scale the features (B, D) to length 1."""
        return functional.normalize(features)


class EmbeddingModel(nn.Module):
    """forward(images) -> embeddings of length 1, float32 (B, D). `describe` returns the features
    before the projection, (B, features).

    `precision`: of the computation: float32, or by autocast bfloat16 or float16.
    """

    def __init__(self, backbone: Backbone, settings: Model, images: Images) -> None:
        """Assemble the parts by a recipe's settings; a `dim` of 0 means no projection. `backbone`:
        the net, and how many features it has. `images`: settings with the mean and the standard
        deviation of colours.
        """
        super().__init__()
        self.normalise = Normalise(images)
        self.backbone = backbone.net
        self.pooling = poolings[settings.pooling]()
        norms: list[nn.Module] = []
        if settings.l2_norm:
            norms.append(UnitLength())
        if settings.layer_norm:
            # without weights: it only normalises features to mean 0 and variance 1
            norms.append(nn.LayerNorm(backbone.features, elementwise_affine=False))
        self.norm = nn.Sequential(*norms)
        self.dim = settings.dim or backbone.features  # of the embeddings
        self.projection = (
            nn.Linear(backbone.features, settings.dim) if settings.dim else nn.Identity()
        )
        self.freeze_batch_norm = settings.freeze_batch_norm
        # a run may change these before its first step
        self.precision = torch.float32
        self.is_compiled = False

    def compile_backbone(self) -> None:
        """Compile the backbone with torch.compile for batches of a fixed size, which is fastest.
        `is_compiled` tells callers to fill up the last batch to that size."""
        self.backbone.compile(dynamic=False)
        self.is_compiled = True

    def forward(self, images: Tensor) -> Tensor:
        """Embed images (B, C, H, W), uint8 or normalised floats: float32 (B, dim)."""
        full = self.precision == torch.float32
        with nullcontext() if full else torch.autocast(images.device.type, self.precision):
            projected: Tensor = self.projection(self.describe(images))
        # normalised in float32: with 16 bits the length would be accurate to three digits only
        return functional.normalize(projected.float())

    def describe(self, images: Tensor) -> Tensor:
        """Compute the pooled and normed features (B, features), the input of the projection."""
        features: Tensor = self.norm(self.pooling(self.backbone(self.normalise(images))))
        return features

    def train(self, mode: bool = True) -> EmbeddingModel:
        """Set the mode, but keep frozen batch norms in evaluation mode, since in training mode they
        would update their running means."""
        super().train(mode)
        if self.freeze_batch_norm:
            for part in self.modules():
                if isinstance(part, nn.modules.batchnorm._BatchNorm):
                    part.eval()
        return self

    def body(self) -> Iterator[nn.Parameter]:
        """Yield the weights that start pretrained: those of the backbone."""
        return self.backbone.parameters()

    def head(self) -> Iterator[nn.Parameter]:
        """Yield the weights that start untrained: those of pooling and projection."""
        yield from self.pooling.parameters()
        yield from self.projection.parameters()


def build_model(settings: Model, images: Images = IMAGES) -> EmbeddingModel:
    """Build the model of a recipe's settings, for images of `images.size` pixels. Raises
    UnknownName, DataError if weights cannot be loaded, and UsageError if the net cannot take images
    of this size.
    """
    key_map = Path(settings.key_map) if settings.key_map else None
    # "own": the backbone returns pooled vectors; else it returns maps, which the model pools
    pools = settings.pooling == "own"
    backbone = build_backbone(
        settings.backbone, weights=settings.weights, pools=pools, key_map=key_map
    )
    # build_backbone has run the net on an image of its own size; any other size is tried here
    if images.size != backbone.size:
        fix = f"--set images.size={backbone.size}"
        refuse_unfit_size(settings.backbone, backbone, images.size, fix=fix)
    return EmbeddingModel(backbone, settings, images)


def begin_projection_by_pca(model: EmbeddingModel, batches: Iterable[Tensor]) -> None:
    """Set the projection to the whitening PCA of features, so that the projected features have
    variance 1 in every dimension (Radenović et al. 2019).

    W = Λ^(-1/2) Vᵀ, b = −W mean, with the eigenvalues Λ and eigenvectors V of the covariance.
    `batches`: images (B, C, H, W). Raises DataError if the features, or the directions in which
    they vary, are fewer than the projection's dimensions, or if there are not more images than
    dimensions.
    """
    from sklearn.decomposition import PCA

    with torch.inference_mode():
        features = np.concatenate(
            [model.describe(images).float().cpu().numpy() for images in batches]
        )
    images, width = features.shape
    if width < model.dim:
        raise DataError(
            "the net has too few features for a projection that starts from PCA",
            expected=f"{model.dim} (model.dim) or more",
            found=f"{width}",
            fix=f"--set model.dim={width}, or less; or --set model.projection=random",
        )
    if images <= model.dim:  # N images vary in at most N − 1 directions around their mean
        raise DataError(
            "too few images for a projection that starts from PCA",
            expected=f"more than {model.dim} (model.dim)",
            found=f"{images}",
            fix=f"--set model.dim={images - 1}, or less; or --set model.projection=random",
        )
    # float64, since covariances of large features lose digits in float32; one thread, since with
    # several the last bits would depend on their number
    with one_blas_thread():
        pca = PCA(model.dim, svd_solver="covariance_eigh").fit(features.astype(np.float64))
    spread = pca.explained_variance_  # (dim,), falling
    # a variance up to the share NO_SPREAD of the largest one is a rounding error
    if spread[-1] <= NO_SPREAD * spread[0]:
        directions = int((spread > NO_SPREAD * spread[0]).sum())
        raise DataError(
            "the features vary in too few directions for a projection that starts from PCA",
            expected=f"{model.dim} (model.dim)",
            found=f"{directions}",
            fix=f"--set model.dim={directions}, or less; or --set model.projection=random",
        )
    whitening = pca.components_ / np.sqrt(pca.explained_variance_)[:, None]
    assert isinstance(model.projection, nn.Linear)
    with torch.no_grad():
        model.projection.weight.copy_(torch.from_numpy(whitening))
        model.projection.bias.copy_(torch.from_numpy(-whitening @ pca.mean_))
