"""A row is one method's scores with exactly one provenance: a paper's table, or a run that can be scored again.

>>> row = Row(method="mine", scores={"R@1": 81}, paper=Paper(citation="Me, 2026", table="Tab. 1"))
>>> row.source
'Me, 2026, Tab. 1'
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from hbench.core.schema import STRICT

ONE_LINE = r"^[^\x00-\x1f\x7f]+$"


def _exact(value: Any) -> Any:
    return Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value


Percent = Annotated[Decimal, BeforeValidator(_exact), Field(ge=0, le=100)]


class Setup(BaseModel):
    """How a method was trained, as far as the source says; `trained_on`: if not the dataset's own training set."""

    model_config = STRICT
    family: str | None = None
    loss: str | None = None
    pretraining: str | None = None
    trained_on: str | None = None
    batch_size: int | None = None
    resolution: int | None = None

    @property
    def text(self) -> str:
        return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in self if value is not None)


class Paper(BaseModel):
    """Where a row is printed: a key of the file's citations, and the table; `doubt`: what speaks against a value."""

    model_config = STRICT
    citation: str
    table: str
    note: str | None = None
    doubt: str | None = None


class RunProvenance(BaseModel):
    """The evaluation a row comes from: enough to score it again, and to see that embedding and dataset are the same;
    `doubt`: what the evaluation found to speak against it (hbench.evaluation.embeddings.doubts)."""

    model_config = STRICT
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    file: str
    signature: str
    hbench: str
    dataset_digest: str
    date: str
    queries: int = Field(gt=0)
    note: str | None = None
    doubt: str | None = None


class Row(BaseModel):
    """One method's scores in percent and its provenance; `unranked`: metric → why this score is not comparable."""

    model_config = STRICT
    method: str = Field(pattern=ONE_LINE)
    year: int | None = Field(None, ge=1950, le=2200)
    backbone: str | None = None
    dim: int | None = Field(None, gt=0)
    setup: Setup = Setup()
    scores: dict[str, Percent] = Field(min_length=1)
    unranked: dict[str, str] = {}
    paper: Paper | None = None
    run: RunProvenance | None = None

    @model_validator(mode="after")
    def _one_provenance(self) -> Row:
        if (self.paper is None) == (self.run is None):
            raise ValueError(f"expected exactly one of paper and run, found {'both' if self.paper else 'neither'}")
        return self

    @property
    def source(self) -> str:
        """The table, or the run, in a few words."""
        if self.run:
            return f"run {self.run.sha256[:8]}, {self.run.date}"
        assert self.paper
        return f"{self.paper.citation}, {self.paper.table}"

    @property
    def identity(self) -> tuple[object, ...]:
        """What two rows of one leaderboard may not share."""
        if self.run:
            return (self.run.sha256, self.run.signature)
        return (self.method, self.backbone, self.dim, self.setup.text, self.source)
