"""Adapters to other libraries, each a module of the library's name that is imported only when it is asked for.

`hbench.integrations.torchmetrics`, `hbench.integrations.pytorch_metric_learning`, `hbench.integrations.lightning`.
"""

from collections.abc import Sequence

from hbench.engine.settings import Settings
from hbench.tree import default_levels


def refuse_unknown(metrics: Sequence[str], *, similarity: str, ties: str) -> None:
    """Raise UnknownName for names that no labels could make known: when an adapter is made, not after an epoch."""
    Settings(metrics, similarity=similarity, ties=ties).resolve(default_levels(16))
