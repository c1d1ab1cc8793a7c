"""Adapters to other libraries. Each is a module with the name of its library, so that a library is
imported only if its adapter is.

`hbench.integrations.torchmetrics`, `hbench.integrations.pytorch_metric_learning`,
`hbench.integrations.lightning`; and `hbench.integrations.own_loop`, for training loops of your own.
"""

from collections.abc import Sequence

from hbench.engine.settings import Settings
from hbench.sheets.rows import default_levels

# The names of metrics are checked before the number of levels is known, because an adapter is made
# before it gets labels. This many levels are assumed, so that names such as AP/level3 are accepted.
MOST_LEVELS = 16


def checked_metrics(metrics: str | Sequence[str], *, similarity: str, ties: str) -> list[str]:
    """Return one or several names of metrics as a list. Raises UnknownName for a name that does not
    exist, so that an adapter fails when it is made, and not after an epoch.
    """
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    Settings(names, similarity=similarity, ties=ties).resolve(default_levels(MOST_LEVELS))
    return names
