"""Sweeps: settings are tried on held-out classes, and the best is trained."""

import json
import shutil

import pytest
from click.testing import CliRunner

from hbench.cli import group
from hbench.core.errors import UsageError
from hbench.train.recipes.files import resolve
from hbench.train.records.trials import Trial
from hbench.train.sweep import Sweep, TriedKey, ends_of, parse_sweep
from tests.command_line import call, refusal

pytestmark = pytest.mark.usefixtures("one_thread", "letters_by_name")

SMALL = ["dataset=letters", "epochs=2", "steps_per_epoch=4", "model.dim=8"]
QUICK = [*SMALL, "sampler.batch=16"]
COMMAND = ["train", "glyphs-nsm", *[word for each in QUICK for word in ("--set", each)]]
OF_BATCHES = ["train", "glyphs-nsm", *[word for each in SMALL for word in ("--set", each)]]


@pytest.fixture(scope="module")
def swept(letters_by_name, tmp_path_factory):
    """A sweep that ended, and what it printed."""
    out = tmp_path_factory.mktemp("sweep") / "run"
    done = call(*COMMAND, "--sweep", "optimizer.lr=0.0,0.01", "--out", out)
    return out, done


@pytest.fixture(scope="module")
def swept_by_batch(letters_by_name, tmp_path_factory):
    """What is said of a sweep whose second trial has more classes in a batch than are left."""
    out = tmp_path_factory.mktemp("sweep") / "run"
    said = refusal(*OF_BATCHES, "--sweep", "sampler.batch=16,240", "--out", out)
    return out, said


def test_a_sweep_is_printed_only_if_every_trial_can_be_trained(swept_by_batch):
    _, said = swept_by_batch
    assert said.endswith(refusal(*OF_BATCHES, "--sweep", "sampler.batch=16,240", "--print"))
    printed = call(*COMMAND, "--sweep", "optimizer.lr=1e-3,1e-2", "--print")
    assert "2 trials" in printed.stderr
    assert "[losses" in printed.stdout


def validations(folder):
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["validation"]["H-AP"] for line in lines if "validation" in line]


def test_the_best_on_held_out_classes_is_trained_with_all_of_them(swept):
    out, _ = swept
    best = {
        folder.name.removeprefix("optimizer.lr="): max(validations(folder))
        for folder in (out / "trials").iterdir()
    }
    assert set(best) == {"0.0", "0.01"}
    chosen = max(best, key=best.get)
    trained = resolve(str(out / "recipe.toml"))
    assert trained.optimizer.lr == float(chosen)
    assert trained.tested
    assert not trained.validation


def test_trials_never_see_the_tests(swept):
    out, _ = swept
    for folder in (out / "trials").iterdir():
        assert not resolve(str(folder / "recipe.toml")).tested
        assert json.loads((folder / "report.json").read_text())["tests"] == ["validation"]


def test_the_table_has_every_trial_best_first(swept):
    _, done = swept
    rows = [line.split("\t") for line in done.stdout.splitlines()[:3]]
    assert rows[0] == ["optimizer.lr", "H-AP"]
    assert float(rows[1][1]) >= float(rows[2][1])
    assert {rows[1][0], rows[2][0]} == {"0.0", "0.01"}


def test_a_sweep_that_ended_is_not_trained_again(swept):
    out, done = swept
    before = {file: file.stat().st_mtime_ns for file in out.rglob("log.jsonl")}
    again = call(*COMMAND, "--sweep", "optimizer.lr=0.0,0.01", "--out", out, "--resume")
    trials = [file for file in before if "trials" in str(file)]
    assert all(file.stat().st_mtime_ns == before[file] for file in trials)
    assert again.stdout.splitlines()[:3] == done.stdout.splitlines()[:3]


def test_what_is_wrong_with_the_last_trial_is_said_before_the_first(tmp_path):
    said = refusal(*COMMAND, "--sweep", "sampler.name=m_per_class,none", "--out", tmp_path / "run")
    assert "sampler" in said
    assert not (tmp_path / "run").exists()


def test_a_batch_of_too_many_classes_is_refused_before_the_first_trial(swept_by_batch):
    out, said = swept_by_batch
    assert "sampler.batch=240" in said
    assert "20 % of the training classes are held out for the comparison" in said
    assert "in --sweep, sampler.batch=" in said  # the advice: --set would be refused beside it
    assert not out.exists()


def test_a_trial_that_fails_whatever_is_held_out_does_not_blame_it(tmp_path):
    tried = "losses.nsm.params.temperature=0,.1"
    said = refusal(*COMMAND, "--sweep", tried, "--out", tmp_path / "run")
    assert "cannot be trained" in said
    assert "held out for the comparison" not in said


def test_only_the_best_trial_keeps_its_weights(swept):
    out, done = swept
    kept = {file.parent.parent.name for file in out.glob("trials/*/*/model.safetensors")}
    best = done.stdout.splitlines()[1].split("\t")[0]
    assert kept == {f"optimizer.lr={best}"}
    assert "--keep all" in done.stderr


def test_an_extended_sweep_keeps_the_run_of_its_former_best(swept, tmp_path):
    out, done = swept
    best, other = (line.split("\t")[0] for line in done.stdout.splitlines()[1:3])
    extended = shutil.copytree(out, tmp_path / "run")
    report = (extended / "report.json").read_bytes()
    tried = f"optimizer.lr={other},0.003"  # without the former best
    said = call(*COMMAND, "--sweep", tried, "--out", extended, "--resume").stderr
    assert "the run of the former best is in" in said
    assert (extended / "earlier-1" / "report.json").read_bytes() == report
    assert (extended / "report.json").read_bytes() != report
    kept = {file.parent.parent.name for file in extended.glob("trials/*/*/model.safetensors")}
    assert f"optimizer.lr={best}" not in kept


def test_a_sweep_whose_run_lost_its_weights_keeps_its_report(swept, tmp_path):
    out, _ = swept
    extended = shutil.copytree(out, tmp_path / "run")
    for folder in extended.glob("step-*"):
        shutil.rmtree(folder)
    report = (extended / "report.json").read_bytes()
    tried = "optimizer.lr=0.0,0.01"
    said = call(*COMMAND, "--sweep", tried, "--out", extended, "--resume").stderr
    assert "the best is still that of the run in" in said
    assert (extended / "report.json").read_bytes() == report


def test_a_report_of_another_verb_is_no_run_whose_weights_were_deleted(swept, tmp_path):
    out, _ = swept
    (tmp_path / "run").mkdir()
    shutil.copytree(out / "trials", tmp_path / "run" / "trials")
    (tmp_path / "run" / "report.json").write_text("{}")
    call(*COMMAND, "--sweep", "optimizer.lr=0.0,0.01", "--out", tmp_path / "run")
    assert list((tmp_path / "run").glob("step-*"))


def test_trials_of_one_score_choose_nothing(tmp_path):
    out = tmp_path / "run"
    frozen = ["optimizer.lr=0", "model.freeze_batch_norm=true", "proxies.lr=0"]
    sets = [word for each in frozen for word in ("--set", each)]
    said = call(*COMMAND, *sets, "--sweep", "log_every=5,7", "--out", out).stderr
    assert "all trials have one score" in said
    assert "an end of what was tried" not in said


def test_a_key_that_is_set_and_tried_is_refused():
    said = refusal(*COMMAND, "--set", "epochs=3", "--sweep", "epochs=4,5", "--print")
    assert "epochs is set and tried" in said


@pytest.mark.parametrize(
    "tried",
    [
        "select_by=H-AP,R@1",
        "validation=.2,.3",
        "validation_level=letter,font",
        "seed=0,1",
        "dataset=letters,glyphs",
    ],
)
def test_trials_of_unlike_scores_are_not_ranked(tried, tmp_path):
    said = refusal("train", "glyphs-nsm", "--sweep", tried, "--out", tmp_path / "run")
    key = tried.partition("=")[0]
    assert f"trials that differ in {key} cannot be ranked" in said
    assert f"--set {key}=" in said


def test_what_was_tried_is_shown_where_a_later_trial_fails(tmp_path):
    out = tmp_path / "run"
    lost = out / "trials" / "optimizer.lr=0.02"
    lost.mkdir(parents=True)
    (lost / "report.json").write_text("{}")  # of another run, as the folder's check says
    done = CliRunner().invoke(
        group, [*COMMAND, "--sweep", "optimizer.lr=0.01,0.02", "--out", str(out)]
    )
    assert done.exit_code != 0
    assert done.stdout.splitlines()[0] == "optimizer.lr\tH-AP"
    assert "1 of 2 trials did not end" in done.stdout


@pytest.mark.parametrize("text", ["optimizer.lr", "optimizer.lr=1e-4", "optimizer.lr=1e-4,1e-4"])
def test_one_value_is_no_sweep(text):
    with pytest.raises(UsageError, match="two different values or more"):
        parse_sweep(text)


def test_every_combination_is_tried():
    sweep = Sweep(
        "glyphs-nsm", (), (parse_sweep("epochs=1,2"), parse_sweep("images.scale=[0.9,1.1],[1,1]"))
    )
    assert sweep.combinations() == [
        ("epochs=1", "images.scale=[0.9,1.1]"),
        ("epochs=1", "images.scale=[1,1]"),
        ("epochs=2", "images.scale=[0.9,1.1]"),
        ("epochs=2", "images.scale=[1,1]"),
    ]


@pytest.mark.parametrize(
    ("value", "expected"), [("1e-4", ["0.0001"]), ("1e-3", []), ("1e-2", ["0.01"])]
)
def test_a_best_value_at_an_end_of_what_was_tried_is_said(value, expected):
    key = "optimizer.lr"
    sweep = Sweep("glyphs-nsm", (), (TriedKey(key, ("1e-3", "1e-4", "1e-2")),))
    found = ends_of(sweep, Trial(settings=(f"{key}={value}",), score=0.5, step=1))
    assert found == [f"{key} = {end}" for end in expected]


def test_an_end_beyond_which_no_value_may_lie_is_none():
    sweep = Sweep("glyphs-nsm", (), (TriedKey("images.flip", ("0", "0.5")),))
    assert ends_of(sweep, Trial(settings=("images.flip=0",), score=0.5, step=1)) == []
    assert ends_of(sweep, Trial(settings=("images.flip=0.5",), score=0.5, step=1))


def test_beyond_a_whole_number_lies_one_that_fits_the_batch():
    sweep = Sweep("glyphs-nsm", (), (TriedKey("sampler.per_class", ("1", "4")),))
    assert ends_of(sweep, Trial(settings=("sampler.per_class=4",), score=0.5, step=1))


def test_a_trial_that_diverges_is_told_and_the_others_go_on(tmp_path):
    out = tmp_path / "run"
    done = call(*COMMAND, "--sweep", "optimizer.lr=1e30,0.01", "--out", out)
    assert "trial optimizer.lr=1e30 ended" in done.stderr
    assert "1 of 2 trials did not end" in done.stdout
    assert resolve(str(out / "recipe.toml")).optimizer.lr == 0.01


def test_a_value_that_a_loss_does_not_take_is_refused_before_the_first_trial(tmp_path):
    words = ("--sweep", "losses.sup_hap.params.h_rank=linear,linea", "--out", tmp_path / "run")
    assert "linea" in refusal("train", "glyphs-happier", *words)
    assert not (tmp_path / "run").exists()


def test_a_trial_of_another_recipe_is_not_taken(swept):
    out, _ = swept
    said = refusal(
        *COMMAND, "--set", "model.dim=16", "--sweep", "optimizer.lr=0.0,0.01", "--out", out,
        "--resume",
    )  # fmt: skip
    assert "another model.dim" in said


def test_a_folder_with_a_run_is_refused_before_any_weights_are_deleted(swept):
    out, _ = swept
    before = sorted(out.rglob("*"))
    said = refusal(*COMMAND, "--sweep", "optimizer.lr=0.0,0.01", "--out", out)
    assert "holds a run already" in said
    assert sorted(out.rglob("*")) == before


def test_several_processes_train_no_sweep(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = refusal(*COMMAND, "--sweep", "optimizer.lr=0.0,0.01", "--out", tmp_path / "run")
    assert "one process" in said


def test_more_trials_than_anybody_trains_are_refused_before_they_are_listed(tmp_path):
    values = ",".join(map(str, range(1, 40)))
    keys = ["optimizer.lr", "epochs", "seed", "log_every", "sampler.batches_per_group", "two_pass"]
    words = [word for key in keys for word in ("--sweep", f"{key}={values}")]
    said = refusal(*COMMAND, *words, "--out", tmp_path / "run")
    assert f"{39**6:,}" in said
