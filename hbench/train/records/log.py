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

# is called with a step and its values by name: loss, terms/NAME, lr/NAME, test/NAME …
Callback = Callable[[int, Mapping[str, float]], None]


class StepRecord(NamedTuple):
    """The values after a step: loss, unweighted terms, length of the gradient before clipping,
    whether the step was skipped because one of these is not finite, learning rates, images per
    second of late, without what was done between steps, seconds so far."""

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
    """A validation: the step it came after, the metric that chooses, its value, and the step and
    value of the best so far."""

    step: int
    metric: str
    score: float
    best_step: int
    best: float


@dataclass(frozen=True)
class Watch:
    """What is told of a run while it goes on: every step, every validation, and remarks."""

    on_step: Callable[[StepRecord], None]
    on_validation: Callable[[ValidationRecord], None]
    on_remark: Callable[[str], None]


class Log:
    """Appends steps and scores to a run's log.jsonl, and passes them to callbacks.

    A resumed run first removes the lines after its checkpoint, and the test scores, which it will
    compute again, so that its log ends like that of a run that was never stopped. Without a folder
    (in all processes but the first) nothing is written.
    """

    def __init__(
        self, folder: Path | None, *, step: int, callbacks: Sequence[Callback] = ()
    ) -> None:
        """Open the log in `folder` at a run's step, 0 for a new one; None for the processes that
        write nothing. `callbacks`: are called with the step and the values of every line."""
        self.path = None if folder is None else folder / FILE
        self.callbacks = callbacks if folder is not None else ()
        if self.path is not None:
            # the steps after the checkpoint come again, and so does the test, whatever its step
            kept = [
                line
                for line, record in records(self.path)
                if record["step"] <= step and TEST not in record
            ]
            write_text(self.path, "".join(f"{line}\n" for line in kept))

    def step(self, step: StepRecord) -> None:
        """Log the values of a step; callbacks get loss, terms/NAME, lr/NAME, gradient_norm."""
        values = {"loss": step.loss, "gradient_norm": step.gradient_norm}
        values |= _under("terms", step.terms) | _under("lr", step.rates)
        self._tell(step._asdict(), values)

    def validation(self, step: int, scores: Mapping[str, float]) -> None:
        """Log the scores on the held-out classes; callbacks get validation/NAME."""
        self._tell({"step": step, "validation": scores}, _under("validation", scores))

    def test(self, step: int, scores: Mapping[str, float]) -> None:
        """Log the scores of the tests; callbacks get test/NAME."""
        self._tell({"step": step, TEST: scores}, _under("test", scores))

    def _tell(self, record: Mapping[str, Any], values: Mapping[str, float]) -> None:
        """Append a record, which has its "step", to the file as a line of JSON, and hand the step
        and `values`, a number by name, to the callbacks. `path`: None in processes that write
        nothing."""
        if self.path is not None:
            with full_disk_told(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(_finite(record), allow_nan=False) + "\n")
        for callback in self.callbacks:
            callback(record["step"], values)


def _finite(value: Any) -> Any:
    """Replace numbers that are not finite, which JSON cannot express, by None, in a value of a
    record or, at any depth, in its tables."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def records(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Read the lines of a log, each with its record; a missing log has none, and an incomplete last
    line, without a line break, is ignored.

    Raises DataError for a damaged log.
    """
    try:
        text = read_text(path, most=MAX_LIST_BYTES) if path.exists() else ""
        # what follows the last line break is a line that a killed run did not end
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
    """Whether a line of JSON is one of a log: all say their step."""
    return isinstance(record, dict) and isinstance(record.get("step"), int)


def _under(prefix: str, values: Mapping[str, float]) -> dict[str, float]:
    """Return the values, a number by name, each called PREFIX/NAME."""
    return {f"{prefix}/{name}": value for name, value in values.items()}
