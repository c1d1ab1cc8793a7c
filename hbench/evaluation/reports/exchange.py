"""Writes a report as other projects keep results: mteb's result JSON, and the evaluation results of a Hugging Face model card.

mteb: one file per model and task, its scores by split (its `TaskResult`); fractions. Model card: the `model-index` of the YAML
between the card's `---` lines; percent. Both carry the signature, without which a score cannot be quoted.
"""

from __future__ import annotations

import json
from typing import Any

from hbench.evaluation.reports.report import Document

DIGITS = 4
MAIN = "H-AP"


def mteb(document: Document) -> str:
    """The report as mteb's `TaskResult`: a split per test, whose `main_score` is H-AP, or the first metric that was asked for.

    The split of a single test has every score; of several tests there is a split each.
    """
    values = {name: score.value for name, score in document.scores.items()}
    by_split = document.by_test or {document.tests[0]: values}
    scores: dict[str, list[dict[str, Any]]] = {
        split: [
            {
                **{name: value for name, value in split_scores.items() if value is not None},
                "main_score": split_scores[MAIN if MAIN in split_scores else next(iter(split_scores))],
                "hf_subset": "default",
                "languages": [],
                "hbench_signature": document.signature,
            }
        ]
        for split, split_scores in by_split.items()
    }
    content = {
        "dataset_revision": document.dataset_digest,
        "task_name": document.dataset,
        "mteb_version": None,
        "scores": scores,
        "evaluation_time": None,
        "kg_co2_emissions": None,
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def model_card(document: Document) -> str:
    """The report as YAML of a model card: one result with every metric that is defined, in percent.

    The strings are written as JSON, which is YAML, so that no name is taken for a number or a key.
    """
    lines = [
        "model-index:",
        f"- name: {_text(document.method or (document.embedding.file if document.embedding else 'arrays'))}",
        "  results:",
        "  - task:",
        "      type: image-feature-extraction",
        f"      name: {_text('Hierarchical image retrieval')}",
        "    dataset:",
        f"      type: {_text(document.dataset)}",
        f"      name: {_text(document.dataset)}",
        f"      split: {_text('+'.join(document.tests))}",
        f"      revision: {_text(document.dataset_digest)}",
        "      args:",
        f"        signature: {_text(document.signature)}",
        "    metrics:",
    ]
    for name, score in document.scores.items():
        if score.value is not None:
            lines += [f"    - type: {_text(name)}", f"      name: {_text(name)}"]
            lines += [f"      value: {round(100 * score.value, DIGITS)}"]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    return json.dumps(str(value), ensure_ascii=False)
