"""The conditions of an evaluation: what a score depends on beside the vectors and the labels; its signature says them
all.

>>> print(conditions(("genus", "species"), metrics=["H-AP", "R@1"]).signature("sop@1", ["test"]))
sop@1|test|sim:cosine|self:excluded-by-id|ties:pessimistic|rel:alpha=1|protocol:paper|hbench:0.1
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hbench.core.version import __version__
from hbench.engine.similarity import Similarity, named
from hbench.metrics.level_sequence import Ties
from hbench.metrics.level_sequence import ties as ties_policies
from hbench.metrics.names import MetricName, default_metrics
from hbench.metrics.protocols import Protocol, protocols
from hbench.metrics.relevance import Relevance, relevances
from hbench.metrics.relevance import alpha as alpha_relevance


@dataclass(frozen=True)
class Conditions:
    """Each choice by its name and, where it is a function, as that function."""

    levels: tuple[str, ...]
    metrics: tuple[MetricName, ...]
    relevance_name: str
    relevance: Relevance
    exponent: float
    similarity_name: str
    similarity: Similarity
    ties_name: str
    ties: Ties
    protocol_name: str
    protocol: Protocol

    def signature(self, dataset: str, tests: Iterable[str], protocol: str | None = None) -> str:
        """The text without which a score cannot be quoted."""
        version = ".".join(__version__.split(".")[:2])
        parts = [
            dataset,
            "+".join(tests),
            f"sim:{self.similarity_name}",
            "self:excluded-by-id",
            f"ties:{self.ties_name}",
        ]
        return "|".join(
            [*parts, f"rel:{self.relevance_name}", f"protocol:{protocol or self.protocol_name}", f"hbench:{version}"]
        )


def conditions(
    levels: Sequence[str],
    *,
    metrics: Sequence[str | MetricName] | None = None,
    relevance: str = "alpha",
    alpha: float = 1.0,
    similarity: str = "cosine",
    ties: str = "pessimistic",
    protocol: str = "paper",
) -> Conditions:
    """The conditions in words turned into functions; UnknownName or UsageError before any work starts."""
    by_level = alpha_relevance(alpha)
    parsed = [
        name if isinstance(name, MetricName) else MetricName.parse(name) for name in metrics or default_metrics(levels)
    ]
    names = tuple(dict.fromkeys(name.at(levels) for name in parsed))
    for name in names:
        name.bind(levels)
    similarity_name, ranked_by = named(similarity)
    is_alpha = relevance == "alpha"
    return Conditions(
        levels=tuple(levels),
        metrics=names,
        relevance_name=f"alpha={alpha:g}" if is_alpha else relevance,
        relevance=by_level if is_alpha else relevances[relevance](),
        exponent=alpha,
        similarity_name=similarity_name,
        similarity=ranked_by,
        ties_name=ties,
        ties=ties_policies[ties],
        protocol_name=protocol,
        protocol=protocols[protocol],
    )
