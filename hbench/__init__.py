"""hbench: measure, train for, and publish hierarchical image retrieval.

>>> import hbench
>>> report = hbench.score([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]], [[0, 0], [0, 0], [1, 1]])
>>> report.scores["R@1"]
0.6666666666666666
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from hbench.core.version import __version__

if TYPE_CHECKING:
    from hbench.core.errors import HBenchError
    from hbench.datasets import Dataset, load
    from hbench.datasets.manifest import Manifest
    from hbench.evaluation.arrays import score
    from hbench.evaluation.evaluate import evaluate
    from hbench.evaluation.reports.report import Report
    from hbench.look.plots import plot
    from hbench.look.results import browse
    from hbench.metrics.level_sequence import LevelSequence
    from hbench.metrics.names import MetricName
    from hbench.metrics.relevance import relevance_of_pairs
    from hbench.train.images.torch_dataset import torch_dataset, vision_dataset
    from hbench.tree import LabelTree, levels_of_pairs

HOME = {
    "Dataset": "hbench.datasets",
    "HBenchError": "hbench.core.errors",
    "LabelTree": "hbench.tree",
    "LevelSequence": "hbench.metrics.level_sequence",
    "Manifest": "hbench.datasets.manifest",
    "MetricName": "hbench.metrics.names",
    "Report": "hbench.evaluation.reports.report",
    "browse": "hbench.look.results",
    "evaluate": "hbench.evaluation.evaluate",
    "levels_of_pairs": "hbench.tree",
    "load": "hbench.datasets",
    "plot": "hbench.look.plots",
    "relevance_of_pairs": "hbench.metrics.relevance",
    "score": "hbench.evaluation.arrays",
    "torch_dataset": "hbench.train.images.torch_dataset",
    "vision_dataset": "hbench.train.images.torch_dataset",
}

WINGS = ("datasets", "integrations", "losses", "metrics", "train", "tree")  # modules that are reached without an import

__all__ = [
    "Dataset",
    "HBenchError",
    "LabelTree",
    "LevelSequence",
    "Manifest",
    "MetricName",
    "Report",
    "__version__",
    "browse",
    "evaluate",
    "levels_of_pairs",
    "load",
    "plot",
    "relevance_of_pairs",
    "score",
    "torch_dataset",
    "vision_dataset",
]


def __getattr__(name: str) -> object:
    """Public names load their module when first used, so that `import hbench` stays instant."""
    if name in WINGS:
        return importlib.import_module(f"hbench.{name}")
    if name not in HOME:
        raise AttributeError(f"module 'hbench' has no attribute {name!r}")
    return getattr(importlib.import_module(HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
