"""A study: arms that are trained once per seed, claims tested by paired intervals, rows that can be scored again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

import hbench
from hbench.cli import group
from hbench.core.errors import ConfigError, UnknownName
from hbench.datasets import save
from hbench.evaluation import leaderboard
from hbench.train.study import study as studies
from hbench.train.study.runs import markdown, shown
from hbench.train.study.study import Claim, Study, contrast, judged
from tests.training import small_glyphs

ROOT = Path(__file__).parents[2]


def document(value):
    """A report whose every score is `value`."""
    found = hbench.score([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]], [[0, 0], [0, 0], [1, 1]]).document
    scores = {name: score.model_copy(update={"value": value}) for name, score in found.scores.items()}
    return found.model_copy(update={"scores": scores})


def study_of(**claim):
    claim = {"says": "so", "source": "there", "plus": ("a",), "minus": ("b",), "metric": "H-AP"} | claim
    arms = {name: {"recipe": "glyphs-happier"} for name in "abcd"}
    tables = [{"title": "All", "arms": ("a", "b")}]
    return Study.model_validate(
        {"dataset": "glyphs", "metrics": ("H-AP",), "arms": arms, "claim": (claim,), "table": tuple(tables)}
    )


def test_the_interval_is_students_over_paired_differences():
    first, second = np.array([0.50, 0.53, 0.51, 0.56]), np.array([0.48, 0.50, 0.52, 0.53])
    test = stats.ttest_rel(first, second)
    low, high = test.confidence_interval(0.95)
    assert contrast(first - second) == pytest.approx((0.0175, low, high))


def test_one_seed_says_nothing():
    assert contrast(np.array([0.2])) == (0.2, -np.inf, np.inf)
    assert shown(contrast(np.array([0.2]))) == "20.0"


@pytest.mark.parametrize(
    ("first", "second", "within", "word"),
    [
        ((0.52, 0.60, 0.71), (0.50, 0.57, 0.70), None, "open"),
        ((0.60, 0.70, 0.81), (0.50, 0.60, 0.70), None, "holds"),
        ((0.40, 0.50, 0.61), (0.50, 0.60, 0.70), None, "does not hold"),
        ((0.501, 0.601, 0.702), (0.50, 0.60, 0.70), 0.02, "holds"),
        ((0.60, 0.70, 0.81), (0.50, 0.60, 0.70), 0.02, "does not hold"),
        ((0.51, 0.59, 0.73), (0.50, 0.60, 0.70), 0.02, "open"),
    ],
)
def test_a_claim_holds_where_its_whole_interval_does(first, second, within, word):
    found = {"a": list(map(document, first)), "b": list(map(document, second))}
    (verdict,) = judged(study_of(within=within), found)
    assert verdict.word == word


def test_a_claim_may_compare_differences():
    found = {
        "a": list(map(document, (0.50, 0.52))),
        "b": list(map(document, (0.40, 0.41))),
        "c": list(map(document, (0.60, 0.61))),
        "d": list(map(document, (0.55, 0.57))),
    }
    (verdict,) = judged(study_of(plus=("a", "d"), minus=("b", "c")), found)
    assert verdict.difference.mean == pytest.approx(((0.50 + 0.55 - 0.40 - 0.60) + (0.52 + 0.57 - 0.41 - 0.61)) / 2)


def test_claims_of_arms_that_are_not_there_yet_are_left_out():
    study = study_of()
    assert judged(study, {"a": [document(0.5)]}) == []
    assert "| a | 50.0 |" in markdown(study, {"a": [document(0.5)]}, [], 1)


def test_a_study_that_names_unknown_arms_is_refused(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(
        'dataset = "glyphs"\nmetrics = []\n[arms]\na = { recipe = "x" }\n[[table]]\ntitle = "t"\narms = ["b"]\n'
    )
    with pytest.raises(ConfigError, match=r"found b"):
        studies.read(str(path))
    with pytest.raises(UnknownName, match="did you mean 'glyphs'"):
        studies.read("glyph")


def test_the_shipped_study_has_every_method_of_glyphs_and_recipes_that_resolve():
    study = studies.read("glyphs")
    from hbench.train.recipes.files import names

    used = {arm.recipe for arm in study.arms.values()}
    assert {name for name in names() if name.startswith("glyphs-")} == used
    for arm in study.arms:
        assert study.recipe(arm, 3).seed == 3
    assert study.recipe("HAPPIER λ=0.3", 0).losses["cluster"].weight == 0.3
    known = set(leaderboard.read("glyphs").rows[0].scores)
    assert {*study.metrics, *(claim.metric for claim in study.claims)} <= known
    assert all(isinstance(claim, Claim) and claim.source for claim in study.claims)


def test_a_study_trains_what_is_missing_and_gives_tables_claims_and_rows(tmp_path):
    save(small_glyphs(), tmp_path / "letters")
    (tmp_path / "tiny.toml").write_text(f"""
dataset = "glyphs"
metrics = ["H-AP", "R@1"]
settings = ["dataset={tmp_path / "letters"}", "epochs=1", "steps_per_epoch=2", "sampler.batch=16", "model.dim=8"]
[arms]
NSM = {{ recipe = "glyphs-nsm" }}
"NSM λ" = {{ recipe = "glyphs-nsm", set = ["optimizer.lr=0.0"] }}
[[table]]
title = "Both"
arms = ["NSM", "NSM λ"]
[[claim]]
says = "learning helps"
source = "us"
plus = ["NSM"]
minus = ["NSM λ"]
metric = "H-AP"
""")
    line = ["study", str(tmp_path / "tiny.toml"), "--seeds", "1", "--out", str(tmp_path / "out"), "--json"]
    first = CliRunner().invoke(group, line)
    assert first.exit_code == 0, first.output
    (claim,) = json.loads(first.stdout)
    assert claim["says"] == "learning helps"
    assert first.stderr.count("trained NSM") == 2
    again = CliRunner().invoke(group, [*line[:-1], "--rows", str(rows_file(tmp_path))])
    assert again.exit_code == 0, again.output
    assert "trained" not in again.stderr
    assert "| NSM λ |" in (tmp_path / "out" / "study.md").read_text()
    board = leaderboard.read_file(rows_file(tmp_path))
    assert [row.method for row in board.rows] == ["NSM", "NSM λ"]
    assert "seed 0 of 1, 2 steps of 16" in board.rows[0].run.note
    scored = hbench.evaluate(tmp_path / "out" / "NSM" / "seed-0" / "test.parquet", tmp_path / "letters")
    assert float(board.rows[0].scores["H-AP"]) == pytest.approx(100 * scored.scores["H-AP"], abs=1e-3)


def rows_file(folder):
    path = folder / "rows.toml"
    if not path.exists():
        head = (ROOT / "leaderboards" / "glyphs.toml").read_text().split("[[row]]")[0]
        path.write_text(head)
    return path
