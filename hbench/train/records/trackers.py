"""Passes a run's values to TensorBoard, Weights & Biases or MLflow, each loaded only on request.

A tracker is a context manager that opens a run there, yields a callback of (step, values), and closes the run at the end.
"""

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from hbench.core.errors import UsageError
from hbench.core.files import write_text
from hbench.core.registry import Registry
from hbench.train.records.log import Callback

Tracker = Callable[[Path, Mapping[str, Any], int], AbstractContextManager[Callback]]  # folder, recipe, steps so far

trackers: Registry[Tracker] = Registry("tracker")


@contextmanager
def opened(names: Sequence[str], folder: Path, recipe: Mapping[str, Any], step: int) -> Iterator[list[Callback]]:
    """Open trackers and yield their callbacks; raises UnknownName, and UsageError for a package that is not installed."""
    chosen = [trackers[name] for name in names]
    with ExitStack() as stack:
        yield [stack.enter_context(tracker(folder, recipe, step)) for tracker in chosen]


@trackers.register("tensorboard")
@contextmanager
def tensorboard(folder: Path, _recipe: Mapping[str, Any], step: int) -> Iterator[Callback]:
    """Write event files into the run's folder; earlier events after the checkpoint are discarded."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    try:
        yield write
    finally:
        writer.close()


@trackers.register("wandb")
@contextmanager
def weights_and_biases(folder: Path, recipe: Mapping[str, Any], _step: int) -> Iterator[Callback]:
    """Open a run of wandb's project, by default "hbench" (WANDB_PROJECT, WANDB_MODE=offline …); resume the same run."""
    wandb = _installed("wandb")
    identity = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    run = wandb.init(name=folder.name, id=identity, dir=str(folder), config=dict(recipe), resume="allow")

    def write(step: int, values: Mapping[str, float]) -> None:
        run.log(dict(values), step=step)

    try:
        yield write
    finally:
        run.finish()


@trackers.register("mlflow")
@contextmanager
def ml_flow(folder: Path, recipe: Mapping[str, Any], _step: int) -> Iterator[Callback]:
    """Open a run of the tracking server (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME); resume the same run."""
    mlflow = _installed("mlflow")
    note = folder / "mlflow-run.txt"
    known = note.read_text(encoding="utf-8").strip() if note.exists() else None
    with mlflow.start_run(run_id=known, run_name=None if known else folder.name) as run:
        if known is None:
            write_text(note, run.info.run_id + "\n")
            mlflow.log_params(dict(_flat(recipe)))

        def write(step: int, values: Mapping[str, float]) -> None:
            finite = {_plain(name): value for name, value in values.items() if math.isfinite(value)}
            mlflow.log_metrics(finite, step=step)

        yield write


def _plain(name: str) -> str:
    """Replace the characters in a name that MLflow refuses, and /, since it makes folders.

    >>> _plain("test/R@1/family")
    'test.R_at_1.family'
    """
    return re.sub(r"[^\w. -]", ".", name.replace("@", "_at_"))


def _installed(package: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise UsageError(f"{package} is not installed", fix=f"pip install {package}") from None


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables as KEY.KEY and value.

    >>> dict(_flat({"a": {"x": 1}, "b": 2}))
    {'a.x': 1, 'b': 2}
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
