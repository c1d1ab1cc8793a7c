"""Logs a run: writes one JSON line per logged step to log.jsonl, and passes the same values to
callbacks.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hbench.core.errors import DataError
from hbench.core.files import full_disk_told, write_text
from hbench.core.untrusted import MAX_LIST_BYTES, parse_json, read_text

FILE = "log.jsonl"
TEST = "scores"

# called with a step and {name: value}: loss, terms/NAME, lr/NAME, test/NAME …
Callback = Callable[[int, Mapping[str, float]], None]


class StepRecord(NamedTuple):
    """The values of a step.

    Attributes:
        step: from 1.
        steps: of the whole run.
        steps_per_epoch: of an epoch.
        loss: the weighted sum.
        terms: {loss: unweighted value}.
        gradient_norm: the length of the gradient before clipping.
        skipped: whether the step changed nothing because the gradient was not finite.
        rates: {group of weights: learning rate}.
        images_per_second: of the last steps, without work between steps.
        seconds: since the run began or was resumed.
    """

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


class ValidationRecord(NamedTuple):
    """A validation: its step, the metric that chooses, its score, and the best step and score so
    far."""

    step: int
    metric: str
    score: float
    best_step: int
    best: float


@dataclass(frozen=True)
class Watch:
    """The callbacks for a run: for every step, every validation, and remarks."""

    on_step: Callable[[StepRecord], None]
    on_validation: Callable[[ValidationRecord], None]
    on_remark: Callable[[str], None]


class Log:
    """Appends steps and scores to a run's log.jsonl, and passes them to callbacks.

    A resumed run first removes the lines after its checkpoint and the test scores, which will be
    computed again, so that its log is the same as without the interruption. Without a folder (in
    all processes but the first) nothing is written.
    """

    def __init__(
        self, folder: Path | None, *, step: int, callbacks: Sequence[Callback] = ()
    ) -> None:
        """Open the log in `folder`; None, as for every process but the first: write and report
        nothing. `step`: the last step of the checkpoint that the run continues from, 0 for a new
        run. `callbacks`: called with the step and the values of every line."""
        self.path = None if folder is None else folder / FILE
        self.callbacks = callbacks if folder is not None else ()
        if self.path is not None:
            # keep the lines up to the checkpoint: the run repeats later steps and the tests
            kept = [
                line
                for line, record in records(self.path)
                if record["step"] <= step and TEST not in record
            ]
            write_text(self.path, "".join(f"{line}\n" for line in kept))

    def step(self, step: StepRecord) -> None:
        """Log the values of a step. Callbacks get loss, terms/NAME, lr/NAME and gradient_norm."""
        values = {"loss": step.loss, "gradient_norm": step.gradient_norm}
        values |= _under("terms", step.terms) | _under("lr", step.rates)
        self._tell(step._asdict(), values)

    def validation(self, step: int, scores: Mapping[str, float]) -> None:
        """Log the scores on the held-out classes. Callbacks get validation/NAME."""
        self._tell({"step": step, "validation": scores}, _under("validation", scores))

    def test(self, step: int, scores: Mapping[str, float]) -> None:
        """Log the scores of the tests. Callbacks get test/NAME."""
        self._tell({"step": step, TEST: scores}, _under("test", scores))

    def _tell(self, record: Mapping[str, Any], values: Mapping[str, float]) -> None:
        """Append a record, which has a key "step", to the file as a line of JSON, and pass its step
        and `values`, {name: number}, to the callbacks."""
        if self.path is not None:
            with full_disk_told(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(_finite(record), allow_nan=False) + "\n")
        for callback in self.callbacks:
            callback(record["step"], values)


def _finite(value: Any) -> Any:
    """Replace numbers that are not finite by None, since JSON cannot express them, also within
    nested tables."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def records(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Read a log: each line, and its record. A missing log has none, and an incomplete last line,
    without a line break, is ignored.

    Raises DataError for a damaged log, such as one with a record that has no step.
    """
    try:
        text = read_text(path, most=MAX_LIST_BYTES) if path.exists() else ""
        # text after the last line break is a line that a killed run did not finish
        *ended, _rest = text.split("\n")
        entries = [(line, parse_json(line)) for line in ended if line]
        if all(_has_step(record) for _, record in entries):
            return entries

        reason = "a line without its step"
    except (OSError, ValueError) as error:
        reason = str(error)

    raise DataError(
        f"{path} is damaged",
        expected="the log of a run",
        found=reason,
        fix="train again in another folder",
    )


def _has_step(record: object) -> bool:
    """Whether a JSON value is a record of a log: every record has a step."""
    return isinstance(record, dict) and isinstance(record.get("step"), int)


def _under(prefix: str, values: Mapping[str, float]) -> dict[str, float]:
    """Return {name: number} with each name changed to PREFIX/NAME."""
    return {f"{prefix}/{name}": value for name, value in values.items()}
