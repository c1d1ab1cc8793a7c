"""A study trains arms (recipes with changes), each once per seed, and tests claims about them by paired intervals.

A claim is a sum of arms minus another, in one metric; it has a value d for every seed, and the interval is that of the
mean over seeds by Student's t:   mean(d) ± t_(n−1, .975) · s(d) / √n

>>> contrast(np.array([0.03, 0.01, 0.02])).mean
0.02
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

from hbench.core.errors import ConfigError, UnknownName, examples
from hbench.core.schema import STRICT, build
from hbench.evaluation.reports import report as reports
from hbench.evaluation.reports.report import Document
from hbench.train.loop import REPORT
from hbench.train.recipes.files import resolve
from hbench.train.recipes.recipe import Recipe

LEVEL = 0.975


class Arm(BaseModel):
    """One recipe with changes."""

    model_config = STRICT
    recipe: str
    set: tuple[str, ...] = ()


class ArmTable(BaseModel):
    """Arms that are shown together."""

    model_config = STRICT
    title: str
    arms: tuple[str, ...]


class Claim(BaseModel):
    """That Σ plus − Σ minus is above 0 in a metric; or, with `within`, that it is not farther from 0 than that."""

    model_config = STRICT
    says: str
    source: str
    plus: tuple[str, ...]
    minus: tuple[str, ...]
    metric: str
    within: Annotated[float, Field(gt=0)] | None = None


class Study(BaseModel):
    """Arms by name, the settings that all of them share, and what is shown and tested of them."""

    model_config = STRICT
    dataset: str
    settings: tuple[str, ...] = ()
    metrics: tuple[str, ...]
    arms: dict[str, Arm]
    tables: tuple[ArmTable, ...] = Field((), alias="table")
    claims: tuple[Claim, ...] = Field((), alias="claim")

    @model_validator(mode="after")
    def _known(self) -> Study:
        named = [*(arm for table in self.tables for arm in table.arms)]
        named += [arm for claim in self.claims for arm in (*claim.plus, *claim.minus)]
        if unknown := sorted(set(named) - set(self.arms)):
            raise ValueError(f"expected arms that are in [arms], found {examples(unknown)}")
        return self

    def recipe(self, arm: str, seed: int, changes: Sequence[str] = ()) -> Recipe:
        """The recipe of an arm's run of a seed; `changes` are made last."""
        chosen = self.arms[arm]
        return resolve(chosen.recipe, [*self.settings, *chosen.set, *changes, f"seed={seed}"])


class Interval(NamedTuple):
    """A mean over seeds and its 95 % interval; infinite from one seed."""

    mean: float
    low: float
    high: float


class Verdict(NamedTuple):
    """What the seeds say of a claim: holds, does not hold, or open."""

    claim: Claim
    difference: Interval
    word: str


Reports = Mapping[str, Sequence[Document]]  # the reports of every arm, in order of seed


def names() -> list[str]:
    """The studies that come with hbench."""
    files = (Path(file.name) for file in resources.files("hbench.train.study").iterdir())
    return sorted(file.stem for file in files if file.suffix == ".toml")


def read(name: str) -> Study:
    """A study by its name or from a file. Raises UnknownName, ConfigError."""
    if name.endswith(".toml"):
        source, path = name, Path(name)
        text = path.read_text(encoding="utf-8") if path.is_file() else None
    else:
        if name not in names():
            raise UnknownName("study", name, names())
        source = f"the study {name}"
        text = resources.files("hbench.train.study").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    if text is None:
        raise ConfigError(f"{name} does not exist", expected="a study, in TOML")
    try:
        return build(Study, tomllib.loads(text), source=source)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is no TOML", found=str(error)) from None


def folder_of(out: Path, arm: str, seed: int) -> Path:
    """Where an arm's run of a seed goes: its name in letters that every disk takes.

    >>> folder_of(Path("out"), "HAPPIER α=2", 0).as_posix()
    'out/HAPPIER_alpha-2/seed-0'
    """
    plain = arm.replace("α", "alpha").replace("λ", "lambda").replace("=", "-")
    return out / "".join(c if c.isascii() and (c.isalnum() or c in "+-._") else "_" for c in plain) / f"seed-{seed}"


def found_reports(study: Study, out: Path, seeds: int) -> dict[str, list[Document]]:
    """The reports of the arms that have all their seeds."""
    paths = {arm: [folder_of(out, arm, seed) / REPORT for seed in range(seeds)] for arm in study.arms}
    return {arm: [reports.read(path) for path in own] for arm, own in paths.items() if all(p.exists() for p in own)}


def values_of(documents: Sequence[Document], metric: str) -> NDArray[np.float64]:
    """A metric's score of every seed, (S,)."""
    scores = [document.scores[metric].value for document in documents]
    return np.array([np.nan if score is None else score for score in scores])


def contrast(differences: NDArray[np.float64]) -> Interval:
    """The mean of one number per seed and its 95 % interval by Student's t."""
    from scipy.stats import t

    number, mean = len(differences), float(np.mean(differences))
    if number < 2:
        return Interval(mean, -np.inf, np.inf)
    half = float(t.ppf(LEVEL, number - 1) * np.std(differences, ddof=1) / np.sqrt(number))
    return Interval(mean, mean - half, mean + half)


def judged(study: Study, found: Reports) -> list[Verdict]:
    """Every claim whose arms are there, by its paired interval over seeds."""
    verdicts = []
    for claim in study.claims:
        if all(arm in found for arm in (*claim.plus, *claim.minus)):
            above = sum(values_of(found[arm], claim.metric) for arm in claim.plus)
            below = sum(values_of(found[arm], claim.metric) for arm in claim.minus)
            interval = contrast(np.asarray(above - below))
            verdicts.append(Verdict(claim, interval, _word(interval, claim.within)))
    return verdicts


def _word(interval: Interval, within: float | None) -> str:
    if within is None:
        return "holds" if interval.low > 0 else "does not hold" if interval.high < 0 else "open"
    if -within <= interval.low and interval.high <= within:
        return "holds"
    return "does not hold" if interval.low > within or interval.high < -within else "open"
