"""Settings: the conditions of a score besides vectors and labels, chosen in words, resolved to
functions, quoted as a signature.

`Settings` are the words in which `score`, `evaluate` and the command line choose; `resolve` gives
the functions of a dataset's levels, `Conditions`; and a `Signature` is the text without which a
score cannot be quoted:

>>> conditions = Settings(metrics=["H-AP", "R@1"]).resolve(("genus", "species"))
>>> text = str(conditions.signature("sop@1", ["test"]))
>>> text
'sop@1|test|sim:cosine|self:excluded-by-id|ties:pessimistic|rel:alpha=1|protocol:paper|hbench:0.1'
>>> Signature.parse(text).similarity
'cosine'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hbench.core.arguments import checked_class
from hbench.core.errors import UnknownName, UsageError
from hbench.core.version import __version__
from hbench.engine.similarity import Similarity, named
from hbench.metrics.level_sequence import Ties
from hbench.metrics.level_sequence import ties as ties_policies
from hbench.metrics.names import MetricName, default_metrics, parse_metrics
from hbench.metrics.protocols import Protocol, paper, protocols
from hbench.metrics.relevance import Relevance, named_relevance

QUERY = "query"  # the unit for which every query stands alone
ALPHA = "alpha"  # the relevance that takes an exponent
SEVERAL = re.compile(r"labels:several\((\d+)\)")


@dataclass(frozen=True)
class Signature:
    """The conditions of a score in words. `dataset` is name@version; `relevance` is alpha=… or a
    name; `left_out`: how many items could not be embedded, and a digest of them; `tree`: the name
    and source of another tree than the dataset's. `several`: the paths of the item that has most.
    """

    dataset: str
    tests: tuple[str, ...]
    similarity: str
    ties: str
    relevance: str
    protocol: str
    version: str
    partial: bool = False
    left_out: str = ""
    tree: str = ""
    several: int = 1
    queries: str = ""

    @property
    def asks_by_name(self) -> bool:
        """Whether the queries are names, nodes of the tree, and not items."""
        return bool(self.queries)

    def __str__(self) -> str:
        parts = [
            self.dataset,
            "+".join(self.tests),
            f"sim:{self.similarity}",
            "self:excluded-by-id",
            f"ties:{self.ties}",
        ]
        if self.partial:
            parts.append("labels:partial")
        if self.several > 1:
            parts.append(f"labels:several({self.several})")
        if self.queries:
            parts.append(f"queries:{self.queries}")
        if self.left_out:
            parts.append(f"left-out:{self.left_out}")
        parts += [f"rel:{self.relevance}", f"protocol:{self.protocol}", f"hbench:{self.version}"]
        if self.tree:
            parts.append(f"tree:{self.tree}")
        return "|".join(parts)

    @classmethod
    def parse(cls, text: str) -> Signature:
        """The signature that a text states. Raises UsageError for a text that is not the signature
        of an evaluation.
        """
        dataset, _, rest = text.partition("|")
        tests, *parts = rest.split("|")
        words = dict(part.split(":", 1) for part in parts if ":" in part)
        missing = [key for key in ("sim", "ties", "rel", "protocol", "hbench") if key not in words]
        if missing:
            raise UsageError(
                "this is not the signature of an evaluation", expected=f"{missing[0]}:…", found=text
            )

        several = next(filter(None, map(SEVERAL.fullmatch, parts)), None)
        return cls(
            dataset=dataset,
            tests=tuple(tests.split("+")),
            similarity=words["sim"],
            ties=words["ties"],
            relevance=words["rel"],
            protocol=words["protocol"],
            version=words["hbench"],
            partial="labels:partial" in parts,
            left_out=words.get("left-out", ""),
            tree=words.get("tree", ""),
            several=int(several[1]) if several else 1,
            queries=words.get("queries", ""),
        )

    @property
    def settings(self) -> Settings:
        """The settings that resolve to these conditions."""
        name, _, exponent = self.relevance.partition("=")
        return Settings(
            protocol=self.protocol,
            ties=self.ties,
            similarity=self.similarity,
            relevance=name,
            alpha=float(exponent or 1),
        )


@dataclass(frozen=True)
class Conditions:
    """Each choice by its name and, where it is a function, as that function. `partial`: whether
    some paths of the labels end early (hbench.tree.partial). `left_out`, `several` as in a
    signature. `unit`: the level whose classes intervals are taken over, or "query"."""

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
    several: int = 1
    queries: str = ""
    unit: str = QUERY

    def signature(self, dataset: str, tests: Iterable[str]) -> Signature:
        """The text without which a score on the tests of `dataset` (name@version) cannot be
        quoted."""
        return Signature(
            dataset,
            tuple(tests),
            self.similarity_name,
            self.ties_name,
            self.relevance_name,
            self.protocol_name,
            ".".join(__version__.split(".")[:2]),
            self.partial,
            self.left_out,
            several=self.several,
            queries=self.queries,
        )


@checked_class
@dataclass(frozen=True)
class Settings:
    """The choices in words, as `score` and `evaluate` document them. `similarity` None: cosine, or
    the dataset's; `metrics` None: the usual ones of the levels; `unit` None: the finest level."""

    metrics: str | Sequence[str] | None = None
    protocol: str = "paper"
    ties: str = "pessimistic"
    similarity: str | None = None
    relevance: str = ALPHA
    alpha: float = 1.0
    unit: str | None = None

    def resolve(
        self,
        levels: Sequence[str],
        *,
        metrics: Sequence[MetricName] | None = None,
        partial: bool = False,
        left_out: str = "",
        several: int = 1,
    ) -> Conditions:
        """The functions that these words stand for on a tree of these levels; `metrics`: parsed
        ones, in place of the words; `several`: the paths of the item that has most.

        Raises UnknownName or UsageError before any work starts.
        """
        if protocols[self.protocol] is not paper:
            _refuse_unreleased(self.protocol, partial=partial, several=several)
            refuse_other_relevance(self.relevance)

        if self.unit not in (None, QUERY, *levels):
            raise UnknownName("unit", str(self.unit), [QUERY, *levels])

        relevance = named_relevance(self.relevance, self.alpha)
        names = metrics or parse_metrics(
            default_metrics(levels) if self.metrics is None else self.metrics, levels
        )
        similarity_name, similarity = named(self.similarity or "cosine")
        # kept blocks of another alpha are not these
        exact = f"{ALPHA}={float(self.alpha)!r}".removesuffix(".0")

        return Conditions(
            levels=tuple(levels),
            metrics=tuple(names),
            relevance_name=exact if self.relevance == ALPHA else self.relevance,
            relevance=relevance,
            exponent=self.alpha,
            similarity_name=similarity_name,
            similarity=similarity,
            ties_name=self.ties,
            ties=ties_policies[self.ties],
            protocol_name=self.protocol,
            protocol=protocols[self.protocol],
            partial=partial,
            left_out=left_out,
            several=several,
            unit=self.unit or levels[-1],
        )


USUAL = Settings()


def _refuse_unreleased(protocol: str, *, partial: bool, several: int) -> None:
    """Raise UsageError for labels that the released evaluators do not know."""
    if partial:
        raise UsageError(
            "protocol `official` does not support partial labels",
            expected="--protocol paper",
            found=f"--protocol {protocol}",
            fix="or leave out the items that are not known to the finest level: --policy drop",
        )
    if several > 1:
        raise UsageError(
            "the released evaluators know one path of an item",
            expected="--protocol paper",
            found=f"up to {several} paths, --protocol {protocol}",
        )


def refuse_other_relevance(relevance: str) -> None:
    """Raise UsageError for a relevance that the released evaluators do not have."""
    if relevance != ALPHA:
        raise UsageError(
            "the released evaluators know the relevance alpha alone",
            expected="relevance alpha, or protocol paper",
            found=f"relevance {relevance}, protocol official",
        )
