"""Says what is evaluated: a test whose queries are ranked and measured, under which conditions, and who computes it.

`Conditions` are what a score depends on beside the vectors and the labels; their signature says them all:

>>> print(conditions(("genus", "species"), metrics=["H-AP", "R@1"]).signature("sop@1", ["test"]))
sop@1|test|sim:cosine|self:excluded-by-id|ties:pessimistic|rel:alpha=1|protocol:paper|hbench:0.1

A `Job` is one test with its scorers. The values of a query depend on its block alone. So who computes which block, and when,
changes nothing: an `Execute` takes a job and the numbers of its blocks, and yields each block's values, in any order.

* `hbench.engine.executors.threads.on_threads`: in this process, the default;
* `hbench.engine.executors.kept_blocks.kept_in`: each finished block is kept in a folder and not computed again;
* `hbench.engine.executors.dask.on_cluster`: by the workers of a dask.distributed scheduler.

`hbench.evaluation.shards` computes a part of the blocks, for processes that do not talk to each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import UnknownName, UsageError
from hbench.core.version import __version__
from hbench.engine.ranker import Ranker
from hbench.engine.similarity import Similarity, named
from hbench.engine.top_k import TopResults
from hbench.metrics.level_sequence import Ties
from hbench.metrics.level_sequence import ties as ties_policies
from hbench.metrics.name_columns import NameColumns
from hbench.metrics.names import MetricName, default_metrics, parse_metrics
from hbench.metrics.protocols import Protocol, ScoreQuery, paper, protocols
from hbench.metrics.relevance import Relevance, relevances
from hbench.metrics.relevance import alpha as alpha_relevance
from hbench.tree import Labels


@dataclass(frozen=True)
class Conditions:
    """Each choice by its name and, where it is a function, as that function. `partial`: whether some paths of the labels end
    early (hbench.tree.partial). `left_out`: how many items could not be embedded, and a digest of them; empty where none.
    `unit`: the level whose classes intervals are taken over, or "query"."""

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
    partial: bool = False
    left_out: str = ""
    unit: str = "query"

    def signature(self, dataset: str, tests: Iterable[str], protocol: str | None = None) -> str:
        """The text without which a score cannot be quoted."""
        version = ".".join(__version__.split(".")[:2])
        parts = [
            dataset,
            "+".join(tests),
            f"sim:{self.similarity_name}",
            "self:excluded-by-id",
            f"ties:{self.ties_name}",
            *["labels:partial"] * self.partial,
            *[f"left-out:{self.left_out}"] * bool(self.left_out),
        ]
        return "|".join(
            [*parts, f"rel:{self.relevance_name}", f"protocol:{protocol or self.protocol_name}", f"hbench:{version}"]
        )


def words_of(signature: str) -> dict[str, str]:
    """The conditions that a signature states, by their keys.

    >>> words_of("sop@1|test|sim:cosine|self:excluded-by-id|ties:pessimistic|rel:alpha=1|protocol:paper|hbench:0.1")["sim"]
    'cosine'
    """
    return dict(part.split(":", 1) for part in signature.split("|")[2:] if ":" in part)


def conditions(
    levels: Sequence[str],
    *,
    metrics: str | Sequence[str | MetricName] | None = None,
    relevance: str = "alpha",
    alpha: float = 1.0,
    similarity: str = "cosine",
    ties: str = "pessimistic",
    protocol: str = "paper",
    partial: bool = False,
    unit: str | None = None,
) -> Conditions:
    """The conditions in words turned into functions; UnknownName or UsageError before any work starts."""
    if partial and protocols[protocol] is not paper:
        raise UsageError(
            "the released evaluators know no partial labels", expected="--protocol paper", found=f"--protocol {protocol}",
            fix="or leave the items that are not known to the finest level out: --policy drop",
        )  # fmt: skip
    if unit not in (None, "query", *levels):
        raise UnknownName("unit", str(unit), ["query", *levels])
    by_level = alpha_relevance(alpha)
    names = parse_metrics(default_metrics(levels) if metrics is None else metrics, levels)
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
        partial=partial,
        unit=unit or levels[-1],
    )


class Values(NamedTuple):
    """Of n queries: `values` (M, n) float64; `first_level`, `tied` (n,); `counts` (n, L+1)."""

    values: NDArray[np.float64]
    first_level: NDArray[np.uint8]
    tied: NDArray[np.bool_]
    counts: NDArray[np.int64]

    @classmethod
    def empty(cls, metrics: int, counts: NDArray[np.int64]) -> Values:
        n = len(counts)
        return cls(np.full((metrics, n), np.nan), np.zeros(n, np.uint8), np.zeros(n, bool), counts)

    def put(self, at: NDArray[np.int64], other: Values) -> None:
        """Write the values of other queries at their positions."""
        self.values[:, at], self.first_level[at], self.tied[at], self.counts[at] = other


@dataclass(frozen=True)
class OtherLabels:
    """Values under other labels of the same fine classes, found in the same pass from the same scores.

    `order` (G,): the job's columns in the order of this `ranker`. `values` and `is_measured` (Q,) are filled in, by the executor
    that sees whole rows of scores (threads). `canonical` (Q,): the order in which values are summed.
    """

    ranker: Ranker
    order: NDArray[np.int64]
    scorers: Sequence[ScoreQuery]
    canonical: NDArray[np.int64]
    values: Values
    is_measured: NDArray[np.bool_]

    @classmethod
    def of(
        cls, ranker: Ranker, labels: tuple[Labels, Labels], scorers: Sequence[ScoreQuery], ties: Ties
    ) -> OtherLabels:
        """Nothing measured yet; `labels` of queries (Q, L') and gallery (G, L')."""
        other, order = ranker.relabelled(*labels, ties)
        asked = ranker.queries
        canonical = asked[np.lexsort(labels[0][asked].T[::-1])]
        values = Values.empty(len(scorers), np.zeros((len(asked), other.depth + 1), np.int64))
        return cls(other, order, scorers, canonical, values, np.zeros(len(asked), bool))

    def put(self, at: NDArray[np.int64], values: Values) -> None:
        """Keep the values of the queries at these input positions."""
        self.values.put(at, values)
        self.is_measured[at] = True


@dataclass(frozen=True)
class Job:
    """A ranker and what to compute of every query. `conditions`: all the values depend on beside the ranker, in words.

    `rebuild`: recreates the job in another process, from the embeddings that were read there. `by_name`: the labels by
    name, where a scorer goes by them and they form no tree. `top`: where the first results of every query are kept, by
    the executor that sees whole rows of scores (threads); `others`: other labels that are valued in the same pass, likewise.
    """

    ranker: Ranker
    scorers: Sequence[ScoreQuery]
    conditions: str = ""
    rebuild: Callable[[Any], Job] | None = None
    by_name: NameColumns | None = None
    top: TopResults | None = None
    others: Sequence[OtherLabels] = ()

    @property
    def digest(self) -> str:
        """sha256 of everything the values depend on."""
        names = "" if self.by_name is None else f" {self.by_name.digest}"
        words = f"{self.ranker.digest} {len(self.scorers)} {self.conditions}{names}"
        return hashlib.sha256(words.encode()).hexdigest()


Execute = Callable[[Job, Sequence[int]], Iterator[tuple[int, Values]]]
