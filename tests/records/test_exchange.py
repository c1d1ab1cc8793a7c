"""Reports as other projects read them: the Hugging Face hub's results, by huggingface_hub
itself."""

import numpy as np
import pytest
import yaml
from huggingface_hub import eval_result_entries_to_yaml, parse_eval_result_entries

from hbench.evaluation.arrays import score
from hbench.records.report_tables import FORMATS

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def document():
    rng = np.random.default_rng(0)
    labels = np.stack([np.arange(40) % 2, np.arange(40) % 8], axis=1)
    found = score(rng.normal(size=(40, 6)), labels, metrics=["H-AP", "R@1", "AP/level1"]).document
    return found.model_copy(update={"method": 'a "name": of # mine'})


def test_the_hub_reads_every_score(document):
    written = yaml.safe_load(FORMATS["hub"](document))
    entries = parse_eval_result_entries(written)
    assert {entry.task_id: entry.value for entry in entries} == {
        metric: round(100 * score.value, 4) for metric, score in document.scores.items()
    }
    assert {entry.dataset_id for entry in entries} == {document.dataset}
    assert {entry.dataset_revision for entry in entries} == {document.dataset_digest}
    assert {entry.notes for entry in entries} == {document.signature}
    assert {entry.date for entry in entries} == {document.date}
    assert eval_result_entries_to_yaml(entries) == written


def test_a_metric_that_no_query_defines_is_left_out(document):
    undefined = document.scores["R@1"].model_copy(update={"value": None, "low": None, "high": None})
    without = document.model_copy(update={"scores": {**document.scores, "R@1": undefined}})
    entries = parse_eval_result_entries(yaml.safe_load(FORMATS["hub"](without)))
    assert [entry.task_id for entry in entries] == ["H-AP", "AP/level1"]


def test_names_that_look_like_yaml_stay_texts(document):
    odd = document.model_copy(update={"dataset": "1e3: {x"})
    assert yaml.safe_load(FORMATS["hub"](odd))[0]["dataset"]["id"] == "1e3: {x"
