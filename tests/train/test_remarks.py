"""What training says and refuses beside its numbers."""

import shutil
import time

import pytest

from hbench.core.errors import ConfigError, DataError, UsageError
from hbench.train import loop
from hbench.train.embedding.embed_dataset import embedder
from hbench.train.recipes.files import resolve
from hbench.train.records.refusals import remarks_on
from tests.training import tiny


def test_an_interrupt_while_the_tests_are_embedded_says_how_to_go_on(
    letters, tmp_path, monkeypatch
):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "embed_all", interrupted)
    with pytest.raises(loop.TrainingInterrupted, match="--resume"):
        loop.train(tiny("glyphs-happier"), tmp_path, dataset=letters)


def test_the_pace_that_is_told_is_that_of_steps_alone(letters, tmp_path):
    """What a caller does after a step takes a second, as a validation does."""
    told = []

    def slow(step):
        told.append(step.images_per_second)
        time.sleep(1)

    recipe = tiny("glyphs-happier", "epochs=1")
    loop.train(recipe, tmp_path, dataset=letters, on_progress=slow)
    assert told[-1] > recipe.sampler.batch / 1


def test_a_run_that_ended_and_lost_its_weights_is_not_begun_anew(letters, tmp_path):
    recipe = tiny("glyphs-happier", "epochs=1")
    loop.train(recipe, tmp_path, dataset=letters)
    for folder in tmp_path.glob("step-*"):
        shutil.rmtree(folder)
    report = (tmp_path / "report.json").read_bytes()
    with pytest.raises(UsageError, match="its weights were deleted"):
        loop.train(recipe, tmp_path, dataset=letters, resume=True)
    assert (tmp_path / "report.json").read_bytes() == report
    with pytest.raises(DataError, match="were deleted") as refused:
        embedder(str(tmp_path))
    assert f"hbench train {tmp_path / 'recipe.toml'} --out" in refused.value.fix


def test_losses_that_all_weigh_nothing_are_refused():
    with pytest.raises(ConfigError, match="no loss is left"):
        resolve("glyphs-happier", ["losses.sup_hap.weight=0", "losses.cluster.weight=0"])


def test_batches_without_positives_are_remarked():
    alone = resolve("glyphs-happier", ["sampler.per_class=1"])
    assert any("the only one of its class" in remark for remark in remarks_on(alone, 10))
    assert not remarks_on(resolve("glyphs-happier"), 10**6)
