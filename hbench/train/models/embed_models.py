"""Embeds a dataset with many models, one after the other: a line per model in, a file per model out.

A model that cannot be had does not stop the others. A file that holds what was asked for is left as it is, so that the same call
resumes where it stopped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from hbench.core import extras
from hbench.core.errors import ConfigError, DataError, HBenchError, examples
from hbench.core.untrusted import read_text

MOST = 1 << 20  # bytes of a list of models


def read_models(path: Path, folder: Path) -> dict[str, Path]:
    """The file of embeddings in `folder` of every model that a list names: a model per line, what follows # is a remark.

    Raises ConfigError for a list that is empty, cannot be read, or whose models would share a file.
    """
    try:
        lines = [line.partition("#")[0].strip() for line in read_text(path, most=MOST).splitlines()]
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read", expected="a model per line", found=str(error)) from None
    models = [line for line in lines if line]
    names = [file_name(model) for model in models]
    if not models or len(set(names)) < len(names):
        twice = [model for model, name in zip(models, names, strict=True) if names.count(name) > 1]
        raise ConfigError(
            f"{path} names no models, or one twice", expected="a model per line", found=examples(twice) or "none"
        )
    return {model: folder / name for model, name in zip(models, names, strict=True)}


def file_name(model: str) -> str:
    """The file of a model's embeddings.

    >>> file_name("open_clip:ViT-B-32/laion2b_s34b_b79k")
    'open_clip-ViT-B-32-laion2b_s34b_b79k.parquet'
    """
    return re.sub(r"[^\w.-]+", "-", model).strip("-.") + ".parquet"


def embed_models(
    models: dict[str, Path], embed: Callable[[str, Path], str], on_model: Callable[[str, str], None]
) -> dict[str, HBenchError]:
    """Embed by every model, and continue after one that fails; the models that failed, each with its refusal.

    `embed` writes the file of a model and says what became of it, which `on_model` is told, or of its failure.
    """
    failed: dict[str, HBenchError] = {}
    for model, path in models.items():
        try:
            outcome = embed(model, path)
        except HBenchError as error:
            failed[model] = error
        except ModuleNotFoundError as error:
            refusal = extras.missing(error)
            if refusal is None:
                raise
            failed[model] = refusal
        on_model(model, f"failed\n{failed[model]}" if model in failed else outcome)
    return failed


def refuse_failed(failed: dict[str, HBenchError], number: int) -> None:
    """Raise DataError naming the models that failed, of how many."""
    if failed:
        raise DataError(
            f"{len(failed)} of {number} models failed",
            found=", ".join(failed),
            fix="the same command resumes them",
        )
