"""Describes a study, read from TOML: arms (recipes with changes), tables to show, and claims to test about them.

Every arm is trained once per seed (hbench.train.study.runs); the claims are tested over the seeds (hbench.train.study.claims).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from hbench.core.errors import ConfigError, UnknownName, examples
from hbench.core.schema import STRICT, build
from hbench.core.untrusted import parse_toml, read_text
from hbench.train.recipes.files import resolve
from hbench.train.recipes.recipe import Recipe


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
    """That Σ plus − Σ minus is above 0 in a metric; or, with `within`, that it is not farther from 0 than that.

    `beats`: arms of which each must be beaten by Σ plus − Σ minus, as "the best loss of fine labels" must. `family`: the
    claims that are corrected together for being many.
    """

    model_config = STRICT
    says: str
    source: str
    plus: tuple[str, ...]
    minus: tuple[str, ...] = ()
    beats: tuple[str, ...] = ()
    metric: str
    within: Annotated[float, Field(gt=0)] | None = None
    family: str = "claims of the papers"

    @property
    def arms(self) -> tuple[str, ...]:
        """Every arm that it names."""
        return (*self.plus, *self.minus, *self.beats)


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
        named += [arm for claim in self.claims for arm in claim.arms]
        if unknown := sorted(set(named) - set(self.arms)):
            raise ValueError(f"expected arms that are in [arms], found {examples(unknown)}")
        return self

    def recipe(self, arm: str, seed: int, changes: Sequence[str] = ()) -> Recipe:
        """The recipe of an arm's run of a seed; `changes` are made last."""
        chosen = self.arms[arm]
        return resolve(chosen.recipe, [*self.settings, *chosen.set, *changes, f"seed={seed}"])


def names() -> list[str]:
    """The studies that come with hbench."""
    files = (Path(file.name) for file in resources.files("hbench.train.study").iterdir())
    return sorted(file.stem for file in files if file.suffix == ".toml")


def read(name: str) -> Study:
    """A study by its name or from a file. Raises UnknownName, ConfigError."""
    if name.endswith(".toml"):
        source, path = name, Path(name)
        text = _text(path)
    else:
        if name not in names():
            raise UnknownName("study", name, names())
        source = f"the study {name}"
        text = resources.files("hbench.train.study").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    if text is None:
        raise ConfigError(f"{name} does not exist", expected="a study, in TOML")
    try:
        return build(Study, parse_toml(text), source=source)
    except ValueError as error:
        raise ConfigError(f"{source} is no TOML", found=str(error)) from None


def _text(path: Path) -> str | None:
    try:
        return read_text(path) if path.is_file() else None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read", expected="a study, in TOML", found=str(error)) from None


def folder_of(out: Path, arm: str, seed: int) -> Path:
    """Where an arm's run of a seed goes: its name in letters that every disk takes.

    >>> folder_of(Path("out"), "HAPPIER α=2", 0).as_posix()
    'out/HAPPIER_alpha-2/seed-0'
    """
    plain = arm.replace("α", "alpha").replace("λ", "lambda").replace("=", "-")
    return out / "".join(c if c.isascii() and (c.isalnum() or c in "+-._") else "_" for c in plain) / f"seed-{seed}"
