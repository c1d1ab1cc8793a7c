"""hbench: measure, train for, and publish hierarchical image retrieval.

>>> import hbench
>>> report = hbench.score([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]], [[0, 0], [0, 0], [1, 1]])
>>> report.scores["R@1"]
0.6666666666666666
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from hbench.version import __version__

if TYPE_CHECKING:
    from hbench.datasets import Dataset, load
    from hbench.errors import HBenchError
    from hbench.manifest import Manifest
    from hbench.metric_name import MetricName
    from hbench.ranking import LevelSequence
    from hbench.report import Report
    from hbench.scoring import score
    from hbench.submission import evaluate
    from hbench.train.torch_dataset import torch_dataset, vision_dataset
    from hbench.tree import LabelTree

HOME = {
    "Dataset": "hbench.datasets",
    "HBenchError": "hbench.errors",
    "LabelTree": "hbench.tree",
    "LevelSequence": "hbench.ranking",
    "Manifest": "hbench.manifest",
    "MetricName": "hbench.metric_name",
    "Report": "hbench.report",
    "evaluate": "hbench.submission",
    "load": "hbench.datasets",
    "score": "hbench.scoring",
    "torch_dataset": "hbench.train.torch_dataset",
    "vision_dataset": "hbench.train.torch_dataset",
}

__all__ = [
    "Dataset",
    "HBenchError",
    "LabelTree",
    "LevelSequence",
    "Manifest",
    "MetricName",
    "Report",
    "__version__",
    "evaluate",
    "load",
    "score",
    "torch_dataset",
    "vision_dataset",
]


def __getattr__(name: str) -> object:
    """Public names load their module when first used, so that `import hbench` stays instant."""
    if name not in HOME:
        raise AttributeError(f"module 'hbench' has no attribute {name!r}")
    return getattr(importlib.import_module(HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
