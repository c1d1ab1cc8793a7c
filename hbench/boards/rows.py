"""Defines a row of a leaderboard: a method's scores with exactly one source, the table of a paper
or a run.

>>> run = RunProvenance(
...     content="0" * 64,
...     file="a.parquet",
...     hbench="0.1.0",
...     dataset_digest="d",
...     date="2026-01-31",
...     queries=9,
...     signature="sop@1|test|sim:cosine|ties:pessimistic|rel:alpha=1.0|protocol:paper|hbench:0.1",
... )
>>> run.conditions.words.relevance
'alpha=1.0'
>>> decimal_of("2e1")
Decimal('NaN')
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from hbench.core.errors import UsageError
from hbench.core.schema import STRICT
from hbench.engine.settings import ALPHA, Signature

ONE_LINE = r"^[^\x00-\x1f\x7f]+$"
# hbench's, such as 0.1.0 and 0.2.dev3+g1a2b3c
VERSION = r"^[0-9]{1,4}(\.[0-9]{1,6}){0,3}([.+-]?[a-z0-9]{1,20}){0,4}$"
NUMBER = re.compile(r"[^a-z]*[0-9].*")  # of a similarity
UNSEEN = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}  # letters that show nothing, or turn the others round
# fillers, joiners, blanks and selectors of variants: seen by their category, and yet by nobody
FILLERS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
LONGEST = 4_000  # letters of a line, such as a command
MOST = 10**15  # of a whole number: parameters of a net, seconds
PLACES = 3  # of a percentage: finer than the noise of float32 similarities
PLAIN = re.compile(rf"[0-9]{{1,3}}\.[0-9]{{1,{PLACES}}}", re.ASCII)


def decimal_of(text: str) -> Decimal:
    """The number that a TOML file writes with a point; not a number where it is no plain decimal,
    such as 1e2 or +5.0.
    """
    return Decimal(text if PLAIN.fullmatch(text) else "NaN")


def _exact(value: Any) -> Any:
    """Return a number as a Decimal, digit for digit as it is written; raises ValueError where it is
    no plain decimal of at most PLACES places. What is no number is left to pydantic, which calls
    this first."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    exact = Decimal(str(value))  # of 59.4 as it is read, not of the float nearest to it
    exponent = exact.as_tuple().exponent  # no integer for NaN and infinity; above 0 for 5e1
    if not isinstance(exponent, int) or not -PLACES <= exponent <= 0 or exact.is_signed():
        raise ValueError(f"expected a plain decimal of at most {PLACES} places, such as 59.4")
    return exact


Percent = Annotated[Decimal, BeforeValidator(_exact), Field(ge=0, le=100)]


def _visible(text: str) -> str:
    """Return a text as it is; raises ValueError for letters that are not seen, by which two texts
    could look alike."""
    letters = text.replace("\n", "").replace("\t", "")  # of the texts that may have lines
    unseen = next(
        (c for c in letters if unicodedata.category(c) in UNSEEN or FILLERS.match(c)), None
    )
    if unseen is not None:
        raise ValueError(f"expected letters that are seen, found U+{ord(unseen):04X}")
    return text


def _trimmed(text: str) -> str:
    """Return a text as it is; raises ValueError for blanks around it, since such texts look
    alike."""
    if text != text.strip():
        raise ValueError(f"expected letters, and no blanks around them, found {text!r:.60}")
    return text


def _day(text: str) -> str:
    """Return a day, YEAR-MONTH-DAY, as it is; raises ValueError for one that no calendar has."""
    date.fromisoformat(text)
    return text


Text = Annotated[str, AfterValidator(_visible)]
Line = Annotated[Text, Field(pattern=ONE_LINE, max_length=LONGEST), AfterValidator(_trimmed)]
Name = Annotated[Line, Field(max_length=200)]
Count = Annotated[int, Field(gt=0, le=MOST)]
OptionalCount = Annotated[int | None, Field(gt=0, le=MOST)]
Date = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), AfterValidator(_day)]
# what `mark` writes
VERIFIED = rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}, hbench {VERSION.removeprefix('^')}"


class Setup(BaseModel):
    """The training of a method, as far as the source says; `trained_on`: if not the dataset's own
    training set. `parameters`: how many the net has; `licence`, `revision`: of its published
    weights. `queries`: "nodes" where names of the tree were asked for in place of items."""

    model_config = STRICT
    family: Line | None = None
    loss: Line | None = None
    pretraining: Line | None = None
    trained_on: Line | None = None
    batch_size: OptionalCount = None
    resolution: OptionalCount = None
    parameters: OptionalCount = None
    licence: Line | None = None
    revision: Line | None = None
    queries: Literal["nodes"] | None = None

    @property
    def text(self) -> str:
        """All that is known, in a line: "loss happier, batch size 128"."""
        return ", ".join(
            f"{key.replace('_', ' ')} {value}" for key, value in self if value is not None
        )


class Paper(BaseModel):
    """The paper that prints a row: a key of the file's citations, and the table; `doubt`: what
    speaks against a value.
    """

    model_config = STRICT
    citation: Text
    table: Text
    note: Text | None = None
    doubt: Text | None = None


def canonical_relevance(text: str) -> str | None:
    """Write a relevance, as a signature names it, in one way, so that "alpha=1" and "alpha=1.0" are
    the same; None for an exponent that is no number. Other relevances have no exponent, and are
    written one way alone.
    """
    name, _, exponent = text.strip().partition("=")
    if name != ALPHA:
        return text.strip()
    try:
        alpha = float(exponent or 1)
    except ValueError:
        return None
    return f"{ALPHA}={alpha!r}" if math.isfinite(alpha) else None


class RunProvenance(BaseModel):
    """The evaluation a row comes from: enough to score it again, and to see that embedding and
    dataset are the same. `content`: the sha256 of the file's ids and vectors
    (hbench.submissions.content), whatever container they lie in; rows of former versions, and of
    other programs, have that of the file, `sha256`, instead. `doubt`: what the evaluation found to
    speak against it (hbench.submissions.embeddings.doubts). `url`: where the file can be had;
    `verified`: when, and by which version, `hbench leaderboard verify --fetch` got the same scores.
    `names`: the content of the vectors of names, where these are the queries. `made`: the command
    that makes the file again, the `seconds` it took and the `device`. `between_seeds`: by metric,
    the standard deviation over the `seeds` of the method, in points."""

    model_config = STRICT
    content: str | None = Field(None, pattern="^[0-9a-f]{64}$")
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$")
    file: Line
    signature: Line
    hbench: str = Field(pattern=VERSION)
    dataset_digest: Line
    date: Date
    queries: Count
    names: str | None = Field(None, pattern="^[0-9a-f]{64}$")
    url: Annotated[Line, Field(pattern=r"^https?://[^\s\x00-\x1f\x7f]+$")] | None = None
    verified: Annotated[str, Field(pattern=VERIFIED)] | None = None
    made: Line | None = None
    seconds: Count | None = None
    device: Line | None = None
    seeds: int | None = Field(None, gt=1, le=MOST)
    between_seeds: dict[str, Percent] = {}
    note: Text | None = None
    doubt: Text | None = None

    @model_validator(mode="after")
    def _one_identity(self) -> RunProvenance:
        """Raise ValueError for a run without a file, for one whose file is said twice, and for
        seeds without their deviations; pydantic calls this."""
        # former versions named the file's bytes, now its content is named: either, not both
        if (self.content is None) == (self.sha256 is None):
            raise ValueError(
                "expected exactly one of content and sha256, found "
                f"{'both' if self.content else 'neither'}"
            )
        if bool(self.between_seeds) != (self.seeds is not None):
            raise ValueError("expected seeds and between_seeds together, or neither")
        return self

    @property
    def digest(self) -> str:
        """What tells the file from others: its content, or of rows of former versions its bytes."""
        return self.content or self.sha256 or ""

    def is_of(self, content: str, sha256: str) -> bool:
        """Whether a file of this content and of this checksum is the row's."""
        return self.content == content if self.content else self.sha256 == sha256

    @cached_property
    def conditions(self) -> Signature | None:
        """The conditions that the signature states, freed of how it is written and of hbench's
        version: two signatures of the same conditions are equal here. None where it is none of an
        evaluation."""
        try:
            found = Signature.parse(self.signature)
        except UsageError:
            return None
        relevance = canonical_relevance(found.words.relevance)
        if relevance is None:  # no evaluation has an exponent that is no number
            return None
        return Signature(
            dataset=found.dataset.strip(),
            tests=tuple(sorted({test.strip() for test in found.tests})),
            words=replace(found.words.stripped, relevance=relevance),
            version="",
            tree=found.tree.strip(),
        )


class Row(BaseModel):
    """One method's scores in percent and its provenance; `unranked`: metric → why this score is not
    comparable.
    """

    model_config = STRICT
    method: Name
    year: int | None = Field(None, ge=1950, le=2200)
    backbone: Line | None = None
    dim: Count | None = None
    setup: Setup = Setup()
    scores: dict[Name, Percent] = Field(min_length=1)
    unranked: dict[Name, Text] = {}
    paper: Paper | None = None
    run: RunProvenance | None = None

    @model_validator(mode="after")
    def _one_provenance(self) -> Row:
        """Raise ValueError for a row that is neither of a paper nor of a run, or of both, and for a
        spread over seeds of a metric that has no score; pydantic calls this."""
        if (self.paper is None) == (self.run is None):
            raise ValueError(
                "expected exactly one of paper and run, found "
                f"{'both' if self.paper else 'neither'}"
            )
        between = self.run.between_seeds if self.run else {}
        if foreign := [metric for metric in between if metric not in self.scores]:
            raise ValueError(f"between_seeds has metrics without a score: {', '.join(foreign)}")
        return self

    @property
    def source(self) -> str:
        """The table, or the run, in a few words."""
        if self.run:
            return f"run {self.run.digest[:8]}, {self.run.date}"
        assert self.paper
        return f"{self.paper.citation}, {self.paper.table}"

    @property
    def identity(self) -> tuple[object, ...]:
        """The values that no two rows of a leaderboard may share: of a run, its content and the
        conditions of its scores, whatever number a similarity has, such as a curvature.
        """
        if self.run:
            files = (self.run.digest, self.run.names)
            found = self.run.conditions
            if found is None:  # of another program, whose signature nobody reads
                return (*files, self.run.signature)
            # else one file could get many rows, by trying numbers until the score is best
            similarity = NUMBER.sub("", found.words.similarity)
            return (*files, replace(found, words=replace(found.words, similarity=similarity)))
        return (self.method, self.backbone, self.dim, self.setup.text, self.source)
