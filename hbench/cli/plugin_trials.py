"""Tries plug-ins of other packages on an example of a few items, calling them as hbench does.

>>> trial_of("metric")("R")
True
>>> trial_of("verb")("detect")
False
"""

from collections.abc import Callable
from typing import Any

from hbench.core.errors import ConfigError

# eight items: their labels (8, 2), coarse to fine, and vectors that roughly group them by these
LABELS = [[0, 0], [0, 0], [0, 1], [0, 1], [1, 2], [1, 2], [1, 3], [1, 3]]
VECTORS = [[6, 1], [5, 2], [4, 3], [5, 4], [3, 5], [2, 5], [1, 6], [2, 4]]

# takes the name of a plug-in, raises the errors that it raises, and returns whether it was tried
Trial = Callable[[str], bool]


def trial_of(kind: str) -> Trial:
    """Return the trial for a kind of plug-ins, as named by `hbench info`."""
    trials = {"metric": _metric, "loss": _loss, "dataset": _dataset, "similarity": _similarity}
    return trials.get(kind, lambda _: False)


def _metric(name: str) -> bool:
    """Score the example by a metric: cut at 2 if it takes a cut, and at the level "a" if it needs
    one."""
    from hbench.metrics.definitions import metrics

    spelt = f"{name.rstrip('/@')}@2" if "cut" in metrics[name].takes else name
    _score(metrics=[f"{spelt}a" if name.endswith("#") else spelt])
    return True


def _similarity(name: str) -> bool:
    """Rank the example by a similarity."""
    _score(similarity=name)
    return True


def _score(**options: Any) -> None:
    """Score the example, with levels called a and b."""
    from hbench.evaluation.arrays import score

    score(VECTORS, LABELS, level_names=["a", "b"], **options)


def _loss(name: str) -> bool:
    """Compute a loss of the example (VECTORS and LABELS) and its gradient, with default parameters.

    A loss is not tried, and False is returned, if it has a required parameter whose value is not
    known from the example. Raises ConfigError if the loss is not finite.
    """
    import numpy as np
    import torch

    from hbench.losses import loss_entry
    from hbench.losses.entry import REQUIRED
    from hbench.train.recipes.recipe import LossSpec
    from hbench.train.steps.gradients import build_objective, facts_of

    labels = np.array(LABELS)
    # {parameter: value}, such as the number of classes, which hbench fills in from the example
    known = facts_of(labels, len(VECTORS[0]))
    parameters = loss_entry(name).parameters
    if any(default is REQUIRED and key not in known for key, default in parameters.items()):
        return False

    objective = build_objective({name: LossSpec()}, labels, len(VECTORS[0]))
    vectors = torch.nn.functional.normalize(torch.tensor(VECTORS, dtype=torch.float32))
    total, _ = objective(vectors.requires_grad_(), torch.tensor(labels))
    if not torch.isfinite(total):
        raise ConfigError(f"the loss {name!r} is {float(total)} on eight items of two levels")
    total.backward()
    return True


def _dataset(name: str) -> bool:
    """Build a dataset, which compares its counts with those published, and open the first picture
    of its first test. A dataset that needs files is not tried, and False is returned: the files may
    be large, or not here."""
    from hbench.datasets import specs
    from hbench.datasets.build import build_published

    spec = specs[name]
    if spec.markers:  # paths by which the dataset's raw files are recognized; it needs files
        return False
    # raises IntegrityError if the counts differ
    dataset, _, _ = build_published(spec, None)
    first = next(iter(dataset.tests.values()))
    if first.picture is not None:
        first.picture(str(first.items[0]))
    return True
