"""Reports as other projects read them: mteb's TaskResult, and a model card by huggingface_hub itself."""

import json

import numpy as np
import pytest
import yaml
from huggingface_hub.repocard_data import model_index_to_eval_results

from hbench.evaluation.arrays import score
from hbench.evaluation.reports.formats import FORMATS


@pytest.fixture(scope="module")
def document():
    rng = np.random.default_rng(0)
    labels = np.stack([np.arange(40) % 2, np.arange(40) % 8], axis=1)
    found = score(rng.normal(size=(40, 6)), labels, metrics=["H-AP", "R@1", "AP/level1"]).document
    return found.model_copy(update={"method": 'a "name": of # mine'})


def test_hugging_face_reads_every_score_of_a_model_card(document):
    index = yaml.safe_load(FORMATS["model-card"](document))["model-index"]
    name, results = model_index_to_eval_results(index)
    assert name == document.method
    assert {each.metric_name: each.metric_value for each in results} == {
        metric: round(100 * score.value, 4) for metric, score in document.scores.items()
    }
    assert {each.dataset_args["signature"] for each in results} == {document.signature}
    assert {each.dataset_revision for each in results} == {document.dataset_digest}


def test_mteb_has_what_its_task_result_asks_for(document):
    """Its checks, as TaskResult._validate_scores_dict makes them; mteb itself is not installed here."""
    result = json.loads(FORMATS["mteb"](document))
    assert set(result) == {
        "dataset_revision", "task_name", "mteb_version", "scores", "evaluation_time", "kg_co2_emissions",
    }  # fmt: skip
    ((split, (scores,)),) = result["scores"].items()
    assert split == document.tests[0]
    assert scores["main_score"] == scores["H-AP"] == document.scores["H-AP"].value
    assert isinstance(scores["hf_subset"], str)
    assert isinstance(scores["languages"], list)


def test_several_tests_are_several_splits_and_what_is_undefined_is_left_out(document):
    both = document.model_copy(
        update={
            "tests": ("fine", "coarse"),
            "by_test": {"fine": {"R@1": 0.5, "AP": None}, "coarse": {"R@1": 0.25, "AP": 1.0}},
        }
    )
    result = json.loads(FORMATS["mteb"](both))["scores"]
    assert [result[split][0]["main_score"] for split in ("fine", "coarse")] == [0.5, 0.25]
    assert "AP" not in result["fine"][0]
