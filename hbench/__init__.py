"""hbench: measure, train for, and publish hierarchical image retrieval.

>>> import hbench
>>> report = hbench.score([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]], [[0, 0], [0, 0], [1, 1]])
>>> report.scores["R@1"]
0.6666666666666666
>>> hbench.list_metrics("mAP@*")
['mAP@R', 'mAP@k']

The functions are explained below; `help(hbench.Report)` and so on explain the classes:

    Report            what score and evaluate return: scores, values by query, remarks
    Comparison        what compare returns: differences with intervals and p-values
    MetricName        the parts of a metric's spelling, such as "R@10/genus"
    LevelSequence     the ranks and levels of one query's positives
    Dataset           what load and build return: a manifest for training and for each test
    Manifest          the items of one split, each with its labels
    LabelTree         level names, node names, and the path of every fine class
    OwnSource         a table, a DataFrame or a folder that build takes
    Leaderboard       what leaderboard returns: the rows of a dataset

Whatever is refused is an HBenchError, with what was expected, what was found and what to do next:

    UsageError        options that do not go together; UnknownName: nothing has that name
    SubmissionError   an embedding or ranking file, or a report, that cannot be scored
    TreeError         labels that form no tree
    ConfigError       a recipe, a leaderboard file or a setting that breaks its schema
    DataError         dataset files that are missing or cannot be used
    IntegrityError    a file that is not the one that was recorded
    SourceError       a server that did not give what was asked for
    ComparisonError   a comparison that failed or cannot be made
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from hbench.core.arguments import checked
from hbench.core.errors import ComparisonError as ComparisonError
from hbench.core.errors import ConfigError as ConfigError
from hbench.core.errors import DataError as DataError
from hbench.core.errors import HBenchError as HBenchError
from hbench.core.errors import IntegrityError as IntegrityError
from hbench.core.errors import SourceError as SourceError
from hbench.core.errors import SubmissionError as SubmissionError
from hbench.core.errors import TreeError as TreeError
from hbench.core.errors import UnknownName as UnknownName
from hbench.core.errors import UsageError as UsageError
from hbench.core.version import __version__

if TYPE_CHECKING:
    from hbench.auditing.audit import audit
    from hbench.boards import Leaderboard as Leaderboard
    from hbench.boards import read_board as leaderboard
    from hbench.datasets import Dataset as Dataset
    from hbench.datasets import load
    from hbench.datasets.build import build
    from hbench.datasets.manifest import Manifest as Manifest
    from hbench.datasets.own.source import OwnSource as OwnSource
    from hbench.evaluation.arrays import score
    from hbench.evaluation.by_name.sources import name
    from hbench.evaluation.evaluate import evaluate
    from hbench.integrations.own_loop import build_loss_for, gather_batch
    from hbench.look.plots import plot
    from hbench.look.strips.results import browse
    from hbench.metrics.level_sequence import LevelSequence as LevelSequence
    from hbench.metrics.names import MetricName as MetricName
    from hbench.metrics.relevance import relevance_of_pairs
    from hbench.records.comparison import Comparison as Comparison
    from hbench.records.comparison import compare
    from hbench.records.report import Report as Report
    from hbench.train.embedding.embed_dataset import embed
    from hbench.train.embedding.embed_names import embed_names
    from hbench.train.images.torch_dataset import torch_dataset, vision_dataset
    from hbench.tree import LabelTree as LabelTree
    from hbench.tree import levels_of_pairs

HOME = {
    "Comparison": "hbench.records.comparison",
    "Dataset": "hbench.datasets",
    "LabelTree": "hbench.tree",
    "Leaderboard": "hbench.boards",
    "LevelSequence": "hbench.metrics.level_sequence",
    "Manifest": "hbench.datasets.manifest",
    "MetricName": "hbench.metrics.names",
    "OwnSource": "hbench.datasets.own.source",
    "Report": "hbench.records.report",
    "audit": "hbench.auditing.audit",
    "browse": "hbench.look.strips.results",
    "build": "hbench.datasets.build",
    "build_loss_for": "hbench.integrations.own_loop",
    "compare": "hbench.records.comparison",
    "embed": "hbench.train.embedding.embed_dataset",
    "embed_names": "hbench.train.embedding.embed_names",
    "evaluate": "hbench.evaluation.evaluate",
    "gather_batch": "hbench.integrations.own_loop",
    "name": "hbench.evaluation.by_name.sources",
    "leaderboard": "hbench.boards:read_board",
    "levels_of_pairs": "hbench.tree",
    "load": "hbench.datasets",
    "plot": "hbench.look.plots",
    "relevance_of_pairs": "hbench.metrics.relevance",
    "score": "hbench.evaluation.arrays",
    "torch_dataset": "hbench.train.images.torch_dataset",
    "vision_dataset": "hbench.train.images.torch_dataset",
}
WINGS = (
    "datasets",
    "integrations",
    "losses",
    "metrics",
    "train",
    "tree",
)  # modules that are reached without an import

CLASSES = (
    "Comparison", "ComparisonError", "ConfigError", "DataError", "Dataset", "HBenchError",
    "IntegrityError", "LabelTree", "Leaderboard", "LevelSequence", "Manifest", "MetricName",
    "OwnSource", "Report", "SourceError", "SubmissionError", "TreeError", "UnknownName",
    "UsageError",
)  # fmt: skip
# Classes are public, too (hence "import X as X", which tells type checkers so). They are not in
# this list because `help(hbench)` prints each listed class with all that it inherits: 80 lines for
# an error and 540 for a leaderboard, among which nobody found a function.
__all__ = [
    "__version__", "audit", "browse", "build", "build_loss_for", "compare", "embed", "embed_names",
    "evaluate", "gather_batch", "leaderboard", "levels_of_pairs", "list_datasets",
    "list_leaderboards", "list_losses", "list_metrics", "list_recipes", "load", "name", "plot",
    "relevance_of_pairs", "score", "torch_dataset", "vision_dataset",
]  # fmt: skip


@checked
def list_datasets(pattern: str = "*") -> list[str]:
    """List the published datasets, and those built here.

    Args:
        pattern: which names, with * and ? for any characters, such as "inat*". Default: all.

    Returns:
        The names, sorted.
    """
    from hbench.datasets import own_names, specs

    return _matching({*specs, *own_names()}, pattern)


@checked
def list_metrics(pattern: str = "*") -> list[str]:
    """List the spellings of metrics, where "k" stands for any rank and "level" for any level.

    Args:
        pattern: which names, with * and ? for any characters, such as "*@k". Default: all.

    Returns:
        The names, sorted.
    """
    from hbench.metrics.names import spellings

    return _matching(spellings(), pattern)


@checked
def list_losses(pattern: str = "*") -> list[str]:
    """List the names for `hbench.losses.build_loss`.

    Args:
        pattern: which names, with * and ? for any characters, such as "sup_*". Default: all.

    Returns:
        The names, sorted.
    """
    from hbench.losses import losses

    return _matching(losses, pattern)


@checked
def list_recipes(pattern: str = "*") -> list[str]:
    """List the training recipes.

    Args:
        pattern: which names, with * and ? for any characters, such as "sop-*". Default: all.

    Returns:
        The names, sorted.
    """
    from hbench.train.recipes import files

    return _matching(files.names(), pattern)


@checked
def list_leaderboards(pattern: str = "*") -> list[str]:
    """List the datasets with a leaderboard, published or your own.

    Args:
        pattern: which names, with * and ? for any characters, such as "dyml-*". Default: all.

    Returns:
        The names, sorted.
    """
    from hbench.boards import board_names

    return _matching(board_names(), pattern)


def _matching(names: Iterable[str], pattern: str) -> list[str]:
    """The sorted names that match a pattern with * and ?. Upper and lower case differ on every
    system."""
    from fnmatch import fnmatchcase

    return sorted(name for name in names if fnmatchcase(name, pattern))


def __getattr__(name: str) -> object:
    """Load the module of a public name when the name is first used, so that `import hbench` is
    fast.

    WINGS are the modules that are attributes, and HOME has the module of each other public name.
    Where a module needs packages of an extra that are not installed, a function or class of HOME is
    replaced by a function that refuses every call, so that help, completion and `hasattr` work. A
    wing has no such substitute, so it is no attribute then.
    """
    if name in WINGS:
        try:
            return importlib.import_module(f"hbench.{name}")
        except ModuleNotFoundError as error:
            raise AttributeError(f"hbench.{name} cannot be used here: {_refusal(error)}") from error
    if name not in HOME:
        raise AttributeError(f"module 'hbench' has no attribute {name!r}")
    # "module", or "module:attribute" where the name differs in the module
    module, _, attribute = HOME[name].partition(":")
    try:
        return getattr(importlib.import_module(module), attribute or name)
    except ModuleNotFoundError as error:
        return _stand_in(name, _refusal(error))


def _refusal(error: ModuleNotFoundError) -> UsageError:
    """Return an error that says which extra to install for a missing module. For a module of no
    extra, raise the import error again."""
    from hbench.core.extras import missing

    if (refusal := missing(error)) is None:
        raise error
    return refusal


def _stand_in(name: str, refusal: UsageError) -> Callable[..., object]:
    """Return a function `name` that raises `refusal` at every call, for a function whose packages
    are not installed."""

    def refuse(*_: object, **__: object) -> object:
        raise refusal

    # help shows the public name, and not that of this inner function
    refuse.__name__ = refuse.__qualname__ = name
    refuse.__module__ = "hbench"
    refuse.__doc__ = f"Cannot be used here: {refusal}"
    return refuse


def __dir__() -> list[str]:
    return [*CLASSES, *__all__]
