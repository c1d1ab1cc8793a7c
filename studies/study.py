"""Describes a study, read from TOML: arms (recipes with changes), tables to show, and claims to
test about them.

Every arm is trained once per seed (studies.runs); the claims are tested over the seeds
(studies.claims).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from hbench.core.errors import ConfigError, UnknownName, examples
from hbench.core.schema import STRICT, build
from hbench.core.untrusted import parse_toml, read_text
from hbench.train.recipes.files import resolve
from hbench.train.recipes.recipe import Recipe

UNCLAIMED = 3  # seeds of an arm that no claim is about


class Arm(BaseModel):
    """One recipe with changes; or, with `like`, another arm as it was tuned, with changes.

    `by`: the metric that chooses the rate and the checkpoint on held-out classes, by default the
    study's.
    """

    model_config = STRICT
    recipe: str = ""
    like: str = ""
    set: tuple[str, ...] = ()
    by: str = ""

    @model_validator(mode="after")
    def _one_origin(self) -> Arm:
        """Raise ValueError unless either a recipe or another arm is named; pydantic calls this."""
        if bool(self.recipe) == bool(self.like):
            raise ValueError("expected a recipe, or another arm that it is like")
        return self


class Tuning(BaseModel):
    """How the rates of arms are chosen: one run for each, of a seed that no test has, on held-out
    classes of the training set; the best of its validations `by` a metric counts.

    `lower`, `higher`: rates beyond both ends, outwards; the next one is tried while the best is the
    one at that end. `settings`: of these runs alone, such as how many classes they hold out where
    the tested runs train on all.
    """

    model_config = STRICT
    rates: tuple[str, ...]
    lower: tuple[str, ...] = ()
    higher: tuple[str, ...] = ()
    by: str
    seed: int = 1000
    settings: tuple[str, ...] = ()


class ArmTable(BaseModel):
    """Arms that are shown together."""

    model_config = STRICT
    title: str
    arms: tuple[str, ...]


class Claim(BaseModel):
    """That Σ plus − Σ minus is above 0 in a metric; or, with `within`, that it is not farther from
    0 than that.

    `minus_metric`: another metric for what is subtracted. `headline`: whether `--headline` trains
    its arms.

    `beats`: arms of which each must be beaten by Σ plus − Σ minus, as "the best loss of fine
    labels" must. `family`: the claims that are corrected together for being many.
    """

    model_config = STRICT
    says: str
    source: str
    plus: tuple[str, ...]
    minus: tuple[str, ...] = ()
    beats: tuple[str, ...] = ()
    metric: str
    minus_metric: str = ""
    headline: bool = False
    within: Annotated[float, Field(gt=0)] | None = None
    family: str = "claims of the papers"

    @property
    def arms(self) -> tuple[str, ...]:
        """Every arm that it names."""
        return (*self.plus, *self.minus, *self.beats)


class Study(BaseModel):
    """Arms by name, the settings that all of them share, and what is shown and tested of them.

    `unit`: the level whose classes intervals are taken over, beside seeds. `seeds`: the runs of an
    arm that a claim is about. `minutes`: what a run takes on one core. `gaps`: batch sizes of which
    the decomposability gap of AP is measured, as metrics gap@B and AP in B. `means`: metrics that
    are the mean of others, for values that were kept without them.
    """

    model_config = STRICT
    dataset: str
    settings: tuple[str, ...] = ()
    metrics: tuple[str, ...]
    unit: str
    seeds: Annotated[int, Field(gt=0)] = 5
    minutes: Annotated[float, Field(gt=0)] | None = None
    gaps: tuple[Annotated[int, Field(gt=1)], ...] = ()
    means: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    tuning: Tuning | None = None
    arms: dict[str, Arm]
    tables: tuple[ArmTable, ...] = Field((), alias="table")
    claims: tuple[Claim, ...] = Field((), alias="claim")

    @model_validator(mode="after")
    def _known(self) -> Study:
        """Raise ValueError for a table, a claim or an arm that names an arm which does not exist;
        pydantic calls this."""
        named = [arm for table in self.tables for arm in table.arms]
        named += [arm for claim in self.claims for arm in claim.arms]
        named += [arm.like for arm in self.arms.values() if arm.like]
        if unknown := sorted(set(named) - set(self.arms)):
            raise ValueError(f"expected arms that are in [arms], found {examples(unknown)}")
        return self

    @model_validator(mode="after")
    def _no_chains(self) -> Study:
        """Raise ValueError for an arm like one that is itself like another: it would be unclear
        whose tuning counts; pydantic calls this."""
        if chained := [
            name for name, arm in self.arms.items() if arm.like and self.arms[arm.like].like
        ]:
            raise ValueError(f"expected arms like one that has a recipe, found {examples(chained)}")
        return self

    def origin(self, arm: str) -> str:
        """The arm whose tuning gives this one its rate: itself, or the one it is like."""
        return self.arms[arm].like or arm

    def by(self, arm: str) -> str:
        """The metric that chooses an arm's settings."""
        return self.arms[arm].by or (self.tuning.by if self.tuning else "")

    @property
    def rates(self) -> list[tuple[str, ...]]:
        """The settings that are tried of every arm that has a recipe, such as ("lr=0.01",), from
        the lowest rate to the highest."""
        return [tuple(rate.split()) for rate in self.tuning.rates] if self.tuning else []

    @property
    def grid(self) -> list[tuple[str, ...]]:
        """All rates from the lowest to the highest, with those that are tried only where the best
        was at an end.
        """
        if self.tuning is None:
            return []
        rates = [*reversed(self.tuning.lower), *self.tuning.rates, *self.tuning.higher]
        return [tuple(rate.split()) for rate in rates]

    def metrics_of_choice(self, origin: str) -> set[str]:
        """The metrics that choose a rate of this arm's tuning: its own, and those of arms that are
        like it.
        """
        return {self.by(arm) for arm in self.arms if self.origin(arm) == origin}

    def runs(self, arms: Sequence[str], seeds: int) -> list[tuple[str, int]]:
        """The arms and seeds to train, seed by seed: of an arm of a claim all seeds, of the others
        three at most.
        """
        claimed = {arm for claim in self.claims for arm in claim.arms}
        return [
            (arm, seed)
            for seed in range(seeds)
            for arm in arms
            if arm in claimed or seed < UNCLAIMED
        ]

    @property
    def headline(self) -> list[str]:
        """The arms of the headline claims."""
        named = {arm for claim in self.claims if claim.headline for arm in claim.arms}
        return [arm for arm in self.arms if arm in named]

    @property
    def arms_with_gaps(self) -> set[str]:
        """The arms of claims about a gap, which takes as long as a training to measure."""
        return {
            arm for claim in self.claims if claim.metric.startswith("gap@") for arm in claim.arms
        }

    def trial(self, arm: str, settings: Sequence[str], changes: Sequence[str] = ()) -> Recipe:
        """Make the recipe of a tuning run of an arm, which never looks at the tests; `settings`:
        the rate that is tried; later settings replace earlier ones."""
        assert self.tuning is not None
        own = self.arms[arm]
        fixed = [f"seed={self.tuning.seed}", f"select_by={self.tuning.by}", "tested=false"]
        return resolve(
            own.recipe,
            [*self.settings, *self.tuning.settings, *own.set, *settings, *changes, *fixed],
        )

    def recipe(
        self, arm: str, seed: int, changes: Sequence[str] = (), chosen: Sequence[str] = ()
    ) -> Recipe:
        """The recipe of an arm's run of a seed, with the settings that were chosen for it;
        `changes` are made last.
        """
        selection = [f"select_by={self.by(arm)}"] if self.by(arm) else []
        settings = self._settings_of(arm, chosen)
        return resolve(
            self.arms[self.origin(arm)].recipe, [*settings, *selection, *changes, f"seed={seed}"]
        )

    def _settings_of(self, arm: str, chosen: Sequence[str]) -> list[str]:
        """The settings of an arm, of which later ones replace earlier ones: the study's, those of
        the arm that it is like, those that were chosen by trials, and its own."""
        own = self.arms[arm]
        inherited = self.arms[own.like].set if own.like else ()
        return [*self.settings, *inherited, *chosen, *own.set]

    def command(self, arm: str, seed: int, chosen: Sequence[str] = ()) -> str:
        """The command that trains an arm's run of a seed: its recipe, and the settings that the
        recipe does not have already."""
        origin = self.arms[self.origin(arm)]
        wanted = self.recipe(arm, seed, chosen=chosen)
        settings = [*self._settings_of(arm, chosen), f"seed={seed}"]
        # leave out one after the other, and keep it out where the recipe stays the same
        needed = list(settings)
        for setting in settings:
            without = [each for each in needed if each != setting]
            if _is_alike(origin.recipe, without, wanted):
                needed = without
        words = [f"--set {shlex.quote(setting)}" for setting in needed]
        return " ".join(["hbench train", origin.recipe, *words, "--threads 1"])


def _is_alike(name: str, settings: Sequence[str], other: Recipe) -> bool:
    """Whether a recipe with settings gives the same embeddings as another, whatever they save on
    the way; what chooses a checkpoint matters where there are validations alone.
    """
    try:
        one = resolve(name, settings)
    except ConfigError:
        return False
    ignored = {"checkpoint_every", "checkpoint_minutes", "log_every", "aim", "source"}
    if not other.validation:
        ignored.add("select_by")
    return one.model_dump(exclude=ignored) == other.model_dump(exclude=ignored)


def names() -> list[str]:
    """The names of the studies that come with hbench."""
    return sorted(file.stem for file in Path(__file__).parent.glob("*.toml"))


def read(name: str) -> Study:
    """Read a study by its name, or from a file that ends in .toml. Raises UnknownName, and
    ConfigError for a file that is no study."""
    if name.endswith(".toml"):
        source = name
        path = Path(name)
        text = _text(path)
    else:
        if name not in names():
            raise UnknownName("study", name, names())
        source = f"the study {name}"
        text = (Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8")

    if text is None:
        raise ConfigError(f"{name} does not exist", expected="a study, in TOML")

    try:
        return build(Study, parse_toml(text), source=source)
    except ValueError as error:
        raise ConfigError(f"{source} is not TOML", found=str(error)) from None


def _text(path: Path) -> str | None:
    """The text of a file, None where there is none; raises ConfigError where it is unreadable."""
    try:
        return read_text(path) if path.is_file() else None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read", expected="a study, in TOML", found=str(error)
        ) from None


def folder_of(out: Path, arm: str, seed: int, kind: str = "seed") -> Path:
    """Where an arm's run of a seed goes, or its trial of a number: its name in letters that every
    disk takes.

    >>> folder_of(Path("out"), "HAPPIER α=2", 0).as_posix()
    'out/HAPPIER_alpha-2/seed-0'
    """
    spelled = arm.replace("α", "alpha").replace("λ", "lambda").replace("=", "-")
    name = re.sub(r"[^A-Za-z0-9+._-]", "_", spelled)
    return out / name / f"{kind}-{seed}"
