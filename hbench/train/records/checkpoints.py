"""Keeps the last two and the best checkpoints of a run. Each is written completely and read back
before it gets its name, so that it never replaces a good one if it is bad."""

import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from hbench.core.errors import DataError, examples
from hbench.core.files import full_disk_told
from hbench.core.text import first_line
from hbench.core.untrusted import load_tensors

PREFIX = "step-"
FORMAT = 2
KEPT = 2  # the last two, so that one is left if the other is damaged
MODEL = "model.safetensors"
STATE = "state.pt"


def save(folder: Path, step: int, *, model: nn.Module, state: Mapping[str, Any]) -> Path:
    """Write the checkpoint of `step` to the run's folder, and remove all others except the last two
    and the best. Return the checkpoint's folder.

    It is written under another name and read back before it is renamed, so that a folder with the
    name of a checkpoint is always complete. `state`: what resuming needs besides the weights;
    `state["best"]`: {"step": number, …} of the best checkpoint, or None.
    """
    final = _of_step(folder, step)
    temporary = folder / f".{final.name}.{os.getpid()}.part"
    for left in folder.glob(f".{PREFIX}*.part"):  # by a run that was killed while it saved
        shutil.rmtree(left, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        # safetensors writes only contiguous tensors
        weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        with full_disk_told(final):
            try:
                save_file(weights, temporary / MODEL)
            except SafetensorError as error:
                # safetensors reports system errors, such as a full disk, only in its text: read the
                # number from there, by which full_disk_told recognises a full disk
                number = re.findall(r"os error (\d+)", str(error))
                raise OSError(*map(int, number), str(error)) from None
            torch.save({**state, "format": FORMAT, "step": step}, temporary / STATE)
            for name in (MODEL, STATE):
                # flush to the disk before renaming, so that the files are complete even if the
                # power fails
                with (temporary / name).open("rb") as written:
                    os.fsync(written.fileno())
        _read_back(temporary)
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)

    best = state["best"]
    kept = {*checkpoints_in(folder)[-KEPT:], _of_step(folder, best["step"] if best else step)}
    for earlier in checkpoints_in(folder):
        if earlier not in kept:
            shutil.rmtree(earlier)
    return final


def _read_back(folder: Path) -> None:
    """Raise DataError if a new checkpoint cannot be read, or has weights that are not finite, since
    a run could not continue from it."""
    load_state(folder)
    try:
        weights = load_file(folder / MODEL)
    except (SafetensorError, OSError) as error:
        raise _unusable(folder / MODEL, error) from None

    bad = [
        name
        for name, weight in weights.items()
        if weight.is_floating_point() and not torch.isfinite(weight).all()
    ]
    if bad:
        raise DataError(
            f"{len(bad)} weights of the model are not finite: the last checkpoint stays",
            found=examples(bad),
            fix="resume from that one with a smaller optimizer.lr, or precision float32 or "
            "bfloat16",
        )


def checkpoints_in(folder: Path) -> list[Path]:
    """List the checkpoints in a folder, oldest first. Their numbers are padded, so that names sort
    by step."""
    return sorted(folder.glob(f"{PREFIX}*"))


def latest(folder: Path) -> Path:
    """Return the checkpoint at a path: the path itself, or the last checkpoint of a run's folder.
    Raises DataError if there is none."""
    if (folder / MODEL).is_file():
        return folder
    folders = checkpoints_in(folder)
    if not folders:
        fix = "hbench train RECIPE --out makes one"
        raise DataError(
            f"there is no checkpoint in {folder}", expected=f"a folder {PREFIX}…", fix=fix
        )
    return folders[-1]


def best(folder: Path) -> Path:
    """Return the checkpoint to use at a path. A path that is a checkpoint is returned itself. For a
    run's folder it is the best checkpoint if the run validated, else the last one. Raises DataError
    if there is none, or if the best one was deleted.
    """
    last = latest(folder)
    if last == folder:  # the path is a checkpoint
        return last
    # each checkpoint records which one was the best when it was written
    state = load_state(last)
    with usable(last / STATE):  # a damaged state may have no "best", or no step in it
        if not state["best"]:
            return last
        chosen = _of_step(folder, state["best"]["step"])
    if not chosen.exists():
        raise DataError(
            f"the best checkpoint of {folder} was deleted",
            expected=str(chosen),
            found=", ".join(each.name for each in checkpoints_in(folder)),
            fix=f"hbench embed {last} embeds by the last one",
        )
    return chosen


def _of_step(folder: Path, step: int) -> Path:
    """Return the folder of a step's checkpoint. Its number is padded, so names sort by step."""
    return folder / f"{PREFIX}{step:08d}"


def load_model(checkpoint: Path, model: nn.Module) -> None:
    """Load a checkpoint's weights into the model. Raises DataError if they are damaged or belong to
    another model."""
    try:
        model.load_state_dict(load_file(checkpoint / MODEL))
    except (SafetensorError, RuntimeError, OSError) as error:
        raise _unusable(checkpoint / MODEL, error) from None


def load_state(checkpoint: Path) -> dict[str, Any]:
    """Read a checkpoint's state. Raises DataError if it is damaged, has objects other than tensors
    and plain values, or is of another format."""
    from pickle import UnpicklingError

    try:
        state: dict[str, Any] = load_tensors(checkpoint / STATE)
    except (ValueError, UnpicklingError, OSError, EOFError) as error:
        raise _unusable(checkpoint / STATE, error) from None
    # what is no dict has no format: its type is named in the message
    version = state.get("format") if isinstance(state, dict) else type(state).__name__
    if version != FORMAT:
        reason = f"{checkpoint} was written by another version of hbench"
        raise DataError(reason, expected=f"format {FORMAT}", found=str(version))
    return state


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Turn errors in the block, which a state with missing or wrong values causes, into a DataError
    that names the file `path`."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise _unusable(path, error) from None


def random_state() -> dict[str, Any]:
    """Return the states of torch's random generators: "cpu", and a list for all GPUs, "cuda"."""
    cuda: Sequence[torch.Tensor] = (
        torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    )
    return {"cpu": torch.get_rng_state(), "cuda": list(cuda)}


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restore the states of torch's random generators that `random_state` returned."""
    torch.set_rng_state(state["cpu"])
    # this machine may have fewer GPUs than the one that saved the state
    for number in range(min(len(state["cuda"]), torch.cuda.device_count())):
        torch.cuda.set_rng_state(state["cuda"][number], number)


def _unusable(path: Path, error: Exception) -> DataError:
    """Make the error for a checkpoint's file that could not be read. `error`: the cause."""
    first = f"{type(error).__name__}: {first_line(error)}"
    # what torch says of an archive that ends early says nothing to a user
    is_cut = "PytorchStreamReader" in first or getattr(error, "errno", None) == errno.EINVAL
    return DataError(
        f"{path} cannot be loaded",
        found="a file that is damaged, or cut off while it was copied" if is_cut else first,
        fix="remove its folder to resume from an earlier checkpoint",
    )
