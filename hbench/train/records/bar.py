"""Shows how far a run is: a bar on a terminal, a line whenever a tenth is done elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hbench.train.records.log import Moment


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
