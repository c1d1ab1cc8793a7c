"""Reference training: `train` a recipe, embed a dataset's images with any model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hbench.train.loop import train

__all__ = ["train"]


def __getattr__(name: str) -> object:
    """`train` loads torch when it is first used, so that other modules of the wing stay quick to
    import.
    """
    if name != "train":
        raise AttributeError(f"module 'hbench.train' has no attribute {name!r}")
    from hbench.train.loop import train

    return train
