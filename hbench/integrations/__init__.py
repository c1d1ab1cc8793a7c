"""Adapters to other libraries, each a module of the library's name that is imported only when it is
asked for.

`hbench.integrations.torchmetrics`, `hbench.integrations.pytorch_metric_learning`,
`hbench.integrations.lightning`; and `hbench.integrations.own_loop`, for training loops of your own.
"""

from collections.abc import Sequence

from hbench.engine.settings import Settings
from hbench.sheets.rows import default_levels

# An adapter is made before it has seen labels, so that nobody knows how many levels they have. As
# many as this are assumed, so that names such as AP/level3 are known.
MOST_LEVELS = 16


def checked_metrics(metrics: str | Sequence[str], *, similarity: str, ties: str) -> list[str]:
    """The names of the metrics, one or several, as a list; raises UnknownName for one that does not
    exist when an adapter is made, not after an epoch.
    """
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    Settings(names, similarity=similarity, ties=ties).resolve(default_levels(MOST_LEVELS))
    return names
