"""The bar of a training."""

import io

from rich.console import Console
from rich.progress import Progress as Bars

from hbench.cli.train import Progress
from hbench.train.records.log import StepRecord, ValidationRecord


def test_the_bar_shows_a_new_best_before_the_next_step():
    step = StepRecord(
        step=3,
        steps=9,
        steps_per_epoch=3,
        loss=0.5,
        terms={"happier": 0.5},
        gradient_norm=1.0,
        skipped=False,
        rates={"body": 1e-3},
        images_per_second=10.0,
        seconds=1.0,
    )
    bars = Bars(console=Console(file=io.StringIO()))
    shown = Progress(bars, log_every=10, is_first=True)
    shown.step(step)
    assert "best" not in bars.tasks[0].description
    shown.validation(ValidationRecord(3, "AP", 0.25, best_step=3, best=0.25))
    assert "loss 0.500  best AP 25.00" in bars.tasks[0].description
