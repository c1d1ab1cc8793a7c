"""Defines the proxy losses, which compare embeddings with one learned vector per class, the proxy,
instead of with each other.

The finest column of the labels has class numbers 0 … C−1. References are accepted but ignored,
since proxies replace them.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from hbench.core.arguments import as_array
from hbench.core.errors import ConfigError
from hbench.losses.batch_loss import BatchLoss, LossBatch, full_precision, require_positive

CSL_MARGINS = {
    1: (0.25,),
    2: (0.45, 0.25),
    3: (0.45, 0.35, 0.25),
    7: (0.75, 0.65, 0.55, 0.45, 0.35, 0.25, 0.15),
}

# embeddings (B, D), proxies (C, D), classes (B,) -> logits (B, C)
Logits = Callable[[Tensor, Tensor, Tensor], Tensor]


def random_proxies(classes: int, dim: int) -> Tensor:
    """Draw proxies (C, D) from a normal distribution, for C `classes` and vectors of dimension D,
    `dim`. Raises ConfigError if they do not fit in memory."""
    try:
        # RuntimeError if memory is too small, TypeError for a number beyond 64 bits
        return torch.randn(classes, dim)
    except (RuntimeError, TypeError, OverflowError):
        raise ConfigError(
            "memory does not hold the proxies",
            expected="the number of classes, and the dimension of the embeddings",
            found=f"classes={classes}, dim={dim}",
        ) from None


def class_paths(paths: Any) -> Tensor:
    """Check the labels of all classes, and return them as int64 (C, L). Raises ConfigError for
    anything that is no table of whole numbers."""
    table = as_array(paths, "paths")
    if table.ndim != 2 or not table.size or table.dtype.kind not in "iu":
        raise ConfigError(
            "paths are not the labels of every class",
            expected="whole numbers (C, L), coarse to fine",
            found=f"{table.dtype} of shape {table.shape}",
        )
    return torch.from_numpy(table.astype("int64"))


def require_dimension(embeddings: Tensor, proxies: Tensor) -> None:
    """Raise ConfigError if embeddings and proxies differ in dimension."""
    if embeddings.shape[1] != proxies.shape[1]:
        raise ConfigError(
            "embeddings and proxies differ in dimension",
            expected=f"dim={embeddings.shape[1]}, that of the embeddings",
            found=f"dim={proxies.shape[1]}",
        )


class ProxySoftmax(BatchLoss):
    """The mean of −log softmax_y(logits) over a batch, where y is the finest class of an item.

    `logits`: a function of embeddings (B, D), proxies (C, D) and the finest classes (B,) that
    returns the logits (B, C). `weight` (C, D): the proxies, which are learned.
    """

    takes_pairs = False

    def __init__(self, classes: int, dim: int, logits: Logits, *, spread: float) -> None:
        """`classes`: C; `dim`: D; `spread`: the standard deviation of the initial proxies."""
        super().__init__()
        require_positive(classes=classes, dim=dim)
        self.weight = nn.Parameter(random_proxies(classes, dim) * spread)
        self.logits = logits

    def compute(self, batch: LossBatch) -> Tensor:
        """The cross-entropy of the logits (B, C) with the finest classes; 0 for an empty batch."""
        embeddings, proxies = full_precision(batch.embeddings, self.weight)
        require_dimension(embeddings, proxies)
        if len(batch.labels) == 0:
            return embeddings.sum() * 0  # a 0 with a gradient, so that backward works
        fine = batch.labels[:, -1]
        require_classes(fine, len(proxies))
        # autocast would return to half precision
        with torch.autocast(embeddings.device.type, enabled=False):
            return functional.cross_entropy(self.logits(embeddings, proxies, fine), fine)


def normalised_softmax(classes: int, dim: int, temperature: float = 0.05) -> nn.Module:
    """Make −log softmax_y(x·p̂ / σ) for an embedding x of class y (HAPPIER, Eq. 6; NSM, Zhai & Wu
    2019). p̂ = p/‖p‖ are the normalised proxies, and x is not normalised here.

    `classes`: C, of the finest level; `dim`: D; `temperature`: σ."""
    require_positive(temperature=temperature, dim=dim)

    def logits(embeddings: Tensor, proxies: Tensor, target: Tensor) -> Tensor:
        """The logits (B, C), which do not depend on the finest classes, `target` (B,)."""
        return embeddings @ functional.normalize(proxies).T / temperature

    # the initial proxies have a length of about 1
    return ProxySoftmax(classes, dim, logits, spread=1 / math.sqrt(dim))


def proxy_nca_pp(classes: int, dim: int, scale: float = 3.0) -> nn.Module:
    """Make −log softmax_y(−‖s x̂ − s p̂‖²) for an embedding of class y (ProxyNCA++, Teh et al.
    2020). x̂ and p̂ are the embedding and the proxies, normalised here. `classes`: C, of the finest
    level; `dim`: D; `scale`: s."""
    require_positive(scale=scale)

    def logits(embeddings: Tensor, proxies: Tensor, target: Tensor) -> Tensor:
        """The logits (B, C), −s²‖x̂ − p̂‖² = 2 s² (x̂·p̂ − 1), which do not depend on `target`
        (B,)."""
        return (
            2 * scale**2 * (functional.normalize(embeddings) @ functional.normalize(proxies).T - 1)
        )

    # the standard deviation of initial proxies in the code that the authors released
    return ProxySoftmax(classes, dim, logits, spread=1 / 8)


def arcface(classes: int, dim: int, margin: float = 0.5, scale: float = 64.0) -> nn.Module:
    """Make −log softmax_y(s cos(θ_y + m), s cos θ_z), where θ_y is the angle between an embedding
    and the proxy of its class y, and θ_z the angles to all other proxies (Deng et al. 2019).

    Vectors are normalised here, and m is in radians. If θ_y + m exceeds π, cos θ_y − m sin m is
    used, which continues to decrease. `classes`: C, of the finest level; `dim`: D; `margin`,
    `scale`: m and s.
    """
    require_positive(scale=scale, dim=dim)

    def logits(embeddings: Tensor, proxies: Tensor, target: Tensor) -> Tensor:
        """The logits (B, C). Those of the items' own classes, `target` (B,), have the margin."""
        cosine = functional.normalize(embeddings) @ functional.normalize(proxies).T
        to_class = cosine.gather(1, target[:, None])  # (B, 1): cos θ_y
        # cos(θ + m) = cos θ cos m − sin θ sin m, where sin θ ≥ 0; clamp, because the slope of √ is
        # infinite at 0
        sine = (1 - to_class**2).clamp(min=torch.finfo(cosine.dtype).eps).sqrt()
        # for θ + m above π the cosine would increase again, but cos θ − m sin m decreases
        beyond = to_class - margin * math.sin(margin)
        within = to_class * math.cos(margin) - sine * math.sin(margin)
        turned = torch.where(to_class > math.cos(math.pi - margin), within, beyond)
        return scale * cosine.scatter(1, target[:, None], turned)

    # the initial proxies have a length of about 1
    return ProxySoftmax(classes, dim, logits, spread=1 / math.sqrt(dim))


class CompositeSoftTriplet(BatchLoss):
    """CSL: Σ_l mean softplus(LSE_{z outside y's group at level l}(s x·p̂_z) − s x·p̂_y + s m_l),
    where x is not normalised.

    The group of class y at level l consists of the classes that share its first l labels (Sun et
    al., Dynamic Metric Learning). `groups` (L, C): the group of each class at each level.
    `margins`: m_1 … m_L, coarse to fine, of which the coarsest is the largest. `weight` (C, D): the
    proxies, which are learned.
    """

    takes_pairs = False

    def __init__(
        self,
        paths: Sequence[Sequence[int]],
        dim: int,
        margins: Sequence[float] | None = None,
        scale: float = 32.0,
    ) -> None:
        """`paths` (C, L): the labels of each class, coarse to fine; `dim`: D; `margins` (L,): None
        for those of the paper; `scale`: s."""
        super().__init__()
        require_positive(dim=dim, scale=scale)
        table = class_paths(paths)  # int64 (C, L)
        # int64 (L, C): the group of each class, by level; not stored, since `paths` gives it again
        self.register_buffer("groups", _groups(table), persistent=False)
        self.margins = csl_margins(margins, table.shape[1])
        self.scale = scale
        # proxies of length about 1: p̂ does not depend on the length, but the angle by which a
        # training step turns it does
        self.weight = nn.Parameter(random_proxies(len(table), dim) / math.sqrt(dim))

    def compute(self, batch: LossBatch) -> Tensor:
        """The sum over the levels of a soft triplet loss: at each level, the logit of an item's own
        class should exceed those of all classes outside of its group by the margin of the level; 0
        for an empty batch. Only proxies are normalised: the length of an embedding scales its
        logits."""
        embeddings, proxies = full_precision(batch.embeddings, self.weight)
        require_dimension(embeddings, proxies)
        if len(batch.labels) == 0:
            return embeddings.sum() * 0  # a 0 with a gradient, so that backward works
        fine = batch.labels[:, -1]
        require_classes(fine, len(proxies))
        # autocast would return to half precision
        with torch.autocast(embeddings.device.type, enabled=False):
            logits = self.scale * (embeddings @ functional.normalize(proxies).T)
            assert isinstance(self.groups, Tensor)  # (L, C): the group of each class, by level
            pairs = zip(self.groups, self.margins, strict=True)
            # groups[fine, None] == groups, (B, C): the classes in the group of an item's class
            terms = [
                self._level(logits, groups[fine, None] == groups, fine, margin)
                for groups, margin in pairs
            ]
        return torch.stack(terms).sum()

    def _level(self, logits: Tensor, inside: Tensor, target: Tensor, margin: float) -> Tensor:
        """The term of one level, a scalar, from logits (B, C) and the level's `margin`. `target`
        (B,): each item's own class; `inside` bool (B, C): which classes are in its group."""
        # Classes inside of the group are left out of the sum over classes. Their logits are set to
        # the lowest finite number, not to −∞: if the group has all classes, the sum is empty, and
        # its gradient must be 0, not 0/0.
        outside = logits.masked_fill(inside, torch.finfo(logits.dtype).min).logsumexp(1)
        own = logits.gather(1, target[:, None])[:, 0]
        return functional.softplus(outside - own + self.scale * margin).mean()


def csl_margins(margins: Sequence[float] | None, depth: int) -> tuple[float, ...]:
    """Check the margins m_1 … m_L, coarse to fine, and return them. `margins`: None for default
    margins, which exist for 1, 2, 3 or 7 levels. `depth`: L."""
    if margins is None and depth not in CSL_MARGINS:
        expected = f"margins: {depth} numbers, coarse to fine"
        raise ConfigError(
            f"csl has no default margins for {depth} levels",
            expected=expected,
            fix="set the parameter margins",
        )
    chosen = CSL_MARGINS[depth] if margins is None else tuple(margins)
    if len(chosen) != depth:
        raise ConfigError(
            "csl needs one margin per level", expected=f"{depth} margins", found=f"{len(chosen)}"
        )
    return chosen


def _groups(paths: Tensor) -> Tensor:
    """The group of each class at each level, int64 (L, C). `paths` (C, L): the labels of each
    class. At level l, classes with equal first l labels get the same number."""
    numbers = []
    for level in range(paths.shape[1]):
        _, of_class = paths[:, : level + 1].unique(dim=0, return_inverse=True)
        numbers.append(of_class)
    return torch.stack(numbers)


def require_classes(labels: Tensor, classes: int) -> None:
    """Raise ConfigError if `labels` (B,) of the finest level are not class numbers 0 … C−1.
    `classes`: C, the number of classes with a proxy."""
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise ConfigError(
            "a label has no proxy",
            expected=f"labels 0 … {classes - 1}",
            found=f"labels {int(labels.min())} … {int(labels.max())}",
            fix="number the training classes from 0, and set classes to their number",
        )
