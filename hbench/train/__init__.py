"""Reference training: `train` a recipe, embed a dataset's images with any model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hbench.train.loop import train

__all__ = ["train"]


def __getattr__(name: str) -> object:
    """Import `train` when it is first used: it loads torch, which would slow down importing the
    other modules of this package.
    """
    if name != "train":
        raise AttributeError(f"module 'hbench.train' has no attribute {name!r}")
    from hbench.train.loop import train

    return train
