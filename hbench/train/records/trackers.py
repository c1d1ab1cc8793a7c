"""Passes a run's values to TensorBoard or Weights & Biases, each loaded only on request.

A tracker is a context manager that opens a run there, yields a callback of (step, values), and
closes the run at the end.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from hbench.core.errors import UsageError
from hbench.core.registry import Registry
from hbench.train.records.log import Callback

# a function of a run's folder, its recipe as nested tables, and the number of steps so far
Tracker = Callable[[Path, Mapping[str, Any], int], AbstractContextManager[Callback]]

trackers: Registry[Tracker] = Registry("tracker")


@contextmanager
def opened(
    names: Sequence[str], folder: Path, recipe: Mapping[str, Any], step: int
) -> Iterator[list[Callback]]:
    """Open trackers by name for the duration of the block, and yield their callbacks, which take a
    step and its values, {name: number}.

    `folder`: of the run. `recipe`: as nested tables. `step`: the number of steps so far. Raises
    UnknownName, and UsageError for a package that is not installed.
    """
    chosen = [trackers[name] for name in names]
    with ExitStack() as stack:
        yield [stack.enter_context(tracker(folder, recipe, step)) for tracker in chosen]


@trackers.register("tensorboard")
@contextmanager
def tensorboard(folder: Path, _recipe: Mapping[str, Any], step: int) -> Iterator[Callback]:
    """Write event files to the run's folder. If the run is resumed from the checkpoint of `step`,
    earlier events after that step are discarded, since these steps come again."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(step: int, values: Mapping[str, float]) -> None:
        """Write the values of a step; each name is a curve."""
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    try:
        yield write
    finally:
        writer.close()


@trackers.register("wandb")
@contextmanager
def weights_and_biases(folder: Path, recipe: Mapping[str, Any], _step: int) -> Iterator[Callback]:
    """Open a run of Weights & Biases, in the project "hbench" by default (WANDB_PROJECT,
    WANDB_MODE=offline …). A run that is resumed in a folder continues the curves of that folder,
    so that the step at which it resumes (`_step`) is not needed."""
    wandb = _installed("wandb")
    # the id is made from the folder, so that a run resumed there continues the same curves
    identity = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    run = wandb.init(
        name=folder.name, id=identity, dir=str(folder), config=dict(recipe), resume="allow"
    )

    def write(step: int, values: Mapping[str, float]) -> None:
        """Send the values of a step, {name: value}."""
        run.log(dict(values), step=step)

    try:
        yield write
    finally:
        run.finish()


def _installed(package: str) -> Any:
    """Import a package. Raises UsageError if it is not installed."""
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise UsageError(f"{package} is not installed", fix=f"pip install {package}") from None
