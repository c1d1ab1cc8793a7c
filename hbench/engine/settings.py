"""Settings: the conditions of a score besides vectors and labels.

`Settings` hold the choices in words, as `score`, `evaluate` and the command line take them.
`Settings.resolve` turns them into `Conditions`, the functions for the levels of a dataset. A
`Signature` is the text that states these conditions and is quoted with every score:

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

QUERY = "query"  # the unit of intervals in which every query counts for itself
ALPHA = "alpha"  # the relevance that takes an exponent
SEVERAL = re.compile(r"labels:several\((\d+)\)")


@dataclass(frozen=True, kw_only=True)
class Words:
    """The choices that a signature quotes, each in the word or number by which it is quoted.

    `similarity`, `ties`, `protocol`: names, that of the similarity with its options, such as
    "lorentz(curvature=1)". `partial`: whether some paths of labels end above the finest level.
    `several`: the largest number of paths that an item has. `queries`: which names are the queries,
    where the gallery is ranked for names and not for items; "" elsewhere. `left_out`: the number of
    items that could not be embedded, and a digest of them; "" if all could. `relevance`: alpha=… or
    a name.
    """

    similarity: str
    ties: str
    partial: bool = False  # see hbench.tree.partial
    several: int = 1
    queries: str = ""
    left_out: str = ""
    relevance: str
    protocol: str

    @property
    def parts(self) -> list[str]:
        """The parts of a signature that quote these choices, such as `sim:cosine`, in their order.
        Rare conditions, such as partial labels, have a part only where they apply."""
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
        """The same words without the space around them: a signature that was typed or pasted may
        have spaces beside its bars. The relevance stays as it is: the caller replaces it by its
        canonical spelling."""
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
        """Read the choices from the parts of a signature, such as `sim:cosine`. This is the inverse
        of `parts`. Raises KeyError if a part is missing that every signature has."""
        values = _by_key(parts)
        # the match of the first part that reads labels:several(N), whose group 1 is N; None if no
        # item has several paths
        several = next(filter(None, map(SEVERAL.fullmatch, parts)), None)
        # the parts "queries" and "left-out" are there only if they have something to state
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
    """The values of the `key:value` parts of a signature, by key. The last part of a key counts."""
    return dict(part.split(":", 1) for part in parts if ":" in part)


@dataclass(frozen=True)
class Signature:
    """The conditions of a score in words.

    `dataset`: name@version. `tests`: the names of the tests that were evaluated. `version`: that of
    hbench. `tree`: the name and source of the tree, if it is not the dataset's own, else "".
    """

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
        """The signature as it is quoted: its parts with bars between them. The tree is named only
        if it is not the dataset's own."""
        parts = [self.dataset, "+".join(self.tests), *self.words.parts, f"hbench:{self.version}"]
        return "|".join([*parts, f"tree:{self.tree}"] if self.tree else parts)

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Read a signature from its text, the inverse of `str`. Raises UsageError for a text that
        is not the signature of an evaluation."""
        # DATASET|TEST+TEST|KEY:VALUE|KEY:VALUE …, where the key of hbench's version is "hbench"
        dataset, _, rest = text.partition("|")
        tests, *parts = rest.split("|")
        values = _by_key(parts)  # key → value
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
        """The settings that resolve to the conditions of this signature."""
        # "alpha=2" is relevance alpha with exponent 2; other relevances are a name without exponent
        name, _, exponent = self.words.relevance.partition("=")
        return Settings(
            protocol=self.words.protocol,
            ties=self.words.ties,
            similarity=self.words.similarity,
            relevance=name,
            alpha=float(exponent or 1),  # "" where the relevance is a name without exponent
        )


@dataclass(frozen=True)
class Conditions:
    """How a score is computed on a tree with these `levels`, coarse to fine: the functions, and
    the `words` in which a signature quotes them.

    `exponent`: of the relevance alpha. `ties`: a function of the number of levels that returns the
    keys by which equal scores are ordered, one for each level. `unit`: what is resampled for
    confidence intervals: the classes of the level of this name, or single queries for "query".
    """

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
        """The signature of a score on these tests of `dataset`, which is name@version."""
        # only major and minor of hbench's version: a patch release changes no value
        version = ".".join(__version__.split(".")[:2])
        return Signature(dataset, tuple(tests), self.words, version=version)


@checked_class
@dataclass(frozen=True)
class Settings:
    """The choices in words, as `score` and `evaluate` document them.

    None stands for a default. `similarity`: cosine, or the dataset's own. `metrics`: the usual ones
    for the levels. `unit`: the finest level.
    """

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
        """Return the functions that the settings' names stand for on a tree with these levels.

        Raises UnknownName or UsageError before any work starts.

        Args:
            levels: the names of the levels, coarse to fine.
            metrics: metrics that are parsed already, used in place of `self.metrics`.
            partial: whether paths of labels may end above the finest level.
            left_out: the items that could not be embedded, as the signature states them.
            several: the largest number of paths that an item has.
        """
        # protocols other than `paper` compute what released evaluators of papers compute, and these
        # handle neither partial labels, nor several paths, nor other relevances than alpha
        if protocols[self.protocol] is not paper:
            _refuse_unreleased(self.protocol, partial=partial, several=several)
            refuse_other_relevance(self.relevance)

        # a unit of the intervals is a query, or a class of the named level; None: the finest level
        if self.unit not in (None, QUERY, *levels):
            raise UnknownName("unit", str(self.unit), [QUERY, *levels])

        relevance = named_relevance(self.relevance, self.alpha)
        names = metrics or parse_metrics(
            default_metrics(levels) if self.metrics is None else self.metrics, levels
        )
        # the name states every option of the similarity
        similarity_name, similarity = named(
            "cosine" if self.similarity is None else self.similarity
        )
        # The words state every digit of alpha, since they enter the digest of kept blocks, and
        # blocks of another alpha must not be used. A whole number is written as 2, not as 2.0.
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
    """Raise UsageError for labels that the papers' released evaluators do not handle.

    `protocol`: the chosen name, for the error. `partial`: whether paths end above the finest level.
    `several`: the largest number of paths that an item has.
    """
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
    """Raise UsageError for any relevance but alpha, the only one that the papers' released
    evaluators have."""
    if relevance != ALPHA:
        raise UsageError(
            "the released evaluators know the relevance alpha alone",
            expected="relevance alpha, or protocol paper",
            found=f"relevance {relevance}, protocol official",
        )
