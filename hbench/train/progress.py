"""Logs a run: one JSON line per logged step in log.jsonl, always; TensorBoard events beside it, where wanted."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hbench.core.files import write_text
from hbench.core.untrusted import parse_json

FILE = "log.jsonl"


class Moment(NamedTuple):
    """What is known after a step: the loss, its unweighted terms, the gradient's length before it was clipped, whether the step
    was left out since one of these is not finite, learning rates, images per second, seconds so far."""

    step: int
    steps: int
    steps_per_epoch: int
    loss: float
    terms: Mapping[str, float]
    gradient_norm: float
    skipped: bool
    rates: Mapping[str, float]
    images_per_second: float
    seconds: float


class Log:
    """Appends moments and scores to a run's log; a resumed run first drops what lies behind its checkpoint.

    Without a folder (in all processes but the first) it writes nothing.
    """

    def __init__(self, folder: Path | None, *, step: int, tensorboard: bool = False) -> None:
        self.path = None if folder is None else folder / FILE
        self.events = None
        if folder is not None and self.path is not None:
            kept = [line for line in _lines(self.path) if parse_json(line)["step"] <= step]
            write_text(self.path, "".join(f"{line}\n" for line in kept))
            self.events = _events(folder, step) if tensorboard else None

    def moment(self, moment: Moment) -> None:
        self._write(moment._asdict())
        scalars = {"loss": moment.loss, "gradient_norm": moment.gradient_norm}
        scalars |= _under("loss", moment.terms) | _under("lr", moment.rates)
        self._scalars(scalars, moment.step)

    def scores(self, step: int, scores: Mapping[str, object]) -> None:
        values = {name: float(str(score)) for name, score in scores.items()}
        self._write({"step": step, "scores": values})
        self._scalars(_under("test", values), step)

    def close(self) -> None:
        if self.events is not None:
            self.events.close()

    def _write(self, record: Mapping[str, Any]) -> None:
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(_finite(record), allow_nan=False) + "\n")

    def _scalars(self, values: Mapping[str, float], step: int) -> None:
        if self.events is not None:
            for name, value in values.items():
                self.events.add_scalar(name, value, step)


def _finite(value: Any) -> Any:
    """The value with None, JSON's null, for numbers that are not finite, which JSON cannot say."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _lines(path: Path) -> list[str]:
    """The whole lines of a log: a killed run may have left half a line."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [line for line in text.split("\n")[:-1] if line]


def _under(prefix: str, values: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}/{name}": value for name, value in values.items()}


def _events(folder: Path, step: int) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=step + 1)


@contextmanager
def bar(*, shown: bool) -> Iterator[Callable[[Moment], None]]:
    """A bar on stderr, where it is a terminal and `shown`; else one line whenever a tenth is done."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not (shown and sys.stderr.isatty())) as bars:
        task = bars.add_task("first step", total=None)

        def watch(moment: Moment) -> None:
            bars.update(task, description=described(moment), completed=moment.step, total=moment.steps)
            tenth = moment.step * 10 // moment.steps > (moment.step - 1) * 10 // moment.steps
            if shown and bars.disable and tenth:
                console.print(f"step {moment.step}/{moment.steps}  {described(moment)}", markup=False)

        yield watch


def described(moment: Moment) -> str:
    """A moment in one line."""
    terms = "  ".join(f"{name} {term:.3f}" for name, term in moment.terms.items())
    rates = "/".join(f"{rate:.1e}" for rate in dict.fromkeys(moment.rates.values()))
    epoch = (moment.step - 1) // moment.steps_per_epoch + 1
    left_out = "  left out: not finite" if moment.skipped else ""
    return (
        f"epoch {epoch}  loss {moment.loss:.3f}  {terms}  lr {rates}  {moment.images_per_second:.0f} images/s{left_out}"
    )
