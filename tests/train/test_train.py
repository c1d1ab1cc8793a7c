"""Training: end to end on letters, the parts of a step, interruption and resume to the bit,
refusals.
"""

import dataclasses
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import load as read_weights
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

import hbench
from hbench.core.errors import ConfigError, DataError, HBenchError, UnknownName, UsageError
from hbench.datasets import manifest as manifests
from hbench.datasets import save
from hbench.submissions import embeddings
from hbench.train import loop
from hbench.train.embedding import embed_dataset as embedding
from hbench.train.images.batches import images_of, in_order
from hbench.train.images.transforms import shift_images, uniform_numbers
from hbench.train.models.model import GeM, begin_projection_by_pca, build_model
from hbench.train.processes import SINGLE_PROCESS, Processes
from hbench.train.recipes.files import resolve
from hbench.train.recipes.recipe import Model, Schedule
from hbench.train.records import checkpoints as checkpoint
from hbench.train.records.log import Log
from hbench.train.steps import take
from hbench.train.steps.gradients import direct, in_two_passes
from hbench.train.steps.optimizers import FACTORS, build_optimizers, set_rates
from hbench.train.steps.run import BestStep, begin
from hbench.train.validation import split_off
from hbench.tree.names import class_rows
from hbench.tree.partial import ended_early
from tests.command_line import at_a_terminal, call, refusal
from tests.training import TINY, signalled_at, tiny

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("one_thread")


def weights_of(folder):
    return (checkpoint.latest(folder) / checkpoint.MODEL).read_bytes()


def logged(folder):
    """The log's lines without what depends on the clock."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if "second" not in key} for line in lines]


def test_training_makes_a_better_net_and_leaves_everything_it_takes_to_score_it_again(
    letters, tmp_path
):
    idle = tiny("glyphs-happier", "optimizer.lr=0", "epochs=1", "steps_per_epoch=1")
    untrained = loop.train(idle, tmp_path / "a", dataset=letters)
    changes = ["epochs=10", "sampler.batch=48", "optimizer.lr=3e-3", "model.dim=32"]
    report = loop.train(tiny("glyphs-happier", *changes), tmp_path / "b", dataset=letters)
    assert report.scores["H-AP"] > untrained.scores["H-AP"] + 0.05
    files = {
        "recipe.toml",
        "log.jsonl",
        "step-00000030",
        "test.parquet",
        "report.json",
        "report.by-query.parquet",
    }
    assert {path.name for path in (tmp_path / "b").iterdir()} == files
    again = hbench.evaluate(tmp_path / "b" / "test.parquet", letters)
    assert again.scores["H-AP"] == report.scores["H-AP"]


def test_log_and_callbacks_have_losses_rates_and_scores_of_every_step(letters, tmp_path):
    recipe, calls = tiny("glyphs-happier", "schedule.name=steps", "schedule.milestones=[1]"), []
    loop.train(
        recipe,
        tmp_path,
        dataset=letters,
        callbacks=[lambda step, values: calls.append((step, dict(values)))],
    )
    lines = logged(tmp_path)
    assert [line["step"] for line in lines] == [step for step, _ in calls] == [1, 2, 3, 4, 5, 6, 6]
    assert lines[0]["loss"] == pytest.approx(
        0.9 * lines[0]["terms"]["sup_hap"] + 0.1 * lines[0]["terms"]["cluster"]
    )
    assert lines[3]["rates"]["body"] == pytest.approx(0.1 * lines[2]["rates"]["body"])
    assert lines[-1]["scores"]["H-AP"] == calls[-1][1]["test/H-AP"] > 0
    assert (calls[0][1]["loss"], calls[0][1]["lr/head"]) == (
        lines[0]["loss"],
        lines[0]["rates"]["head"],
    )


def test_held_out_classes_choose_the_checkpoint_that_is_tested(letters, tmp_path, monkeypatch):
    """The scores of the validations are scripted: the best is that of step 6 of 12, and the tests
    are looked at once.
    """
    script = iter([0.2, 0.7, 0.4, 0.5])
    monkeypatch.setattr(loop, "validation_scores", lambda *_: {"AP": next(script)})
    recipe = tiny(
        "glyphs-happier", "validation=0.25", "evaluate_every=1", "select_by=AP", "epochs=4"
    )
    loop.train(recipe, tmp_path, dataset=letters)
    assert [line["step"] for line in logged(tmp_path) if "scores" in line] == [12]
    validations = {
        line["step"]: line["validation"] for line in logged(tmp_path) if "validation" in line
    }
    assert validations == {3: {"AP": 0.2}, 6: {"AP": 0.7}, 9: {"AP": 0.4}, 12: {"AP": 0.5}}
    assert checkpoint.best(tmp_path).name == "step-00000006"
    assert {path.name for path in checkpoint.checkpoints_in(tmp_path)} == {
        "step-00000006",
        "step-00000012",
    }
    best = embedding.embedder(str(tmp_path))
    embedding.embed(best, letters, tmp_path / "best.parquet")
    ours, runs = (
        embeddings.read(tmp_path / name).vectors for name in ("best.parquet", "test.parquet")
    )
    np.testing.assert_allclose(ours, runs, atol=1e-6)


@pytest.mark.parametrize("warm_up", [0, 1])
def test_a_best_checkpoint_of_the_warm_up_is_said_to_be_one(
    letters, tmp_path, monkeypatch, warm_up
):
    script = iter([0.7, 0.4])  # the first epoch is the best, and all of the warm-up
    monkeypatch.setattr(loop, "validation_scores", lambda *_: {"AP": next(script)})
    changes = ["validation=0.25", "evaluate_every=1", "select_by=AP", "epochs=2"]
    recipe = tiny("glyphs-happier", *changes, f"schedule.warm_up={warm_up}")
    remarks = []
    loop.train(recipe, tmp_path, dataset=letters, on_remark=remarks.append)
    (scored,) = [remark for remark in remarks if "scored is the checkpoint of step 3" in remark]
    assert ("still frozen" in scored) == bool(warm_up)


def test_a_run_stops_early_once_and_for_all(letters, tmp_path):
    """A net that learns nothing is as good after every epoch: the first stays the best."""
    changes = [
        "optimizer.lr=0",
        "model.freeze_batch_norm=true",
        "validation=0.25",
        "evaluate_every=1",
        "patience=2",
        "log_every=100",
    ]
    recipe = tiny("glyphs-happier", *changes, "epochs=8")
    remarks = []
    loop.train(recipe, tmp_path, dataset=letters, on_remark=remarks.append)
    before, taken = logged(tmp_path), []
    assert before[-1]["step"] == 9
    # the steps of validations are logged, too, so that the run can be drawn
    assert [line["step"] for line in before if "loss" in line] == [3, 6, 9]
    assert any("stops after step 9 of 24" in remark for remark in remarks)
    assert checkpoint.best(tmp_path).name == "step-00000003"
    loop.train(recipe, tmp_path, dataset=letters, resume=True, on_progress=taken.append)
    assert taken == []
    assert logged(tmp_path) == before


def test_validation_is_by_class_seeded_and_true(letters, tmp_path):
    """Held-out classes are not learnt from; their scores are what evaluating an embedding of them
    says.
    """
    recipe = tiny("glyphs-happier", "validation=0.25", "evaluate_every=2")
    rest, held = split_off(letters, recipe)
    manifest = held.tests["validation"]
    assert set(rest.train.items).isdisjoint(manifest.items)
    assert {*rest.train.items, *manifest.items} == set(letters.train.items)
    learnt, asked = (set(map(tuple, class_rows(each.tree))) for each in (rest.train, manifest))
    assert learnt.isdisjoint(asked)
    assert len(asked) == round(0.25 * 24)
    again, other = (
        split_off(letters, each)[1] for each in (recipe, recipe.model_copy(update={"seed": 1}))
    )
    assert again.tests["validation"].digest == manifest.digest != other.tests["validation"].digest
    loop.train(recipe, tmp_path, dataset=letters)
    (scored,) = [line["validation"] for line in logged(tmp_path) if "validation" in line]
    embedding.embed(
        embedding.embedder(str(tmp_path)), held, tmp_path / "held.npz", split="validation"
    )
    report = hbench.evaluate(tmp_path / "held.npz", held)
    # other batches: last bits, a rank or two
    assert scored["H-AP"] == pytest.approx(float(report.scores["H-AP"]), abs=1e-3)


def test_a_level_named_for_the_validation_is_held_out_whole(letters):
    recipe = tiny("glyphs-happier", "validation=0.25", "validation_level=base")
    rest, held = split_off(letters, recipe)
    levels = letters.levels
    assert levels[2] == "base"
    parts = (letters.train, rest.train, held.tests["validation"])
    bases = [{row[:3] for row in class_rows(each.tree)} for each in parts]
    assert bases[1].isdisjoint(bases[2])
    assert bases[0] == bases[1] | bases[2]
    assert len(bases[2]) == round(0.25 * len(bases[0]))
    finest = split_off(
        letters, tiny("glyphs-happier", "validation=0.25", "validation_level=character")
    )[1]
    unnamed = split_off(letters, tiny("glyphs-happier", "validation=0.25"))[1]
    assert finest.tests["validation"].digest == unnamed.tests["validation"].digest


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ([], "cannot share a batch"),  # by three processes
        (["validation=0.01", "evaluate_every=1"], "too few or all of the training classes"),
        (["validation=0.5", "validation_level=genus"], "unknown level"),
        (["evaluate_every=1"], "evaluate_every and patience need validation > 0"),
        (["validation=0.5", "evaluate_every=1", "select_by=H-A"], "unknown metric"),
        (["select_by=recall@1"], "unknown metric"),
        (["validation=0.5", "evaluate_every=1", "select_by=AP/genus"], "unknown level"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    letters, tmp_path, changes, problem
):
    processes = SINGLE_PROCESS if changes else Processes(0, 3, torch.device("cpu"))
    with pytest.raises(HBenchError, match=problem):
        loop.train(
            tiny("glyphs-happier", *changes), tmp_path / "run", dataset=letters, processes=processes
        )
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_is_not_installed_is_named_before_the_first_step(
    letters, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match="wandb is not installed"):
        loop.train(tiny(), tmp_path, dataset=letters, track=["wandb"])
    with pytest.raises(UnknownName, match="did you mean 'wandb'"):
        loop.train(tiny(), tmp_path, dataset=letters, track=["wand"], resume=True)


def test_tensorboard_has_the_curves_of_the_log_also_of_a_run_that_was_cut(letters, tmp_path):
    killed_at_6 = Mock(side_effect=[*[None] * 5, RuntimeError("killed")])
    recipe = tiny("glyphs-happier", "checkpoint_every=2", "validation=0.25", "evaluate_every=1")
    with pytest.raises(RuntimeError, match="killed"):
        loop.train(
            recipe, tmp_path, dataset=letters, track=["tensorboard"], on_progress=killed_at_6
        )
    loop.train(recipe, tmp_path, dataset=letters, track=["tensorboard"], resume=True)
    curves = EventAccumulator(str(tmp_path)).Reload()
    lines = logged(tmp_path)
    curve = {event.step: event.value for event in curves.Scalars("loss")}
    assert curve == {line["step"]: pytest.approx(line["loss"]) for line in lines if "loss" in line}
    assert [event.step for event in curves.Scalars("loss")] == [1, 2, 3, 4, 5, 6]
    assert [event.step for event in curves.Scalars("validation/H-AP")] == [3, 6]
    (tested,) = curves.Scalars("test/H-AP")
    assert tested.value == pytest.approx(lines[-1]["scores"]["H-AP"])


def test_partial_labels_train_a_loss_of_ranks_and_are_refused_by_a_loss_of_proxies(
    letters, tmp_path
):
    """The small glyphs, every third training item known to the level above the finest alone."""
    rows = [class_rows(letters.train.tree)[fine] for fine in letters.train.labels[:, -1].tolist()]
    rows = [
        ended_early(row[:-1], letters.levels) if n % 3 == 0 else row for n, row in enumerate(rows)
    ]
    train = manifests.from_names(letters.train.items.tolist(), rows, levels=letters.levels)
    partly_known = dataclasses.replace(letters, train=train)
    loop.train(tiny("glyphs-roadmap", "epochs=1"), tmp_path / "ranks", dataset=partly_known)
    losses = [line["loss"] for line in logged(tmp_path / "ranks") if "loss" in line]
    assert len(losses) == 3
    assert np.isfinite(losses).all()
    with pytest.raises(ConfigError, match=r"needs every label[\s\S]*--policy drop"):
        loop.train(tiny("glyphs-happier"), tmp_path / "proxies", dataset=partly_known)


def gradients(compute, run, pixels, labels):
    run.model.zero_grad()
    run.objective.zero_grad()
    total, _ = compute(
        run.embed, run.objective, pixels, labels, processes=SINGLE_PROCESS, scale=lambda loss: loss
    )
    both = [*run.model.parameters(), *run.objective.parameters()]
    return float(total), [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in both]


@pytest.mark.parametrize("part", [3, 4, 16])
def test_two_passes_give_the_direct_gradient(letters, part):
    recipe = tiny("glyphs-happier", "model.freeze_batch_norm=true")
    run = begin(recipe, letters)
    torch.manual_seed(1)
    pixels = torch.randn(16, 1, 32, 32)
    labels = torch.from_numpy(letters.train.labels[:160:10].astype(np.int64))
    loss, expected = gradients(direct, run, pixels, labels)
    again, found = gradients(in_two_passes(part), run, pixels, labels)
    assert again == pytest.approx(loss, rel=1e-6)
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_two_passes_drop_the_same_units(letters):
    run = begin(tiny("glyphs-happier", "model.freeze_batch_norm=true"), letters)
    run.model.pooling.append(nn.Dropout(0.5))
    seen = []
    run.model.pooling.register_forward_hook(
        lambda _module, _inputs, output: seen.append(output.detach().clone())
    )
    labels = torch.from_numpy(letters.train.labels[:16].astype(np.int64))
    gradients(in_two_passes(8), run, torch.randn(16, 1, 32, 32), labels)
    assert torch.equal(seen[0], seen[2])
    assert torch.equal(seen[1], seen[3])
    assert not torch.equal(seen[0] == 0, seen[1] == 0)


def test_gem_is_the_generalised_mean_over_the_map():
    features = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    assert GeM()(features).item() == pytest.approx(
        ((1**3 + 2**3 + 3**3 + 4**3) / 4) ** (1 / 3), rel=1e-6
    )


def test_embeddings_have_length_one_and_batch_norms_stay_frozen():
    model = build_model(Model(backbone="hbench:small", weights="random", dim=8)).train()
    norms = [part for part in model.modules() if isinstance(part, nn.BatchNorm2d)]
    before = norms[0].running_mean.clone()
    vectors = model(torch.randn(4, 1, 32, 32))
    assert torch.allclose(vectors.norm(dim=1), torch.ones(4))
    assert torch.equal(norms[0].running_mean, before)
    assert not any(norm.training for norm in norms)


def test_a_projection_that_begins_by_pca_whitens_the_features():
    model = build_model(Model(backbone="hbench:small", weights="random", dim=4)).eval()
    images = torch.randn(64, 1, 32, 32)
    begin_projection_by_pca(model, images.split(16))
    with torch.no_grad():
        projected = model.projection(model.describe(images)).double().numpy()
    np.testing.assert_allclose(projected.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(np.cov(projected.T), np.eye(4), atol=1e-2)
    with pytest.raises(DataError, match="too few images"):
        begin_projection_by_pca(model, [images[:4]])  # four vary in three directions
    with pytest.raises(DataError, match=r"too few directions[\s\S]*model.dim=2"):
        begin_projection_by_pca(model, [images[:3].repeat(10, 1, 1, 1)])
    model = build_model(Model(backbone="hbench:small", weights="random", dim=129)).eval()
    with pytest.raises(DataError, match=r"too few features[\s\S]*model.dim=128"):
        begin_projection_by_pca(model, [images])


def test_a_run_begins_its_projection_by_pca_of_its_training_images(letters):
    recipe = tiny("glyphs-happier", 'model.projection="pca"', "model.dim=4")
    run, images = (
        begin(recipe, letters),
        images_of("glyphs", letters.train, recipe.images, vary=False),
    )
    pixels = torch.cat(
        [some for some, _ in in_order(images, np.arange(len(letters.train)), batch=64, workers=0)]
    )
    with torch.no_grad():
        projected = run.model.projection(run.model.eval().describe(pixels)).double().numpy()
    np.testing.assert_allclose(np.cov(projected.T), np.eye(4), atol=0.05)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cosine", [1, (1 + 2**-0.5) / 2, 0.5]), ("constant", [1, 1, 1]), ("steps", [1, 0.1, 0.01])],
)
def test_a_schedule_is_its_formula(name, expected):
    schedule = Schedule(milestones=(1, 2), gamma=0.1)
    factors = [FACTORS[name](epoch, 4, schedule) for epoch in range(3)]
    assert factors == pytest.approx(expected)


def test_each_group_has_its_rate_and_the_body_is_frozen_during_warm_up(letters):
    changes = [
        "optimizer.lr=0.1",
        "optimizer.head=2",
        "optimizer.lr_min=0.01",
        "proxies.lr=10",
        "proxies.lr_min=0.5",
    ]
    recipe = tiny("glyphs-happier", *changes, "schedule.warm_up=1", "epochs=4")
    run = begin(recipe, letters)
    assert set_rates(run.optimizers, recipe, 0) == {"body": 0, "head": 0.2, "proxies": 10}
    first = set_rates(run.optimizers, recipe, 1)
    assert first == pytest.approx({"body": 0.1, "head": 0.2, "proxies": 10})
    half = set_rates(run.optimizers, recipe, 3)
    assert half == pytest.approx(
        {"body": (0.1 + 0.01) / 2, "head": (0.2 + 0.01) / 2, "proxies": (10 + 0.5) / 2}
    )
    # a lowest rate is the cosine's alone
    steps = ["schedule.name=steps", "schedule.milestones=[1]", "schedule.gamma=0.3"]
    recipe = tiny("glyphs-nsm", *steps, "optimizer.lr=1", "optimizer.lr_min=0.5")
    run = begin(recipe, letters)
    assert [set_rates(run.optimizers, recipe, epoch)["body"] for epoch in (0, 1)] == [1.0, 0.3]


def test_frozen_parameters_are_not_differentiated_during_warm_up(letters, tmp_path):
    recipe = tiny("glyphs-happier", "schedule.warm_up=1", "model.freeze_batch_norm=true")
    run = begin(recipe, letters)
    before = [weight.clone() for weight in run.model.body()]
    for moment in take.steps(run, recipe, letters, tmp_path):
        moved = [not torch.equal(a, b) for a, b in zip(before, run.model.body(), strict=True)]
        if moment.step <= 3:
            assert not any(moved)
            assert all(weight.grad is None for weight in run.model.body())
            assert run.model.projection.weight.grad is not None
    assert any(moved)


@pytest.mark.parametrize("dim", [8, 4096])  # the state, or the weights alone, are too large
def test_a_full_disk_ends_a_run_in_one_message_and_leaves_no_half_checkpoint(
    letters, small_disk, dim
):
    (small_disk / "filler").write_bytes(bytes(500_000))
    recipe = tiny("glyphs-nsm", f"model.dim={dim}", "images.size=32")
    with pytest.raises(DataError, match=r"the disk is full: .*step-00000006 could not be written"):
        loop.train(recipe, small_disk / "run", dataset=letters)
    assert {path.name for path in (small_disk / "run").iterdir()} == {"recipe.toml", "log.jsonl"}


def test_a_warm_up_below_one_is_a_share_of_the_steps_however_few_the_epochs(letters, tmp_path):
    assert resolve("own-data").schedule.warm_up <= 0.1
    for epochs, resting in ((1, 0), (10, 1)):
        recipe = tiny(
            "glyphs-happier",
            f"schedule.warm_up={resolve('own-data').schedule.warm_up}",
            f"epochs={epochs}",
        )
        run = begin(recipe, letters)
        rates = [moment.rates["body"] for moment in take.steps(run, recipe, letters, tmp_path)]
        assert rates.count(0) == resting


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        (["schedule.warm_up=1"], "is frozen for 50% of the steps"),
        (["schedule.warm_up=0.5"], "is frozen for 50% of the steps"),
        (["steps_per_epoch=500"], r"an epoch has \d+ steps instead of 500"),
        (["schedule.warm_up=0.3"], None),
    ],
)
def test_what_may_surprise_is_said_before_the_first_step(letters, tmp_path, changes, remark):
    remarks = []

    def watch(_moment):
        assert len(remarks) == (remark is not None)

    recipe = tiny("glyphs-nsm", *changes)
    loop.train(recipe, tmp_path, dataset=letters, on_progress=watch, on_remark=remarks.append)
    if remark:
        assert re.search(remark, remarks[0])


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_trains_and_embeds_in_float32(letters, tmp_path, precision):
    report = loop.train(tiny("glyphs-happier", f"precision={precision}"), tmp_path, dataset=letters)
    assert report.document.embedding.dtype == "float32"
    assert all(np.isfinite(line["loss"]) for line in logged(tmp_path)[:-1])
    begun = begin(tiny("glyphs-happier", f"precision={precision}"), letters).model
    trained = read_weights(weights_of(tmp_path))
    assert not torch.equal(trained["projection.weight"], begun.projection.weight)


def test_uniform_numbers_are_uniform_and_depend_on_their_seed_alone():
    shares = uniform_numbers(np.arange(20_000), 2)
    assert shares.min() >= 0
    assert shares.max() < 1
    assert shares.mean() == pytest.approx(0.5, abs=0.01)
    assert abs(np.corrcoef(shares.T)[0, 1]) < 0.02


def test_a_shift_by_nothing_changes_nothing():
    images = torch.rand(3, 1, 32, 32)
    moved = shift_images(images, np.array([1, 2, 3]), (1.0, 1.0))
    again = shift_images(images, np.array([1, 2, 3]), (1.0, 1.0))
    assert torch.equal(moved, again)
    assert not torch.equal(moved, images)
    assert torch.equal(moved[1:2], shift_images(images[1:2], np.array([2]), (1.0, 1.0)))


def test_beyond_the_edge_is_black_or_what_is_at_the_edge():
    white, draws = torch.ones(50, 1, 32, 32), np.arange(50)
    assert shift_images(white, draws, (0.9, 1.1)).min() == 0
    assert shift_images(white, draws, (0.9, 1.1), "border").min() == pytest.approx(1)


def test_a_killed_run_resumes_to_the_same_bits(letters, tmp_path):
    """Killed (SIGKILL) at a random step, resumed; its weights and log are those of a run that was
    never stopped.
    """
    save(letters, tmp_path / "letters")
    changes = [f"dataset={tmp_path / 'letters'}", *TINY, "steps_per_epoch=6", "checkpoint_every=2"]
    sets = [word for change in changes for word in ("--set", change)]
    line = [
        sys.executable,
        "-m",
        "hbench.train",
        "glyphs-happier",
        *sets,
        "--out",
        tmp_path / "killed",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    victim = subprocess.Popen(
        [*line, "--threads", "1"], env=environment, cwd=ROOT, stderr=subprocess.DEVNULL
    )
    last = random.choice([2, 4, 6, 8])
    while victim.poll() is None and not any(
        int(p.name[5:]) >= last for p in (tmp_path / "killed").glob("step-*")
    ):
        time.sleep(0.005)
    victim.kill()
    assert victim.wait() == -signal.SIGKILL, "the run was over before it could be killed"
    recipe = resolve("glyphs-happier", changes)
    loop.train(recipe, tmp_path / "whole")
    loop.train(recipe, tmp_path / "killed", resume=True)
    assert weights_of(tmp_path / "whole") == weights_of(tmp_path / "killed")
    assert logged(tmp_path / "whole") == logged(tmp_path / "killed")


@pytest.fixture(
    scope="module",
    params=[(), ("glyphs-xbm", "losses.xbm.params.warm_up=0"), ("glyphs-rambo-log",)],
    ids=["plain", "xbm", "rambo"],
)
def interrupted(request, letters, tmp_path_factory):
    """A recipe, the folder of a run of it that was interrupted, and how that run ended."""
    recipe, folder = tiny(*request.param), tmp_path_factory.mktemp("interrupted")
    with pytest.raises(loop.TrainingInterrupted, match="stopped after step 3 of 6") as stopped:
        loop.train(recipe, folder, dataset=letters, on_progress=signalled_at(3))
    return recipe, folder, stopped.value


def test_an_interrupted_run_says_how_to_resume(interrupted):
    _, _, stopped = interrupted
    assert stopped.exit_code == 130
    assert f"--resume --threads {torch.get_num_threads()}" in str(stopped)


@pytest.fixture(scope="module")
def resumed(interrupted, letters, tmp_path_factory):
    """The recipe, the folder of the run that went on, and that of a whole one with its report."""
    recipe, folder, _ = interrupted
    loop.train(recipe, folder, dataset=letters, resume=True)
    whole = tmp_path_factory.mktemp("whole")
    return recipe, folder, whole, loop.train(recipe, whole, dataset=letters)


def test_an_interrupted_run_saves_all_that_it_takes_to_resume(resumed):
    _, folder, whole, _ = resumed
    assert weights_of(folder) == weights_of(whole)
    assert logged(folder) == logged(whole)


def test_a_finished_run_changes_nothing_when_it_is_resumed(resumed, letters):
    recipe, folder, whole, report = resumed
    again = loop.train(recipe, whole, dataset=letters, resume=True)
    assert weights_of(folder) == weights_of(whole)
    assert again.scores["H-AP"] == report.scores["H-AP"]


@pytest.fixture(scope="module")
def undisturbed(letters, tmp_path_factory):
    """A recipe, and the folder of a run of it that nothing interrupted."""
    recipe = tiny(
        "glyphs-happier", "validation=0.25", "evaluate_every=1", "checkpoint_every=2", "epochs=3"
    )
    folder = tmp_path_factory.mktemp("undisturbed")
    loop.train(recipe, folder, dataset=letters)
    return recipe, folder


@pytest.mark.parametrize("moment", ["before a checkpoint", "before the tests", "after all"])
def test_the_log_of_a_killed_run_is_that_of_an_undisturbed_one(
    letters, undisturbed, tmp_path, monkeypatch, moment
):
    """Killed in between what a step leaves behind: its line, the validation's, the checkpoint, the
    tests'.
    """
    recipe, whole = undisturbed

    dies = Mock(side_effect=SystemExit)
    with monkeypatch.context() as patched, suppress(SystemExit):
        if moment == "before a checkpoint":
            save = loop.TrainingRun.save
            patched.setattr(
                loop.TrainingRun,
                "save",
                lambda run, out: dies() if run.step >= 6 else save(run, out),
            )
        if moment == "before the tests":
            patched.setattr(loop, "_score", dies)
        loop.train(recipe, tmp_path, dataset=letters)
    loop.train(recipe, tmp_path, dataset=letters, resume=True)
    assert logged(tmp_path) == logged(whole)
    assert weights_of(tmp_path) == weights_of(whole)
    names = [
        [path.name for path in checkpoint.checkpoints_in(folder)] for folder in (tmp_path, whole)
    ]
    assert names[0] == names[1]


def test_a_checkpoint_is_written_by_time_too(letters, tmp_path):
    """Steps of a large net are slow: a run that is killed would have lost the hours before."""
    there = []
    recipe = tiny("glyphs-nsm", "checkpoint_every=1000", "checkpoint_minutes=1e-9")
    loop.train(
        recipe,
        tmp_path,
        dataset=letters,
        on_progress=lambda _step: there.append(len(checkpoint.checkpoints_in(tmp_path))),
    )
    assert there[:3] == [0, 1, 2]


def test_a_resumed_run_without_a_checkpoint_says_that_it_begins_anew(letters, tmp_path):
    def dies(_step):
        raise SystemExit

    said = []
    with suppress(SystemExit):
        loop.train(tiny(), tmp_path, dataset=letters, on_progress=dies)
    loop.train(tiny(), tmp_path, dataset=letters, resume=True, on_remark=said.append)
    assert any("begins anew" in remark for remark in said)


def test_a_first_try_that_failed_before_a_checkpoint_does_not_keep_its_folder(letters, tmp_path):
    with pytest.raises(HBenchError, match="not finite"):
        loop.train(tiny("glyphs-nsm", "optimizer.lr=1e30"), tmp_path, dataset=letters)
    assert list(tmp_path.glob("*non-finite.json"))
    slower = tiny("glyphs-nsm", "optimizer.lr=1e-3")
    loop.train(slower, tmp_path, dataset=letters)
    assert not list(tmp_path.glob("*non-finite.json"))  # which was of the first
    assert resolve(str(tmp_path / "recipe.toml")).optimizer.lr == 1e-3
    assert [line["step"] for line in logged(tmp_path)][:2] == [1, 2]


def test_a_folder_with_the_report_of_another_verb_holds_no_run(letters, tmp_path):
    (tmp_path / "report.json").write_text("{}", encoding="utf-8")
    loop.train(tiny(), tmp_path, dataset=letters)
    assert (tmp_path / "recipe.toml").exists()


def test_a_process_that_torchrun_restarts_resumes_by_itself(letters, tmp_path, monkeypatch):
    with pytest.raises(loop.TrainingInterrupted):
        loop.train(tiny(), tmp_path, dataset=letters, on_progress=signalled_at(4, signal.SIGTERM))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    taken = []
    loop.train(
        tiny(), tmp_path, dataset=letters, on_progress=lambda moment: taken.append(moment.step)
    )
    assert taken == [5, 6]


def test_a_recipe_that_is_refused_leaves_no_run(letters, tmp_path):
    for change, problem in (
        ("losses.foo.weight=1", "unknown loss"),
        ("sampler.smallest=100", "too few classes"),
    ):
        with pytest.raises(HBenchError, match=problem):
            loop.train(tiny("glyphs-happier", change), tmp_path / "run", dataset=letters)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        loop.train(tiny(), tmp_path / "file", dataset=letters)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_with_another_run_is_refused(letters, undisturbed):
    recipe, folder = undisturbed
    with pytest.raises(UsageError, match="holds a run already"):
        loop.train(recipe, folder, dataset=letters)
    for resume in (True, False):
        with pytest.raises(UsageError, match=r"another recipe[\s\S]*optimizer.lr"):
            loop.train(
                tiny("glyphs-happier", "optimizer.lr=1"), folder, dataset=letters, resume=resume
            )


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_items(letters, tmp_path):
    with pytest.raises(HBenchError, match="the loss of step 2 is not finite") as stopped:
        loop.train(tiny("glyphs-nsm", "optimizer.lr=1e30"), tmp_path, dataset=letters)
    saved = json.loads((tmp_path / take.NON_FINITE).read_text())
    assert len(saved["items"]) == 16
    assert set(saved["items"]) <= set(letters.train.items)
    assert saved["items"][0] in str(stopped.value)


def test_a_finite_loss_with_a_gradient_that_is_not_changes_nothing(letters):
    """√x at 0 is 0, and its slope is not finite."""

    class RootAtZero(nn.Module):
        def forward(self, embeddings, labels):
            squares = embeddings.square().sum()
            return squares + (embeddings * 0).sum().abs().sqrt(), {"squares": squares}

    run = begin(tiny("glyphs-nsm"), letters)
    run.objective = RootAtZero()
    before = {name: weight.clone() for name, weight in run.model.state_dict().items()}
    pixels, labels = torch.rand(8, 1, 32, 32), torch.zeros(8, 4, dtype=torch.int64)
    loss, gradient_norm, squares = take.update(run, pixels, labels).tolist()
    assert np.isfinite([loss, squares]).all()
    assert not np.isfinite(gradient_norm)
    after = run.model.state_dict()
    assert all(torch.equal(weight, after[name]) for name, weight in before.items())


def test_a_gradient_is_clipped_to_its_length_and_its_length_is_logged(letters):
    run, clipped = (
        begin(tiny("glyphs-nsm", f"optimizer.clip={clip}"), letters) for clip in (0, 0.5)
    )
    pixels = torch.rand(16, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    labels = torch.from_numpy(letters.train.labels[:160:10].astype(np.int64))
    for each in (run, clipped):
        # a net whose gradient is longer than what it is clipped to
        each.model.projection.weight.data.mul_(0.1)
    free, cut = (take.update(each, pixels, labels) for each in (run, clipped))
    lengths = []
    for each in (run, clipped):
        gradients = [
            weight.grad for group in each.optimizers[0].param_groups for weight in group["params"]
        ]
        lengths.append(torch.cat([gradient.flatten() for gradient in gradients]).norm().item())
    (proxies,) = run.optimizers[1].param_groups[0]["params"]  # which have an optimiser of their own
    own = proxies.grad.norm().item()
    assert (
        float(free[1])
        == pytest.approx(float(cut[1]))
        == pytest.approx(np.hypot(lengths[0], own), rel=1e-5)
    )
    assert lengths[0] > 0.5
    assert lengths[1] == pytest.approx(0.5, rel=1e-4)


def ahead(recipe, data, processes=SINGLE_PROCESS):
    """A run on a processor whose steps are launched as on a GPU: by fused optimisers, unread until
    a step is logged.
    """
    run = begin(recipe, data, processes)
    run.optimizers = build_optimizers(recipe, run.model, run.objective, fused=True)
    run.halted = torch.zeros((), dtype=torch.bool)
    return run


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_steps_that_are_not_waited_for_are_the_same(letters, tmp_path, monkeypatch, name):
    rates = [
        "optimizer.lr=1e-4",
        "proxies.lr=1e-2",
    ]  # at higher ones, rounding grows a hundredfold in a step
    steps = ["log_every=2", "steps_per_epoch=5", "checkpoint_every=4"]
    recipe = tiny(
        "glyphs-happier", f"optimizer.name={name}", f"proxies.name={name}", *rates, *steps
    )
    loop.train(recipe, tmp_path / "plain", dataset=letters)
    monkeypatch.setattr(loop, "begin", ahead)
    taken = []
    loop.train(
        recipe,
        tmp_path / "ahead",
        dataset=letters,
        on_progress=lambda moment: taken.append(moment.step),
    )
    assert taken == list(range(1, 11))
    for one, other in zip(
        logged(tmp_path / "plain")[:-1], logged(tmp_path / "ahead")[:-1], strict=True
    ):
        assert one["step"] == other["step"]
        assert one["rates"] == other["rates"]
        # fused optimisers round otherwise
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
    assert [folder.name for folder in checkpoint.checkpoints_in(tmp_path / "ahead")] == [
        "step-00000008",
        "step-00000010",
    ]


def test_a_step_that_is_not_waited_for_changes_nothing_where_it_is_not_finite(letters, tmp_path):
    """The first of 4 steps goes so far that the others are not finite, which is known after the
    4th: none changes a thing.
    """
    recipe = tiny(
        "glyphs-happier", "optimizer.lr=1e30", "steps_per_epoch=4", "epochs=1", "log_every=9"
    )
    one, four = ahead(recipe, letters), ahead(recipe, letters)
    one.halted = None  # its steps are waited for
    next(take.steps(one, recipe, letters, tmp_path))
    with pytest.raises(HBenchError, match="the loss of step 2 is not finite"):
        list(take.steps(four, recipe, letters, tmp_path))
    assert (one.step, four.step) == (1, 4)
    expected = one.model.state_dict()
    for name, weight in four.model.state_dict().items():
        assert weight.isfinite().all()
        assert torch.equal(weight, expected[name]), name


def test_a_checkpoint_that_is_not_finite_does_not_replace_the_last_one(letters, tmp_path):
    run = begin(tiny(), letters)
    run.save(tmp_path)
    good = checkpoint.latest(tmp_path)
    run.step += 1
    with torch.no_grad():
        next(run.model.parameters()).flatten()[0] = torch.nan
    with pytest.raises(DataError, match="not finite: the last checkpoint stays"):
        run.save(tmp_path)
    assert checkpoint.checkpoints_in(tmp_path) == [good]
    assert list(tmp_path.iterdir()) == [good]


@pytest.fixture(scope="module")
def stored(letters, tmp_path_factory):
    """A run, and the two files of a checkpoint of it."""
    run, folder = begin(tiny(), letters), tmp_path_factory.mktemp("stored")
    run.save(folder)
    return run, {
        name: (checkpoint.latest(folder) / name).read_bytes()
        for name in (checkpoint.MODEL, checkpoint.STATE)
    }


@pytest.mark.parametrize(
    "damage",
    [
        checkpoint.MODEL,
        checkpoint.STATE,
        {"step": Path("x")},
        {"random": {}},
        {"optimizers": [1]},
        {"optimizers": []},
        {"objective": None},
        {"best": 7},
        {"step": None},
    ],
    ids=str,
)
def test_a_checkpoint_that_is_cut_or_has_other_types_is_refused(stored, tmp_path, damage):
    run, files = stored
    folder = tmp_path / "step-00000000"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content[:100] if name == damage else content)
    if isinstance(damage, dict):
        torch.save(
            {**torch.load(folder / checkpoint.STATE, weights_only=True), **damage},
            folder / checkpoint.STATE,
        )
    with pytest.raises(DataError, match="cannot be loaded"):
        run.restore(folder)
    if "best" in damage:
        with pytest.raises(DataError, match="cannot be loaded"):
            checkpoint.best(tmp_path)


def test_a_checkpoint_that_was_cut_off_is_said_to_be_damaged(stored, tmp_path):
    run, files = stored
    cut = {**files, checkpoint.STATE: files[checkpoint.STATE][:-100]}
    for name, content in cut.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="a file that is damaged"):
        run.restore(tmp_path)


def test_what_is_no_recipe_is_refused(tmp_path):
    with pytest.raises(UsageError, match="recipe is no recipe"):
        loop.train(5, tmp_path / "run")


@pytest.fixture
def saved(letters, tmp_path):
    """A run that saved six checkpoints to the folder, the second with the best score, and began a
    seventh.
    """
    run = begin(tiny(), letters)
    for step in range(1, 7):
        run.step = step
        run.best = BestStep(step, 0.5) if step in (1, 2) else run.best
        run.save(tmp_path)
    (tmp_path / ".step-00000007.1.part").mkdir()
    return run


@pytest.mark.usefixtures("saved")
def test_the_last_two_checkpoints_and_the_best_are_kept(tmp_path):
    assert [int(path.name[5:]) for path in checkpoint.checkpoints_in(tmp_path)] == [2, 5, 6]
    assert checkpoint.best(tmp_path).name == "step-00000002"
    assert checkpoint.latest(tmp_path).name == "step-00000006"


def test_a_best_checkpoint_that_was_deleted_is_said_with_what_is_left(saved, tmp_path):
    shutil.rmtree(checkpoint.best(tmp_path))
    with pytest.raises(DataError, match=r"best checkpoint of .* was deleted") as refused:
        checkpoint.best(tmp_path)
    assert f"hbench embed {checkpoint.latest(tmp_path)}" in refused.value.fix


def test_a_run_goes_on_from_the_checkpoint_before_one_that_is_half_written(saved, tmp_path):
    (checkpoint.latest(tmp_path) / checkpoint.MODEL).write_bytes(b"")
    saved.restore(checkpoint.checkpoints_in(tmp_path)[-2])
    assert (saved.step, saved.best) == (5, BestStep(2, 0.5))
    saved.save(tmp_path)
    assert not list(tmp_path.glob(".*.part"))


def test_a_checkpoint_of_other_training_data_and_a_folder_without_any_are_refused(saved, tmp_path):
    saved.data = "other images"
    with pytest.raises(DataError, match="training data have changed"):
        saved.restore(checkpoint.checkpoints_in(tmp_path)[-2])
    with pytest.raises(DataError, match="no checkpoint"):
        checkpoint.latest(tmp_path / "elsewhere")


def test_a_resumed_log_drops_what_lies_behind_its_checkpoint_and_a_damaged_one_is_refused(tmp_path):
    for line in ("[", "[1]", "{}", '{"step": "x"}', "\xff", "[" * 5_000):
        (tmp_path / "log.jsonl").write_bytes(f'{{"step": 1}}\n{line}\n'.encode("latin-1"))
        with pytest.raises(DataError, match="is damaged"):
            Log(tmp_path, step=2)
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    Log(tmp_path, step=2)
    assert (tmp_path / "log.jsonl").read_text() == '{"step": 1}\n{"step": 2}\n'


def test_the_recipe_of_the_docs_resolves(tmp_path):
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(
        re.search(r"^```toml\n(extends.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
    )
    assert resolve(str(tmp_path / "mine.toml")).losses["sup_hap"].params == {"alpha": 2.0}


def test_the_command_prints_a_recipe_and_trains_it(letters, tmp_path):
    save(letters, tmp_path / "letters")
    changes = (
        f"dataset={tmp_path / 'letters'}",
        "epochs=1",
        "steps_per_epoch=1",
        "sampler.batch=16",
    )
    sets = [word for change in changes for word in ("--set", change)]
    (tmp_path / "mine.toml").write_text(call("train", "glyphs-happier", "--print", *sets).stdout)
    done = call("train", tmp_path / "mine.toml", "--out", tmp_path / "run", "--device", "cpu")
    assert "H-AP" in done.stdout
    assert "step 1/1  loss" in done.stderr


def test_shares_of_an_area_are_at_most_1():
    sets = ("--set", "images.augment=resized_crop", "--set", "images.scale=[.8,1.2]")
    assert "images.scale=[0.8,1]" in refusal("train", "sop-happier", *sets, "--print")


@pytest.mark.parametrize("change", ["sampler.batch=3000", "losses.sup_hap.params.aplha=2"])
def test_print_refuses_what_training_would(change):
    refused = refusal("train", "glyphs-happier", "--set", change, "--out", "run")
    assert refused.endswith(refusal("train", "glyphs-happier", "--set", change, "--print"))


def test_print_says_where_a_recipe_was_not_checked_against_its_dataset(monkeypatch, tmp_path):
    monkeypatch.setenv("HBENCH_HOME", str(tmp_path))
    assert "sop is not on this disk" in call("train", "sop-happier", "--print").stderr


def test_a_bar_shows_step_and_time_left_at_80_columns(letters, tmp_path):
    save(letters, tmp_path / "letters")
    # so many steps that the bar, which is drawn ten times a second, is drawn between some of them
    sizes = ["epochs=20", "steps_per_epoch=3", "sampler.batch=16"]
    sets = [f"dataset={tmp_path / 'letters'}", *sizes]
    words = [word for change in sets for word in ("--set", change)]
    sent = at_a_terminal("train", "glyphs-happier", *words, "--out", tmp_path / "run", remarks=True)
    bars = [
        line
        for part in re.split(r"[\r\n]|\x1b\[[0-9;]*[AKJ]", sent)  # moves up, and deletions
        for line in [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", part)]
        if "/60 " in line
    ]
    assert bars
    # the time left is told after the first step, which images and compiling slow down, and before
    # the tests are embedded
    form = re.compile(r" *(1/60|\d+/60 \d+:\d\d left|60/60) ")
    assert all(form.match(bar) and len(bar) <= 80 for bar in bars)
    assert any("/60 0:0" in bar for bar in bars)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("losses.csl.params.dim=16", "dim of loss 'csl'"),
        ("losses.sup_hap.params.aplha=2.0", "alpha"),
        ("losses.xbm.params.params.aplha=2.0", "alpha"),
    ],
)
def test_a_parameter_that_no_loss_takes_is_refused_where_the_recipe_is_printed(change, word):
    memory = ["losses.xbm.params.loss='sup_hap'", "losses.xbm.params.size=64"]
    changes = [*(memory if "xbm" in change else []), change]
    sets = [text for each in changes for text in ("--set", each)]
    assert word in refusal("train", "glyphs-happier", "--print", *sets)


def test_a_second_training_into_one_folder_is_refused_while_the_first_is_at_work(letters, tmp_path):
    refused = []

    def second(_step):
        if not refused:
            with pytest.raises(UsageError, match="another training writes to"):
                loop.train(tiny(), tmp_path / "run", dataset=letters, resume=True)
            refused.append(True)

    loop.train(tiny(), tmp_path / "run", dataset=letters, on_progress=second)
    assert refused
    steps = [
        json.loads(line)["step"]
        for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()
        if "loss" in line
    ]
    assert steps == sorted(set(steps))
