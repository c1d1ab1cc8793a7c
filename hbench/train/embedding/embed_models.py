"""Embeds a dataset with many models, one after another: for each line of a list of models, a file
of embeddings is written.

A model that fails does not stop the others. Finished files are kept, so that the same command
continues where it was stopped.
"""

import re
from collections.abc import Callable
from pathlib import Path

from hbench.core import extras
from hbench.core.errors import ConfigError, DataError, HBenchError, examples
from hbench.core.untrusted import read_text
from hbench.train.recipes.own_code import OwnCode, is_own_code

MAX_BYTES_OF_MODELS = 1 << 20  # of the file that lists the models


def read_models(path: Path, folder: Path) -> dict[str, Path]:
    """Read a list of models, one per line, with comments after #. Return {model: file of embeddings
    in `folder`}.

    Raises ConfigError for a list that is empty, cannot be read, has two models with the same file,
    or names a program that the user has not consented to.
    """
    try:
        text = read_text(path, most=MAX_BYTES_OF_MODELS)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read", expected="a model per line", found=str(error)
        ) from None

    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    models = [line for line in lines if line]
    files = [folder / file_name(model) for model in models]
    if not models or len(set(files)) < len(files):
        twice = [model for model, file in zip(models, files, strict=True) if files.count(file) > 1]
        found = examples(twice) or "no models"
        raise ConfigError(
            f"{path} names no models, or one twice", expected="a model per line", found=found
        )

    # refuse a program without consent now, not after the models before it were embedded
    for model in filter(is_own_code, models):
        OwnCode.parse(model).load()

    return dict(zip(models, files, strict=True))


def file_name(model: str) -> str:
    """Return the name of a model's file of embeddings.

    >>> file_name("open_clip:ViT-B-32/laion2b_s34b_b79k")
    'open_clip-ViT-B-32-laion2b_s34b_b79k.parquet'
    """
    return re.sub(r"[^\w.-]+", "-", model).strip("-.") + ".parquet"


def embed_models(
    models: dict[str, Path], embed: Callable[[str, Path], str], on_model: Callable[[str, str], None]
) -> dict[str, HBenchError]:
    """Embed with each of `models`, {model: file to write}, continuing after failures. Return
    {model: error} of the models that failed.

    `embed`: writes the file of a model, and returns a sentence on the outcome. `on_model`: called
    with the model and this sentence, or the error. A library that is not installed counts as a
    failure; any other missing module is a bug, and is raised.
    """
    failed: dict[str, HBenchError] = {}
    for model, path in models.items():
        try:
            outcome = embed(model, path)
        except HBenchError as error:
            failed[model] = error
        except ModuleNotFoundError as error:
            refusal = extras.missing(error)  # None unless the module is of an optional library
            if refusal is None:
                raise
            failed[model] = refusal
        on_model(model, f"failed\n{failed[model]}" if model in failed else outcome)
    return failed


def refuse_failed(failed: dict[str, HBenchError], number: int) -> None:
    """Raise DataError if some models failed. `number`: of all models."""
    if failed:
        fix = "mend what failed, and run the same command again: it embeds only these"
        raise DataError(
            f"{len(failed)} of {number} models failed", found=", ".join(failed), fix=fix
        )
