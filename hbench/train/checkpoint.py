"""A checkpoint is a folder step-NNNNNNNN: `model.safetensors`, and `state.pt` with everything else a run goes on with.

The folder appears at once, complete; its files are plain tensors and values, loaded with `weights_only=True`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from hbench.errors import DataError

PREFIX, FORMAT = "step-", 1
MODEL, STATE = "model.safetensors", "state.pt"


def save(folder: Path, step: int, *, model: nn.Module, state: Mapping[str, Any]) -> Path:
    """Write the checkpoint of `step` into `folder`, then remove the earlier ones."""
    final = folder / f"{PREFIX}{step:08d}"
    temporary = folder / f".{final.name}.{os.getpid()}.part"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        save_file(weights, temporary / MODEL)
        torch.save({**state, "format": FORMAT, "step": step}, temporary / STATE)
        for name in (MODEL, STATE):
            with (temporary / name).open("rb") as written:
                os.fsync(written.fileno())
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    for earlier in saved(folder):
        if earlier != final:
            shutil.rmtree(earlier)
    return final


def saved(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(folder.glob(f"{PREFIX}*"))


def latest(folder: Path) -> Path:
    """The checkpoint a path means: itself, or the last one in the folder of a run. Raises DataError."""
    if (folder / MODEL).is_file():
        return folder
    found = saved(folder)
    if not found:
        raise DataError(
            f"there is no checkpoint in {folder}", expected=f"a folder {PREFIX}…", fix="hbench train … --out"
        )
    return found[-1]


def load_model(checkpoint: Path, model: nn.Module) -> None:
    """Load a checkpoint's weights into the model. Raises DataError where they are damaged or of another model."""
    try:
        model.load_state_dict(load_file(checkpoint / MODEL))
    except (SafetensorError, RuntimeError, OSError) as error:
        raise _unusable(checkpoint / MODEL, error) from None


def load_state(checkpoint: Path) -> dict[str, Any]:
    """A checkpoint's state. Raises DataError where it is damaged or holds more than plain values."""
    from pickle import UnpicklingError

    try:
        state: dict[str, Any] = torch.load(checkpoint / STATE, map_location="cpu", weights_only=True)
    except (RuntimeError, UnpicklingError, OSError, EOFError) as error:
        raise _unusable(checkpoint / STATE, error) from None
    if state.get("format") != FORMAT:
        raise DataError(
            f"{checkpoint} is of another version of hbench", expected=f"format {FORMAT}", found=str(state.get("format"))
        )
    return state


def random_state() -> dict[str, Any]:
    """The state of torch's generators."""
    cuda: Sequence[torch.Tensor] = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": list(cuda)}


def set_random_state(state: Mapping[str, Any]) -> None:
    """Put torch's generators where they were."""
    torch.set_rng_state(state["cpu"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def _unusable(path: Path, error: Exception) -> DataError:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return DataError(
        f"{path} cannot be loaded", found=first, fix="remove its folder to resume from an earlier checkpoint"
    )
