"""Defines a row of a leaderboard: a method's scores with exactly one source, either the table of a
paper or a run.

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
# versions of hbench, such as 0.1.0 and 0.2.dev3+g1a2b3c
VERSION = r"^[0-9]{1,4}(\.[0-9]{1,6}){0,3}([.+-]?[a-z0-9]{1,20}){0,4}$"
NUMBER = re.compile(r"[^a-z]*[0-9].*")  # the number in a similarity, such as a curvature
UNSEEN = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}  # categories of invisible or reversing characters
# fillers, joiners, blanks and variation selectors: invisible, although their category is visible
FILLERS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
LONGEST = 4_000  # characters of a line, such as a command
MOST = 10**15  # largest integer, such as the parameters of a net
PLACES = 3  # decimal places of a percentage, finer than the noise of float32 similarities
PLAIN = re.compile(rf"[0-9]{{1,3}}\.[0-9]{{1,{PLACES}}}", re.ASCII)


def decimal_of(text: str) -> Decimal:
    """The number of a TOML file that is written with a point. NaN if it is no plain decimal, such
    as 1e2 or +5.0."""
    return Decimal(text if PLAIN.fullmatch(text) else "NaN")


def _exact(value: Any) -> Any:
    """Return a number as a Decimal with exactly the digits that were written. Raises ValueError if
    the number is negative, or no plain decimal of at most PLACES decimal places. A value that is no
    number, such as True, is returned unchanged: pydantic, which calls this first, refuses it
    afterwards."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    exact = Decimal(str(value))  # str, since Decimal(59.4) would be the float nearest to 59.4
    exponent = exact.as_tuple().exponent  # a text for NaN and infinity; above 0 for 1e+16
    if not isinstance(exponent, int) or not -PLACES <= exponent <= 0 or exact.is_signed():
        raise ValueError(f"expected a plain decimal of at most {PLACES} places, such as 59.4")
    return exact


Percent = Annotated[Decimal, BeforeValidator(_exact), Field(ge=0, le=100)]


def _visible(text: str) -> str:
    """Return the text unchanged. Raises ValueError for invisible characters, with which different
    texts could look alike."""
    letters = text.replace("\n", "").replace("\t", "")  # both are allowed in texts of several lines
    unseen = next(
        (c for c in letters if unicodedata.category(c) in UNSEEN or FILLERS.match(c)), None
    )
    if unseen is not None:
        raise ValueError(f"expected letters that are seen, found U+{ord(unseen):04X}")
    return text


def _trimmed(text: str) -> str:
    """Return the text unchanged. Raises ValueError for surrounding blanks, with which different
    texts could look alike."""
    if text != text.strip():
        raise ValueError(f"expected letters, and no blanks around them, found {text!r:.60}")
    return text


def _day(text: str) -> str:
    """Return the day, YEAR-MONTH-DAY, unchanged. Raises ValueError if it is not in the calendar."""
    date.fromisoformat(text)
    return text


Text = Annotated[str, AfterValidator(_visible)]
Line = Annotated[Text, Field(pattern=ONE_LINE, max_length=LONGEST), AfterValidator(_trimmed)]
Name = Annotated[Line, Field(max_length=200)]
Count = Annotated[int, Field(gt=0, le=MOST)]
OptionalCount = Annotated[int | None, Field(gt=0, le=MOST)]
Date = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), AfterValidator(_day)]
# as `hbench.boards.proof.fetched.mark` writes it
VERIFIED = rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}, hbench {VERSION.removeprefix('^')}"


class Setup(BaseModel):
    """The training of a method, as far as the source states it."""

    model_config = STRICT
    family: Line | None = None
    loss: Line | None = None
    pretraining: Line | None = None
    trained_on: Line | None = None  # None: the dataset's own training set
    batch_size: OptionalCount = None
    resolution: OptionalCount = None
    parameters: OptionalCount = None  # their number
    licence: Line | None = None  # of the published weights
    revision: Line | None = None  # of the published weights
    queries: Literal["nodes"] | None = None  # "nodes" if names of the tree were the queries

    @property
    def text(self) -> str:
        """All known fields in one line: "loss happier, batch size 128"."""
        return ", ".join(
            f"{key.replace('_', ' ')} {value}" for key, value in self if value is not None
        )


class Paper(BaseModel):
    """The paper that prints a row. `doubt` is a sentence on a value that seems to be wrong."""

    model_config = STRICT
    citation: Text  # a key of the leaderboard's citations
    table: Text
    note: Text | None = None
    doubt: Text | None = None


def canonical_relevance(text: str) -> str | None:
    """The canonical spelling of a relevance in a signature, so that "alpha=1" and "alpha=1.0" are
    equal. None for an exponent that is no number.
    """
    name, _, exponent = text.strip().partition("=")
    if name != ALPHA:  # any other relevance has no exponent, and a single spelling
        return text.strip()
    try:
        alpha = float(exponent or 1)
    except ValueError:
        return None
    return f"{ALPHA}={alpha!r}" if math.isfinite(alpha) else None


class RunProvenance(BaseModel):
    """The evaluation from which a row comes: enough to score the file again, and to check that file
    and dataset are the same.

    Attributes:
        content: the sha256 of the file's ids and vectors (hbench.submissions.content).
        sha256: the sha256 of the file, which rows of old versions and other programs have instead.
        queries: the number of queries.
        names: the content of the vectors of names, if names are the queries.
        url: the address of the file.
        verified: when, and by which version, `hbench leaderboard verify --fetch` got equal scores.
        made: the command that makes the file.
        seconds: the time that this command took.
        device: the device on which it ran.
        seeds: the number of seeds with which the method was run.
        between_seeds: the standard deviation over the seeds by metric, in points.
        doubt: signs against the submission (hbench.submissions.embeddings.doubts).
    """

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
        """Raise ValueError unless the run has exactly one digest, and both seeds and deviations or
        neither. pydantic calls this."""
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
        """The digest that identifies the file: `content`, or `sha256` if the row has no content."""
        return self.content or self.sha256 or ""

    def is_of(self, content: str, sha256: str) -> bool:
        """Whether a file with this content and this sha256 is the file of the row."""
        return self.content == content if self.content else self.sha256 == sha256

    @cached_property
    def conditions(self) -> Signature | None:
        """The conditions in the signature, in a canonical form, so that signatures of the same
        conditions become equal: without hbench's version, blanks and the order of the tests. None
        if no evaluation writes such a signature."""
        try:
            found = Signature.parse(self.signature)
        except UsageError:
            return None
        relevance = canonical_relevance(found.words.relevance)
        if relevance is None:  # its exponent is no number
            return None
        return Signature(
            dataset=found.dataset.strip(),
            tests=tuple(sorted({test.strip() for test in found.tests})),
            words=replace(found.words.stripped, relevance=relevance),
            version="",
            tree=found.tree.strip(),
        )


class Row(BaseModel):
    """The scores of one method, in percent, and their provenance. `unranked` has, by metric, the
    reason why a score is not comparable with the others."""

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
        """Raise ValueError unless the row has exactly one source, a paper or a run, and a score for
        each metric with a deviation over seeds. pydantic calls this."""
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
        """The paper's table, or the run, in a few words."""
        if self.run:
            return f"run {self.run.digest[:8]}, {self.run.date}"
        assert self.paper
        return f"{self.paper.citation}, {self.paper.table}"

    @property
    def identity(self) -> tuple[object, ...]:
        """The values that no two rows of a leaderboard may share. For a run, these are the digest
        of its file, the digest of the vectors of names (None if the queries are items), and the
        conditions of its scores.
        """
        if self.run:
            files = (self.run.digest, self.run.names)
            found = self.run.conditions
            if found is None:  # the signature of another program, which cannot be parsed
                return (*files, self.run.signature)
            # The number in a similarity, such as a curvature, is left out: else one file could get
            # many rows, by trying numbers until the score is best.
            similarity = NUMBER.sub("", found.words.similarity)
            return (*files, replace(found, words=replace(found.words, similarity=similarity)))
        return (self.method, self.backbone, self.dim, self.setup.text, self.source)
