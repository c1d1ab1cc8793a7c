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

# of the folder of a run, its recipe as tables, and the steps that it has taken so far
Tracker = Callable[[Path, Mapping[str, Any], int], AbstractContextManager[Callback]]

trackers: Registry[Tracker] = Registry("tracker")


@contextmanager
def opened(
    names: Sequence[str], folder: Path, recipe: Mapping[str, Any], step: int
) -> Iterator[list[Callback]]:
    """Open trackers by name within the block, and yield their callbacks; `folder`: of the run;
    `recipe`: of the run, as tables in tables; `step`: how many steps the run has taken so far.
    Raises UnknownName, and UsageError for a package that is not installed.
    """
    chosen = [trackers[name] for name in names]
    with ExitStack() as stack:
        yield [stack.enter_context(tracker(folder, recipe, step)) for tracker in chosen]


@trackers.register("tensorboard")
@contextmanager
def tensorboard(folder: Path, _recipe: Mapping[str, Any], step: int) -> Iterator[Callback]:
    """Write event files into the run's folder; earlier events after the checkpoint of `step`, from
    which the run goes on, are discarded, as their steps come again."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(step: int, values: Mapping[str, float]) -> None:
        """Write the values of a step, a curve for each name."""
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    try:
        yield write
    finally:
        writer.close()


@trackers.register("wandb")
@contextmanager
def weights_and_biases(folder: Path, recipe: Mapping[str, Any], _step: int) -> Iterator[Callback]:
    """Open a run of wandb's project, by default "hbench" (WANDB_PROJECT, WANDB_MODE=offline …);
    resume the same run.
    """
    wandb = _installed("wandb")
    # the folder is the run: one that is resumed there goes on in the same curve
    identity = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    run = wandb.init(
        name=folder.name, id=identity, dir=str(folder), config=dict(recipe), resume="allow"
    )

    def write(step: int, values: Mapping[str, float]) -> None:
        """Send the values of a step, by name, to the run."""
        run.log(dict(values), step=step)

    try:
        yield write
    finally:
        run.finish()


def _installed(package: str) -> Any:
    """The module of a package; raises UsageError where it is not installed."""
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise UsageError(f"{package} is not installed", fix=f"pip install {package}") from None
