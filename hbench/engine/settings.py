"""Settings: the conditions of a score besides vectors and labels, chosen in words, resolved to
functions, quoted as a signature.

`Settings` are the words in which `score`, `evaluate` and the command line choose; `resolve` gives
the functions of a dataset's levels, `Conditions`; and a `Signature` is the text without which a
score cannot be quoted:

>>> conditions = Settings(metrics=["H-AP", "R@1"]).resolve(("genus", "species"))
>>> text = str(conditions.signature("sop@1", ["test"]))
>>> text
'sop@1|test|sim:cosine|self:excluded-by-id|ties:pessimistic|rel:alpha=1|protocol:paper|hbench:0.1'
>>> Signature.parse(text).words.similarity
'cosine'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, kw_only=True)
class Words:
    """The choices that a signature quotes, each in the word or number by which it is quoted.

    `similarity`, `ties`, `protocol`: names, the first with its options, such as
    "lorentz(curvature=1)"; `partial`: whether some labels end above the finest level; `relevance`:
    alpha=… or a name; `several`: the paths of the item that has most; `queries`: what is asked by
    name, where no item asks, "" elsewhere; `left_out`: how many items could not be embedded, and a
    digest of them, "" where all could.
    """

    similarity: str
    ties: str
    partial: bool = False  # whether some paths of the labels end early (hbench.tree.partial)
    several: int = 1
    queries: str = ""
    left_out: str = ""
    relevance: str
    protocol: str

    @property
    def parts(self) -> list[str]:
        """The parts of a signature that quote these choices, such as `sim:cosine`, in its order.
        What few evaluations have, such as partial labels, is said only where it is so."""
        parts = [f"sim:{self.similarity}", "self:excluded-by-id", f"ties:{self.ties}"]
        if self.partial:
            parts.append("labels:partial")
        if self.several > 1:
            parts.append(f"labels:several({self.several})")
        if self.queries:
            parts.append(f"queries:{self.queries}")
        if self.left_out:
            parts.append(f"left-out:{self.left_out}")
        return [*parts, f"rel:{self.relevance}", f"protocol:{self.protocol}"]

    @property
    def stripped(self) -> Words:
        """The same words without space around them: a signature that was typed or pasted may have
        spaces beside its bars."""
        return replace(
            self,
            similarity=self.similarity.strip(),
            ties=self.ties.strip(),
            queries=self.queries.strip(),
            left_out=self.left_out.strip(),
            protocol=self.protocol.strip(),
        )

    @classmethod
    def of_parts(cls, parts: Sequence[str]) -> Words:
        """The choices that the parts of a signature, such as `sim:cosine`, state; the inverse of
        `parts`. Raises KeyError where a part is missing that every signature has."""
        values = _by_key(parts)
        # queries and left-out are said only where there is something to say; the others always.
        # The first part that reads labels:several(N), if any
        several = next(filter(None, map(SEVERAL.fullmatch, parts)), None)
        return cls(
            similarity=values["sim"],
            ties=values["ties"],
            partial="labels:partial" in parts,
            several=int(several[1]) if several else 1,
            queries=values.get("queries", ""),
            left_out=values.get("left-out", ""),
            relevance=values["rel"],
            protocol=values["protocol"],
        )


def _by_key(parts: Iterable[str]) -> dict[str, str]:
    """The parts of a signature that are `key:value`, by their keys; the last of one key counts."""
    return dict(part.split(":", 1) for part in parts if ":" in part)


@dataclass(frozen=True)
class Signature:
    """The conditions of a score in words. `dataset` is name@version; `version` hbench's; `tree`:
    the name and source of another tree than the dataset's."""

    dataset: str
    tests: tuple[str, ...]
    words: Words
    version: str
    tree: str = ""

    @property
    def asks_by_name(self) -> bool:
        """Whether the queries are names, nodes of the tree, and not items."""
        return bool(self.words.queries)

    def __str__(self) -> str:
        """The signature as it is quoted: its parts with bars between, the tree only if it is not
        the dataset's own."""
        parts = [self.dataset, "+".join(self.tests), *self.words.parts, f"hbench:{self.version}"]
        return "|".join([*parts, f"tree:{self.tree}"] if self.tree else parts)

    @classmethod
    def parse(cls, text: str) -> Signature:
        """The signature that a text states. Raises UsageError for a text that is not the signature
        of an evaluation.
        """
        # DATASET|TEST+TEST|KEY:VALUE|KEY:VALUE …
        dataset, _, rest = text.partition("|")
        tests, *parts = rest.split("|")
        values = _by_key(parts)
        missing = [key for key in ("sim", "ties", "rel", "protocol", "hbench") if key not in values]
        if missing:
            raise UsageError(
                "this is not the signature of an evaluation", expected=f"{missing[0]}:…", found=text
            )
        return cls(
            dataset,
            tuple(tests.split("+")),
            Words.of_parts(parts),
            version=values["hbench"],
            tree=values.get("tree", ""),
        )

    @property
    def settings(self) -> Settings:
        """The settings that resolve to these conditions; `alpha=2` of the signature is relevance
        alpha with exponent 2, and a relevance by name has none."""
        name, _, exponent = self.words.relevance.partition("=")
        return Settings(
            protocol=self.words.protocol,
            ties=self.words.ties,
            similarity=self.words.similarity,
            relevance=name,
            alpha=float(exponent or 1),
        )


@dataclass(frozen=True)
class Conditions:
    """What a score is measured by on a tree of these `levels`, coarse to fine: the functions that
    are computed, and the `words` in which they are quoted. `exponent`: of the relevance alpha.
    `ties`: from a number of levels to the keys by which equal scores are ordered. `unit`: the level
    whose classes intervals are taken over, or "query"."""

    levels: tuple[str, ...]
    metrics: tuple[MetricName, ...]
    relevance: Relevance
    exponent: float
    similarity: Similarity
    ties: Ties
    protocol: Protocol
    words: Words
    unit: str = QUERY

    def signature(self, dataset: str, tests: Iterable[str]) -> Signature:
        """The text without which a score on the tests of `dataset` (name@version) cannot be
        quoted."""
        # major and minor: a patch changes no number
        version = ".".join(__version__.split(".")[:2])
        return Signature(dataset, tuple(tests), self.words, version=version)


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
        ones, in place of the words; `partial`: whether paths may end early; `left_out`: what a
        query's list leaves out beside itself, in words; `several`: the paths of the item that has
        most.

        Raises UnknownName or UsageError before any work starts.
        """
        # the official protocol computes what the papers' released evaluators do, and no more
        if protocols[self.protocol] is not paper:
            _refuse_unreleased(self.protocol, partial=partial, several=several)
            refuse_other_relevance(self.relevance)

        # the unit of intervals is the query, or a class of a level, by default of the finest
        if self.unit not in (None, QUERY, *levels):
            raise UnknownName("unit", str(self.unit), [QUERY, *levels])

        relevance = named_relevance(self.relevance, self.alpha)
        names = metrics or parse_metrics(
            default_metrics(levels) if self.metrics is None else self.metrics, levels
        )
        similarity_name, similarity = named(
            "cosine" if self.similarity is None else self.similarity
        )
        # every digit is quoted, so that blocks kept under another alpha are not taken for these; a
        # whole number as 2, not 2.0
        exact = f"{ALPHA}={float(self.alpha)!r}".removesuffix(".0")

        words = Words(
            similarity=similarity_name,
            ties=self.ties,
            partial=partial,
            several=several,
            left_out=left_out,
            relevance=exact if self.relevance == ALPHA else self.relevance,
            protocol=self.protocol,
        )
        return Conditions(
            levels=tuple(levels),
            metrics=tuple(names),
            relevance=relevance,
            exponent=self.alpha,
            similarity=similarity,
            ties=ties_policies[self.ties],
            protocol=protocols[self.protocol],
            words=words,
            unit=self.unit or levels[-1],
        )


USUAL = Settings()


def _refuse_unreleased(protocol: str, *, partial: bool, several: int) -> None:
    """Raise UsageError for labels that the papers' released evaluators do not know: paths that end
    early (`partial`), or items that have more than one path (`several`: the most of any item).
    `protocol`: its name, for the error."""
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
    """Raise UsageError for a relevance that the papers' released evaluators do not have: they know
    alpha alone."""
    if relevance != ALPHA:
        raise UsageError(
            "the released evaluators know the relevance alpha alone",
            expected="relevance alpha, or protocol paper",
            found=f"relevance {relevance}, protocol official",
        )
