"""A study: arms that are trained once per seed, claims tested by paired intervals, rows that can be
scored again.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
import tomli_w
from click.testing import CliRunner
from scipy import stats

import hbench
from hbench import boards as leaderboard
from hbench.boards.proof.reruns import allowed_of
from hbench.core.errors import ConfigError, DataError, UnknownName
from hbench.datasets import load, save, specs
from hbench.metrics.names import MetricName
from hbench.train.images.sampler import plan
from hbench.train.recipes.files import names, resolve
from hbench.train.records.trials import Trial
from hbench.train.validation import split_off
from hbench.tree.names import class_rows
from studies import study as studies
from studies.__main__ import group
from studies.best import best_arms
from studies.claims import holm, interval_of, judged
from studies.page import kept_of, markdown, shown
from studies.study import Claim, Study, Tuning
from studies.tuning import chosen, folder_of_trial, trials, wanted
from studies.values import About, ArmRecord, Scores, read, whole, with_means, write
from tests.training import small_glyphs

ROOT = Path(__file__).parents[2]
SHIPPED = studies.names()


def scores(*values):
    """The scores of one arm, of one seed each."""
    return {"H-AP": whole(np.array(values))}


def study_of(**claim):
    claim = {
        "says": "so",
        "source": "there",
        "plus": ("a",),
        "minus": ("b",),
        "metric": "H-AP",
    } | claim
    arms = {name: {"recipe": "glyphs-happier"} for name in "abcd"}
    table = {"title": "All", "arms": ("a", "b")}
    parts = {"dataset": "glyphs", "metrics": ("H-AP",), "unit": "base"}
    return Study.model_validate(parts | {"arms": arms, "claim": (claim,), "table": (table,)})


def test_the_interval_is_over_seeds_and_classes_and_one_seed_says_nothing():
    """The two parts of the variance by hand: 2 seeds, classes of 1 and 3 queries."""
    assert interval_of(whole(np.array([0.2])))[:3] == (0.2, -np.inf, np.inf)
    assert shown(interval_of(whole(np.array([0.2])))) == "20.0"
    values, queries = np.array([[0.1, 0.3], [0.2, 0.6]]), np.array([1, 3])
    seeds = [(0.1 + 3 * 0.3) / 4, (0.2 + 3 * 0.6) / 4]
    mean = (seeds[0] + seeds[1]) / 2
    of_seeds = ((seeds[0] - mean) ** 2 + (seeds[1] - mean) ** 2) / 1 / 2
    of_classes = (1 / 4 * (0.15 - mean)) ** 2 / (3 / 4) + (3 / 4 * (0.45 - mean)) ** 2 / (1 / 4)
    interval = interval_of(Scores(values, queries, ("a", "b")))
    assert interval.mean == pytest.approx(mean)
    assert interval.error == pytest.approx((of_seeds + of_classes) ** 0.5)
    assert interval.freedom == pytest.approx(
        (of_seeds + of_classes) ** 2 / (of_seeds**2 / 1 + of_classes**2 / 1)
    )
    half = stats.t.ppf(0.975, interval.freedom) * interval.error
    assert (interval.low, interval.high) == pytest.approx((mean - half, mean + half))


@pytest.mark.parametrize(
    ("between_seeds", "between_classes"), [(0.02, 0.02), (0.05, 0.0), (0.0, 0.05)]
)
def test_the_interval_holds_the_truth_at_least_as_often_as_it_says(between_seeds, between_classes):
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        seeds, classes = (
            rng.normal(0, between_seeds, (5, 1)),
            rng.normal(0, between_classes, (1, 40)),
        )
        values = seeds + classes + rng.normal(0, 0.05, (5, 40))
        low, high = interval_of(Scores(values, np.full(40, 10), tuple(map(str, range(40)))))[1:3]
        held += low <= 0 <= high
    assert held / 400 >= 0.93


def test_a_claim_holds_where_its_whole_interval_does():
    for first, second, within, word in (
        ((0.52, 0.60, 0.71), (0.50, 0.57, 0.70), None, "open"),
        ((0.60, 0.70, 0.81), (0.50, 0.60, 0.70), None, "holds"),
        ((0.40, 0.50, 0.61), (0.50, 0.60, 0.70), None, "does not hold"),
        ((0.501, 0.601, 0.702), (0.50, 0.60, 0.70), 0.02, "holds"),
        ((0.60, 0.70, 0.81), (0.50, 0.60, 0.70), 0.02, "does not hold"),
        ((0.51, 0.59, 0.73), (0.50, 0.60, 0.70), 0.02, "open"),
    ):
        found = {"a": scores(*first), "b": scores(*second)}
        (verdict,) = judged(study_of(within=within), found)
        assert verdict.word == word


def test_a_claim_may_compare_differences_and_subtract_another_metric():
    claim = study_of(minus=("a",), metric="gap@32", minus_metric="gap@256")
    own = {"gap@32": whole(np.array([0.3, 0.4, 0.5])), "gap@256": whole(np.array([0.1, 0.2, 0.31]))}
    (verdict,) = judged(claim, {"a": own})
    assert verdict.difference.mean == pytest.approx((0.2 + 0.2 + 0.19) / 3)
    assert "(gap@32 − gap@256)" in markdown(claim, {"a": own | scores(0.5, 0.5, 0.5)}, ABOUT)
    values = {"a": (0.50, 0.52), "b": (0.40, 0.41), "c": (0.60, 0.61), "d": (0.55, 0.57)}
    found = {arm: scores(*of_seeds) for arm, of_seeds in values.items()}
    (verdict,) = judged(study_of(plus=("a", "d"), minus=("b", "c")), found)
    assert verdict.difference.mean == pytest.approx(
        ((0.50 + 0.55 - 0.40 - 0.60) + (0.52 + 0.57 - 0.41 - 0.61)) / 2
    )


def test_intervals_and_p_values_are_students_over_paired_differences():
    first, second = np.array([0.50, 0.53, 0.51, 0.56]), np.array([0.48, 0.50, 0.52, 0.53])
    found, test = {"a": scores(*first), "b": scores(*second)}, stats.ttest_rel(first, second)
    (verdict,) = judged(study_of(), found)
    assert verdict.difference[:3] == pytest.approx((0.0175, *test.confidence_interval(0.95)))
    assert verdict.p == pytest.approx(test.pvalue)
    (near,) = judged(study_of(within=0.04), found)
    below = stats.ttest_rel(first, second + 0.04, alternative="less").pvalue  # d < +.04
    above = stats.ttest_rel(first, second - 0.04, alternative="greater").pvalue  # d > -.04
    assert near.p == pytest.approx(2 * max(below, above))


def test_a_family_is_corrected_by_holms_method():
    assert holm([0.04, 0.01, 0.03]).tolist() == pytest.approx([2 * 0.03, 3 * 0.01, 2 * 0.03])
    assert holm([0.9, 0.8]).tolist() == [1, 1]
    clear, doubtful = scores(0.60, 0.70, 0.801), scores(0.55, 0.62, 0.78)
    base = scores(0.50, 0.60, 0.70)
    claims = [
        {"plus": ("a",)},
        *({"plus": ("c",), "family": family} for family in ("claims of the papers",) * 2),
    ]
    study = study_of()
    together = study.model_copy(
        update={"claims": tuple(study.claims[0].model_copy(update=each) for each in claims)}
    )
    verdicts = judged(together, {"a": clear, "b": base, "c": doubtful})
    assert [verdict.corrected for verdict in verdicts] == pytest.approx(
        holm([verdict.p for verdict in verdicts])
    )
    apart = judged(study_of(), {"a": clear, "b": base})
    assert apart[0].corrected == apart[0].p < verdicts[0].corrected


def test_the_best_of_several_is_beaten_only_where_each_is():
    base = {
        "a": scores(0.60, 0.71, 0.80),
        "b": scores(0.50, 0.60, 0.70),
        "c": scores(0.40, 0.51, 0.60),
    }
    (both,) = judged(study_of(minus=(), beats=("b", "c")), base)
    alone = [judged(study_of(minus=(arm,)), base)[0] for arm in "bc"]
    assert both.word == "holds"
    assert both.p == max(each.p for each in alone)
    (lost,) = judged(study_of(minus=(), beats=("b", "c")), base | {"c": scores(0.70, 0.80, 0.91)})
    assert lost.word == "does not hold"
    (single,) = judged(study_of(minus=(), beats=("b", "c")), base | {"c": scores(0.40)})
    assert (single.word, single.seeds) == ("open", 1)


ABOUT = About(
    dataset="glyphs",
    dataset_digest="d",
    hbench="0.1",
    unit="base",
    by="H-AP",
    arms={
        "a": ArmRecord(
            recipe="seed = 0",
            chosen=("optimizer.lr=0.1",),
            trials=(Trial(settings=("optimizer.lr=0.1",), score=0.5, step=3),),
        )
    },
)


def test_the_scores_of_every_seed_and_class_are_written_and_read_back(tmp_path):
    by_class = Scores(np.array([[0.5, 0.25], [0.75, 1.0]]), np.array([3, 1]), ("x", "y"))
    path = tmp_path / "values.parquet"
    write(
        {"a": {"H-AP": by_class, "gap@8": whole(np.array([0.1, 0.2]))}, "b": scores(0.125)},
        ABOUT,
        path,
    )
    found, about = read(path)
    assert about == ABOUT
    assert found["a"]["H-AP"].values.tolist() == by_class.values.tolist()
    assert (found["a"]["H-AP"].queries.tolist(), found["a"]["H-AP"].units) == ([3, 1], ("x", "y"))
    assert found["a"]["H-AP"].of_seeds.tolist() == [(3 * 0.5 + 0.25) / 4, (3 * 0.75 + 1) / 4]
    assert found["a"]["gap@8"].values.tolist() == [[0.1], [0.2]]
    assert found["b"]["H-AP"].of_seeds.tolist() == [0.125]
    table = pq.read_table(path)
    path.write_bytes(b"PAR1 and no more")
    refused(path, "a study's values")
    for damaged, problem in (
        (table.drop_columns("unit"), "is not a table of a study's values"),
        (table.slice(1), "lacks values"),
        (table.replace_schema_metadata(None), "does not say what its values rest on"),
    ):
        pq.write_table(damaged, path)
        refused(path, problem)


def refused(path, problem):
    with pytest.raises(DataError, match=problem):
        read(path)


def test_wap_of_kept_aps_is_the_wap_that_was_measured():
    values, _ = read(kept_of("grocery-study"))
    without = {
        arm: {name: scores for name, scores in metrics.items() if name != "wAP"}
        for arm, metrics in values.items()
    }
    means = {"wAP": ["AP/group", "AP/coarse", "AP"], "never": ["AP", "R@7"]}
    found = with_means(without, means)
    for arm, metrics in values.items():
        np.testing.assert_allclose(found[arm]["wAP"].values, metrics["wAP"].values, atol=1e-12)
        assert "never" not in found[arm]


def test_metrics_of_other_queries_have_no_mean():
    one = Scores(np.array([[0.5, 0.7]]), np.array([2, 3]), ("a", "b"))
    fewer = Scores(np.array([[0.5, 0.7]]), np.array([2, 2]), ("a", "b"))
    with pytest.raises(DataError, match="same queries"):
        with_means({"NSM": {"AP": one, "AP/genus": fewer}}, {"wAP": ["AP/genus", "AP"]})


def test_a_claim_whose_arms_are_not_there_yet_is_not_measured_and_counts_in_the_correction():
    study = study_of()
    (missing,) = judged(study, {"a": scores(0.5)})
    assert (missing.word, missing.seeds) == ("not measured", 0)
    text = markdown(study, {"a": scores(0.5)}, ABOUT)
    assert "## All" not in text  # a table of one arm compares nothing
    assert "1 of 1 claims are not measured" in text
    assert "| a | **50.0 (3)** |" in text
    both = study.model_copy(
        update={"claims": (*study.claims, study.claims[0].model_copy(update={"plus": ("c",)}))}
    )
    found = {"a": scores(0.60, 0.70, 0.801), "b": scores(0.50, 0.60, 0.70)}
    alone, (first, second) = judged(study, found)[0], judged(both, found)
    assert first.corrected == pytest.approx(2 * alone.p)
    assert second.word == "not measured"


def tuned_study(**arms):
    tuning = {"rates": ("optimizer.lr=0.1", "optimizer.lr=0.2"), "by": "H-AP"}
    return {
        "dataset": "glyphs",
        "metrics": ("H-AP",),
        "unit": "base",
        "tuning": tuning,
        "arms": arms,
    }


def test_every_arm_with_a_recipe_is_tuned_by_the_same_rates():
    arms = {"a": {"recipe": "glyphs-nsm"}, "b": {"like": "a", "by": "AP"}}
    study = Study.model_validate(tuned_study(**arms))
    assert study.rates == [("optimizer.lr=0.1",), ("optimizer.lr=0.2",)]
    assert [study.origin("b"), study.by("a"), study.by("b")] == ["a", "H-AP", "AP"]
    for wrong, expected in [
        ({"a": arms["a"], "b": {"like": "a"}, "c": {"like": "b"}}, "one that has a recipe"),
        ({"a": {}}, "a recipe, or another arm"),
        ({"a": {"like": "z"}}, "found z"),
    ]:
        with pytest.raises(ValueError, match=expected):
            Study.model_validate(tuned_study(**wrong))


WIDE = {"rates": ("lr=2", "lr=3"), "lower": ("lr=1", "lr=0"), "higher": ("lr=4",), "by": "H-AP"}


def tried(study, out, arm, **scores):
    """Trials that have ended, with their score by metric and rate: what a training leaves of them,
    made up.
    """
    for metric, of_rates in scores.items():
        for rate, score in of_rates.items():
            folder = folder_of_trial(study, out, arm, (f"lr={rate}",))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "report.json").write_text("{}")
            with (folder / "log.jsonl").open("a") as log:
                log.write(
                    json.dumps({"step": 1, "validation": {"H-AP": 0, "AP": 0} | {metric: score}})
                    + "\n"
                )


def wide_study(**arms):
    return Study.model_validate(
        tuned_study(**(arms or {"a": {"recipe": "glyphs-nsm"}})) | {"tuning": WIDE}
    )


@pytest.mark.parametrize(
    ("scores", "rates"),
    [
        ({}, "23"),
        ({2: 0.5}, "23"),
        ({2: 0.5, 3: 0.6}, "234"),
        ({2: 0.5, 3: 0.6, 4: 0.5}, "234"),
        ({2: 0.5, 3: 0.6, 4: 0.7}, "234"),  # the study names no higher rate
        ({2: 0.5, 3: 0.4}, "123"),
        ({1: 0.6, 2: 0.5, 3: 0.4}, "0123"),
        ({2: 0.5, 3: 0.5}, "123"),  # the first of equal ones
    ],
)
def test_rates_beyond_an_end_are_tried_while_the_best_is_there(tmp_path, scores, rates):
    study = wide_study()
    tried(study, tmp_path, "a", **{"H-AP": scores})
    assert sorted(settings for (settings,) in wanted(study, tmp_path, "a")) == [
        f"lr={rate}" for rate in rates
    ]


def test_an_arm_chosen_by_another_metric_gets_the_rates_beyond_its_own_end(tmp_path):
    study = wide_study(a={"recipe": "glyphs-nsm"}, b={"like": "a", "by": "AP"})
    tried(study, tmp_path, "a", **{"H-AP": {2: 0.5, 3: 0.6, 4: 0.5}, "AP": {2: 0.3, 3: 0.2}})
    with pytest.raises(DataError, match="has not ended"):
        chosen(study, tmp_path, "a")
    tried(study, tmp_path, "a", AP={1: 0.2})
    assert [chosen(study, tmp_path, arm) for arm in "ab"] == [("lr=3",), ("lr=2",)]
    assert [trial.settings for trial in trials(study, tmp_path, "a", "AP")] == [
        (f"lr={rate}",) for rate in "1234"
    ]


def test_a_rate_that_was_not_needed_leaves_its_cell_empty():
    records = {
        arm: ArmRecord(
            recipe="",
            chosen=(f"lr={rates[0]}",),
            trials=tuple(Trial(settings=(f"lr={rate}",), score=0.5, step=3) for rate in rates),
        )
        for arm, rates in {"a": "23", "b": "123"}.items()
    }
    text = markdown(wide_study(), {}, ABOUT.model_copy(update={"arms": records}))
    assert "| | lr=1 | lr=2 | lr=3 |" in text
    assert "| a |  | **50.0 (3)** | 50.0 (3) |" in text


def test_a_trial_alone_has_the_settings_of_tuning():
    study = wide_study().model_copy(
        update={"tuning": Tuning(rates=(), by="H-AP", settings=("validation=0.4",))}
    )
    assert study.trial("a", ()).validation == 0.4
    assert study.recipe("a", 0).validation == 0


def test_arms_of_claims_have_all_seeds_and_others_three():
    study = study_of(headline=True)
    assert study.headline == ["a", "b"]
    runs = study.runs("abc", 5)
    assert [runs.count((arm, seed)) for arm, seed in [("a", 4), ("b", 4), ("c", 2), ("c", 3)]] == [
        1,
        1,
        1,
        0,
    ]
    # all arms of a seed before the next one's
    assert [seed for _, seed in runs] == sorted(seed for _, seed in runs)


def test_a_study_that_names_unknown_arms_is_refused(tmp_path):
    table = '[arms]\na = { recipe = "x" }\n[[table]]\ntitle = "t"\narms = ["b"]\n'
    (tmp_path / "s.toml").write_text(f'dataset = "glyphs"\nmetrics = []\nunit = "base"\n{table}')
    with pytest.raises(ConfigError, match=r"found b"):
        studies.read(str(tmp_path / "s.toml"))
    with pytest.raises(UnknownName, match="did you mean 'glyphs'"):
        studies.read("glyph")


def test_an_arm_like_another_changes_its_own_settings_alone():
    assert studies.read("glyphs").recipe("HAPPIER λ=0.3", 0).losses["cluster"].weight == 0.3


@pytest.mark.parametrize("setup", ["glyphs", "omniglot"])
def test_the_shipped_studies_have_every_method_of_their_setup(setup):
    shipped = [studies.read(name) for name in SHIPPED if name.startswith(setup)]
    used = {arm.recipe for study in shipped for arm in study.arms.values() if arm.recipe}
    assert {recipe for recipe in names() if recipe.startswith(f"{setup}-")} == used


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_study_has_metrics_and_recipes_that_resolve(name):
    study = studies.read(name)
    for arm in study.arms:
        assert study.recipe(arm, 3).seed == 3
    gaps = {metric for size in study.gaps for metric in (f"gap@{size}", f"AP in {size}")}
    subtracted = {claim.minus_metric for claim in study.claims} - {""}
    for metric in {*study.metrics, *(claim.metric for claim in study.claims), *subtracted} - gaps:
        MetricName.parse(metric).bind(specs[study.dataset].levels)
    for arm in (arm for arm in study.arms if study.arms[arm].recipe):
        recipes = [study.trial(arm, settings) for settings in study.rates]
        assert len({str(recipe) for recipe in recipes}) == len(study.rates)
        assert not any(recipe.tested for recipe in recipes)
        assert all(recipe.losses == study.recipe(arm, 0).losses for recipe in recipes)
    assert all(isinstance(claim, Claim) and claim.source for claim in study.claims)


def test_the_shipped_study_validates_on_base_letters_of_their_own_and_has_its_steps():
    study, data = studies.read("glyphs"), load("glyphs")
    for seed in (study.tuning.seed, *range(5)):
        recipe = study.recipe("HAPPIER", seed)
        rest, held = split_off(data, recipe)
        learned, asked = (
            {row[:3] for row in class_rows(m.tree)} for m in (rest.train, held.tests["validation"])
        )
        assert learned.isdisjoint(asked)
        assert (
            recipe.epochs * len(plan(rest.train.labels, recipe.sampler, seed=seed, epoch=0).rows)
            >= 1140
        )


def called(*words):
    done = CliRunner().invoke(group, words)
    assert done.exit_code == 0, done.output
    return done


def write_study(folder, arms, settings, claim, **more):
    """Write a study of small nets on a small part of glyphs to tiny.toml."""
    save(small_glyphs(), folder / "letters")
    common = [f"dataset={folder / 'letters'}", "sampler.batch=16", "model.dim=8"]
    study = {
        "dataset": "glyphs",
        "unit": "base",
        "settings": [*common, *settings],
        "arms": arms,
        **more,
    }
    study |= {"table": [{"title": "Both", "arms": list(arms)}], "claim": [claim | {"source": "us"}]}
    (folder / "tiny.toml").write_text(tomli_w.dumps(study), encoding="utf-8")


class TinyStudy(NamedTuple):
    """A study of two arms and one seed that was run; `line`: the words that run it again."""

    folder: Path
    line: list[str]
    claims: list[dict[str, object]]
    progress: str

    @property
    def report(self):
        path = self.folder / "out" / "NSM" / "seed-0" / "report.json"
        return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tiny_study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    arms = {
        "NSM": {"recipe": "glyphs-nsm"},
        "NSM λ": {"recipe": "glyphs-nsm", "set": ["optimizer.lr=0.0"]},
    }
    claim = {"says": "learning helps", "plus": ["NSM"], "minus": ["NSM λ"], "metric": "H-AP"}
    write_study(folder, arms, ["epochs=1", "steps_per_epoch=2"], claim, metrics=["H-AP", "R@1"])
    line = ["run", str(folder / "tiny.toml"), "--seeds", "1", "--out", str(folder / "out")]
    done = called(*line, "--json")
    return TinyStudy(folder, line, json.loads(done.stdout), done.stderr)


def test_a_study_trains_every_arm_and_tests_its_claims(tiny_study):
    assert tiny_study.progress.count("trained NSM") == 2
    assert [claim["says"] for claim in tiny_study.claims] == ["learning helps"]


def test_the_values_of_a_study_are_those_of_its_reports(tiny_study):
    kept, about = read(tiny_study.folder / "out" / "values.parquet")
    scores, report = kept["NSM"]["H-AP"], tiny_study.report
    expected = [report["scores"]["H-AP"]["value"]]
    assert scores.of_seeds.tolist() == pytest.approx(expected, abs=1e-12)
    assert len(scores.units) > 3
    assert about.dataset_digest == report["dataset_digest"]
    assert "steps_per_epoch = 2" in about.arms["NSM"].recipe


def test_a_study_is_shown_again_from_its_values(tiny_study):
    shown_again = called("show", str(tiny_study.folder / "out"), "--study", tiny_study.line[1])
    page = (tiny_study.folder / "out" / "study.md").read_text(encoding="utf-8")
    assert shown_again.stdout == page
    assert "| NSM λ |" in page


def test_an_ended_study_trains_nothing_and_gives_rows_that_are_scored_again(tiny_study):
    rows = tiny_study.folder / "rows.toml"
    head = (ROOT / "leaderboards" / "glyphs.toml").read_text(encoding="utf-8").split("[[row]]")[0]
    rows.write_text(head, encoding="utf-8")
    assert "trained" not in called(*tiny_study.line, "--rows", str(rows)).stderr
    board = leaderboard.read_board_file(rows)
    assert [row.method for row in board.rows] == ["NSM", "NSM λ"]
    assert "seed 0 of 1, 2 steps of 16" in board.rows[0].run.note
    scored = hbench.evaluate(
        tiny_study.folder / "out" / "NSM" / "seed-0" / "test.parquet", tiny_study.folder / "letters"
    )
    assert float(board.rows[0].scores["H-AP"]) == pytest.approx(
        100 * scored.scores["H-AP"], abs=1e-3
    )


def test_a_study_whose_finished_runs_are_of_another_recipe_is_refused(tiny_study):
    changed = CliRunner().invoke(group, [*tiny_study.line, "--set", "optimizer.lr=0.5"])
    assert "2 finished runs are of another recipe" in str(changed.exception)


def test_a_tuned_study_chooses_on_held_out_classes_and_tests_what_it_chose(tmp_path):
    arms = {"NSM": {"recipe": "glyphs-nsm", "set": ["losses.nsm.params.temperature=0.1"]}}
    arms["NSM by R@1"] = {"like": "NSM", "by": "R@1", "set": ["log_every=1"]}
    claim = {"says": "batches overestimate AP", "plus": ["NSM"], "metric": "gap@8"}
    tuning = {"rates": ["optimizer.lr=0.0", "optimizer.lr=0.005"], "by": "H-AP"}
    settings = ["epochs=2", "steps_per_epoch=4", "validation=0.3", "evaluate_every=1"]
    write_study(tmp_path, arms, settings, claim, metrics=["H-AP", "AP"], gaps=[8], tuning=tuning)
    done = called(
        "run", str(tmp_path / "tiny.toml"), "--seeds", "1", "--out", str(tmp_path / "out")
    )
    assert "2 runs to choose settings, then 2 to test them" in done.stderr
    study = studies.read(str(tmp_path / "tiny.toml"))
    tried = trials(study, tmp_path / "out", "NSM", "H-AP")
    for number, trial in enumerate(tried):
        folder = tmp_path / "out" / "NSM" / f"trial-{number}"
        report = json.loads((folder / "report.json").read_text())
        assert [report["tests"], report["scores"]["H-AP"]["value"]] == [
            ["validation"],
            pytest.approx(trial.score),
        ]
    best = max(tried, key=lambda trial: trial.score).settings
    assert chosen(study, tmp_path / "out", "NSM") == best
    own = resolve(str(tmp_path / "out" / "NSM" / "seed-0" / "recipe.toml"))
    assert f"optimizer.lr={own.optimizer.lr}" == best[0]
    assert (own.tested, own.select_by, own.seed) == (True, "H-AP", 0)
    other = resolve(str(tmp_path / "out" / "NSM_by_R_1" / "seed-0" / "recipe.toml"))
    assert (other.select_by, other.log_every) == ("R@1", 1)
    values, about = read(tmp_path / "out" / "values.parquet")
    gap, inside, on_all = (values["NSM"][name].of_seeds for name in ("gap@8", "AP in 8", "AP"))
    assert gap == pytest.approx(inside - on_all, abs=1e-9)
    assert (about.arms["NSM"].trials, about.arms["NSM"].chosen) == (tuple(tried), best)
    assert "| | lr=0.0 | lr=0.005 |" in (tmp_path / "out" / "study.md").read_text()
    (tmp_path / "out" / "NSM" / "trial-0" / "report.json").unlink()
    with pytest.raises(DataError, match="has not ended"):
        chosen(study, tmp_path / "out", "NSM by R@1")


SECTIONS = {
    "glyphs": "## On glyphs",
    "omniglot": "## On Omniglot",
    "grocery": "## On groceries",
    "grocery-open": "## On groceries of new classes",
}


def page_of(name):
    """What the docs say of a study: a section of the page of studies, or a page of its own."""
    if name not in SECTIONS:
        return (ROOT / "docs" / "study-sweeps.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    return page.split(f"{SECTIONS[name]}\n")[1].split("\n## ")[0]


def given_by(name):
    """What the kept values of a study give, as Markdown."""
    return markdown(studies.read(name), *read(kept_of(f"{name}-study")))


def test_the_tables_of_the_page_of_sweeps_are_what_the_kept_values_give():
    lines = [line for line in page_of("omniglot-sweeps").splitlines() if line.startswith("|")]
    assert len(lines) > 20
    assert set(lines) <= set(given_by("omniglot-sweeps").splitlines())


def outcomes(name):
    """Every measured claim of a study as the page of studies has it: what it says -> its cell."""
    study, (values, _) = studies.read(name), read(kept_of(f"{name}-study"))
    cells = {}
    for verdict in judged(study, with_means(values, study.means)):
        if verdict.seeds:
            claim, (mean, low, high) = verdict.claim, verdict.difference[:3]
            less = f" − {claim.minus_metric}" if claim.minus_metric else ""
            cell = f"{100 * mean:+.2f} ± {50 * (high - low):.2f} {verdict.word}"
            cells[f"{claim.says} ({claim.metric}{less})"] = cell
    return cells


def test_the_table_of_claims_is_what_the_kept_values_of_the_studies_give():
    page = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    table = page.split("## The claims\n")[1].split("\n## ")[0]
    rows = re.findall(
        r"^\| (.+? \(.+?\)) \| .+? \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", table, re.MULTILINE
    )
    for column, name in enumerate(SECTIONS, start=1):
        assert {row[0]: row[column] for row in rows if row[column]} == outcomes(name), name


def test_the_table_of_the_best_losses_is_what_the_kept_values_give():
    page = (ROOT / "docs" / "losses.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .+?: (\S+) \| (.*) \|$", page.split("\n## ")[1], re.MULTILINE)
    assert [metric for metric, _ in rows] == ["H-AP", "ASI", "NDCG", "AP", "R@1"]
    sources = [f"{name}-study" for name in SECTIONS]
    printed = CliRunner().invoke(group, ["best", *sources], catch_exceptions=False).output
    assert printed.splitlines()[2:] == [f"| {metric} | {cells} |" for metric, cells in rows]


@pytest.mark.parametrize("first_lead", [0.3, 0.001])
def test_an_arm_may_be_as_good_where_its_difference_may_be_0(first_lead):
    random = np.random.default_rng(0)
    noise = random.normal(0, 0.01, (5, 40))
    queries = np.full(40, 10)
    arms = {
        "a": 0.5 + noise + first_lead,
        "b": 0.5 + noise[::-1],
        "c": 0.1 + noise,
    }
    units = tuple(map(str, range(40)))
    values = {arm: {"AP": Scores(of_arm, queries, units)} for arm, of_arm in arms.items()}
    best = best_arms(values, "AP")
    assert (best.arm, best.as_good) == ("a", () if first_lead > 0.1 else ("b",))
    assert best_arms({"a": values["a"]}, "AP") is None


@pytest.mark.parametrize("name", SHIPPED)
def test_the_sentences_of_the_page_have_figures_of_the_kept_values(name):
    # a page also speaks of rows beside its study, whose means stand in their notes
    rows = leaderboard.read_board(studies.read(name).dataset).rows
    notes = " ".join(row.run.note for row in rows if row.run and row.run.note)
    numbers = re.findall(r"[+-]?\d+\.\d+", f"{given_by(name)} {notes}")
    figures = {f"{abs(float(number)):.1f}" for number in numbers}
    sentences = " ".join(line for line in page_of(name).splitlines() if not line.startswith("|"))
    said = set(re.findall(r"(?<![\w.])\d+\.\d(?![\d.])", sentences))
    assert len(said) > 5
    earlier = {"3.1", "5.2", "3.5"} if name == "glyphs" else set()  # what an earlier design gave
    assert said <= figures | earlier


@pytest.mark.parametrize("name", SHIPPED)
def test_the_kept_values_say_what_they_rest_on(name):
    study, (values, about) = studies.read(name), read(kept_of(f"{name}-study"))
    assert about.dataset_digest == leaderboard.read_board(study.dataset).rows[0].run.dataset_digest
    wanted = Counter(arm for arm, _ in study.runs(list(values), study.seeds))
    for arm, metrics in values.items():
        assert {len(scores.values) for scores in metrics.values()} == {wanted[arm]}, arm
    for arm, record in about.arms.items():
        if study.tuning is None:  # the rates are those of another study
            assert not record.trials
            continue
        rates = [trial.settings for trial in record.trials]
        best = max(record.trials, key=lambda trial: trial.score).settings
        # the grid holds the best rate inside
        assert record.chosen == best not in (rates[0], rates[-1]), arm
        assert best[0].removeprefix("optimizer.") in record.recipe.replace(" ", "").splitlines(), (
            arm
        )


@pytest.mark.parametrize("name", ["grocery", "grocery-open", "omniglot"])
def test_the_rows_of_the_tested_nets_are_near_the_middle_seeds_of_the_kept_values(name):
    """Those of another make of processor have other bits."""
    values, about = read(kept_of(f"{name}-study"))
    rows = {row.method: row for row in leaderboard.read_board(about.dataset).rows}
    for arm, metrics in values.items():
        middle = 100 * float(np.median(metrics["H-AP"].of_seeds))
        allowed = float(allowed_of(rows[arm].run)["H-AP"])
        assert float(rows[arm].scores["H-AP"]) == pytest.approx(middle, abs=allowed), arm
