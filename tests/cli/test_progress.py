"""The bar of a training."""

import io

import pytest
from rich.console import Console
from rich.progress import Progress as Bars

from hbench.cli.train import Progress
from hbench.train.records.log import StepRecord, ValidationRecord

STEP = StepRecord(
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


@pytest.fixture
def bars():
    return Bars(console=Console(file=io.StringIO()))


def test_the_bar_shows_a_new_best_before_the_next_step(bars):
    shown = Progress(bars, log_every=10, is_first=True)
    shown.step(STEP)
    assert "best" not in bars.tasks[0].description
    shown.validation(ValidationRecord(3, "AP", 0.25, best_step=3, best=0.25))
    assert "loss 0.500  best AP 25.00" in bars.tasks[0].description


def test_the_bar_says_what_is_done_after_the_last_step_without_a_time_left(bars):
    shown = Progress(bars, log_every=10, is_first=True)
    shown.step(STEP._replace(step=8))
    shown.step(STEP._replace(step=9))
    assert bars.tasks[0].fields["left"] == "0:00 left"
    shown.remark("embeds and scores 10 images")
    assert bars.tasks[0].description == "embeds and scores 10 images"
    assert bars.tasks[0].fields["left"] == ""
