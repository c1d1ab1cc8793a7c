"""Reads recipes by name.

A setup file says how to train on a dataset, a method file what to minimise, and on which setups.
The recipe SETUP-METHOD is the setup, changed by the method, and then by the method's lines for this
setup.

>>> resolve("sop-happier").losses["sup_hap"].weight
0.9
>>> resolve("sop-happier", ["sampler.batch=128"]).sampler.batch
128

Your own file begins with `extends = "sop-happier"` (or a setup, or nothing) and lists the
differences. Its table of losses replaces the other's as soon as it names one that the other lacks;
else it changes those it names.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from hbench.core.errors import ConfigError, UnknownName, UsageError
from hbench.core.schema import build
from hbench.core.untrusted import parse_toml, read_text
from hbench.train.recipes.books import verb_of
from hbench.train.recipes.recipe import LossSpec, Recipe

Values = dict[str, Any]
MOST_FILES = 20  # in a chain of files that extend one another
UNSET = "unset"  # the value of a key that has none, as people type it


def names() -> list[str]:
    """List the names of all shipped recipes."""
    files = shipped()
    # SETUP-METHOD: a method's table `on` has the setups that it is for
    of_two = [
        f"{setup}-{method}" for method, values in files.methods.items() for setup in values["on"]
    ]
    return sorted([*of_two, *files.whole])


def resolve(name_or_file: str, changes: Sequence[str] = ()) -> Recipe:
    """Read a recipe by name or from a TOML file, and then apply `changes` such as
    "optimizer.lr=1e-4".

    Raises UnknownName for an unknown name, ConfigError that names file and key for a value against
    the schema, UsageError for a change without KEY=VALUE.
    """
    values = values_of(name_or_file)
    before = values
    for change in changes:
        values = merge_tables(values, parse_change(change))
    # with other losses it no longer aims at the published row that it names
    values = _without_aim_of_other_losses(values, before)
    source = name_or_file + "".join(f" --set {change}" for change in changes)
    try:
        return build(Recipe, values, source=source)
    except ConfigError as error:
        raise ConfigError(
            error.problem,
            expected=error.expected,
            found=error.found,
            fix=error.fix or "hbench recipes --keys lists what every key may be",
        ) from None


def values_of(name_or_file: str, under: tuple[Path, ...] = ()) -> Values:
    """Merge the tables of a recipe, by its name or file, with those of the recipes that it extends,
    without checking them; `under`: the files that extend it, the outermost first."""
    if name_or_file.endswith(".toml"):
        path = Path(name_or_file)
        if path.resolve() in under or len(under) > MOST_FILES:
            raise ConfigError(
                "a recipe extends itself, or too many others",
                expected=f"at most {MOST_FILES} files that extend one another",
                found=" → ".join(map(str, (*under, path.resolve())[-5:])),
            )
        try:
            values = parse_toml(read_text(path))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{path} cannot be read",
                expected="a recipe, in TOML",
                found=str(error),
                fix="hbench recipes lists names",
            ) from None
        return _extended(values, (*under, path.resolve()))

    files = shipped()
    of_one_file = files.setups | files.whole
    if name_or_file in of_one_file:
        return _extended(dict(of_one_file[name_or_file]))

    # SETUP-METHOD: the settings of the method over the setup's, and then its own for this setup
    # "on" of a method: {setup: its settings there}
    for method, values in files.methods.items():
        setup = name_or_file.removesuffix(f"-{method}")
        if setup != name_or_file and setup in values["on"]:
            settings = {key: value for key, value in values.items() if key != "on"}
            return merge_tables(merge_tables(values_of(setup), settings), values["on"][setup])

    raise UnknownName(
        "recipe",
        name_or_file,
        [*names(), *files.setups],
        meant=_meant_by(name_or_file),
        otherwise="hbench recipes lists all; a recipe of your own is a file, NAME.toml",
    )


def _meant_by(name: str) -> str | None:
    """Say what was meant by a name that is no recipe of `hbench train`: a recipe of another verb,
    or, for SETUP-LOSS, the recipes of the setup that minimise the loss together with the fewest
    others. None where neither is known."""
    if verb := verb_of(name):
        return f"hbench {verb} {name}, a recipe of that verb"
    fitting = []
    for setup in shipped().setups:
        if not name.startswith(f"{setup}-"):
            continue
        loss = name.removeprefix(f"{setup}-").replace("-", "_")
        for method, values in shipped().methods.items():
            if setup in values["on"]:
                losses = losses_in_use(values_of(f"{setup}-{method}"))
                fitting += [(len(losses), f"{setup}-{method}")] if loss in losses else []
    # of equally many losses all are named
    least = min(fitting, default=(0, ""))[0]
    return " or ".join(repr(each) for number, each in sorted(fitting) if number == least) or None


def merge_tables(values: Mapping[str, Any], over: Mapping[str, Any]) -> Values:
    """Replace `values` by those of `over`, table by table.

    >>> merge_tables({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}})
    {'a': {'x': 1, 'y': 3}}
    """
    result = dict(values)
    for key, value in over.items():
        both_tables = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merge_tables(result[key], value) if both_tables else value
    return result


def parse_change(change: str) -> Values:
    """Parse a change, KEY=VALUE, into a table: dots in the key nest tables, the value is one of
    TOML, one of Python, or else a text.

    >>> parse_change("optimizer.lr=1e-4"), parse_change("model.pooling=gem")
    ({'optimizer': {'lr': 0.0001}}, {'model': {'pooling': 'gem'}})
    >>> parse_change("validation=.2"), parse_change("images.scale=[.8,1.2]")
    ({'validation': 0.2}, {'images': {'scale': [0.8, 1.2]}})
    >>> parse_change("steps_per_epoch=unset")
    {'steps_per_epoch': None}
    """
    key, sign, text = change.partition("=")
    if not (key.strip() and sign):
        raise UsageError(
            f"{change!r} changes nothing",
            expected="KEY=VALUE",
            fix="such as --set optimizer.lr=1e-4",
        )
    try:
        value = parse_toml(f"value = {text}")["value"]
    except ValueError:
        # the page of keys says "unset" of what has no value
        value = None if text.strip() == UNSET else _value_of_python(text.strip())
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return dict(value)


def _value_of_python(text: str) -> Any:
    """The value of a literal that people type as in Python and that TOML does not have: .5, True,
    [.8, 1.2]; any other text stands for itself."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float | list) else text


def as_toml(recipe: Recipe) -> str:
    """Write a whole recipe, including all defaults, as a file that `resolve` reads."""
    return tomli_w.dumps(_without_none(recipe.model_dump(mode="json")))


def listed(recipe: Recipe) -> list[str]:
    """Say of a recipe what `hbench recipes` lists: its losses, backbone and the published row it
    aims at."""
    losses = " + ".join(_term(loss, spec) for loss, spec in recipe.losses.items())
    aim = f"{recipe.aim.method}: {recipe.aim.table}" if recipe.aim and recipe.aim.table else ""
    return [losses, recipe.model.backbone, aim]


class ShippedFiles(NamedTuple):
    """The tables of recipe files, by the name of the file.

    `methods` list their setups in their table `on`; `whole` are recipes that extend a SETUP-METHOD,
    under a name of their own.
    """

    setups: dict[str, Values]
    methods: dict[str, Values]
    whole: dict[str, Values]


@cache
def shipped() -> ShippedFiles:
    """Read the recipe files that hbench ships."""
    tables = [
        file
        for file in resources.files("hbench.train.recipes").iterdir()
        if file.name.endswith(".toml")
    ]
    files = {Path(file.name).stem: parse_toml(file.read_text(encoding="utf-8")) for file in tables}
    # "on" names the setups that a method is combined with
    methods = {name: values for name, values in files.items() if "on" in values}
    # a setup extends another setup, which is a file, or nothing; SETUP-METHOD is no file
    whole = {
        name: values for name, values in files.items() if values.get("extends", name) not in files
    }
    setups = {
        name: values for name, values in files.items() if name not in methods and name not in whole
    }
    return ShippedFiles(setups, methods, whole)


def _extended(values: Values, under: tuple[Path, ...] = ()) -> Values:
    """Merge the tables of a recipe over those of the recipe that it extends, if it names one;
    `under`: the files that extend it, among which that one must not be. `extends` is taken out of
    `values`."""
    base = values.pop("extends", None)
    if not isinstance(base, str | None):
        raise ConfigError(
            f"a recipe extends {base!r}",
            expected="the name of a recipe, or a file",
            found=repr(base),
        )
    return values if base is None else _changed_by_file(values_of(base, under), values)


def _changed_by_file(values: Values, over: Values) -> Values:
    """Change a recipe's tables, `values`, by those of a file that extends it, `over`.

    A file that names a new loss lists all of its losses, so that the former ones go, unless named;
    one that names former losses alone changes those, and the others stay. With other losses it no
    longer aims at the published row, unless it names one itself."""
    result = merge_tables(values, over)
    if not isinstance(over.get("losses"), Mapping):
        return result
    earlier = values.get("losses", {})
    if not set(over["losses"]) <= set(earlier):
        result["losses"] = {
            name: merge_tables(earlier.get(name, {}), spec) for name, spec in over["losses"].items()
        }
    return result if "aim" in over else _without_aim_of_other_losses(result, values)


def _without_aim_of_other_losses(values: Values, before: Values) -> Values:
    """Return a recipe's tables without the published row that it should reproduce (`aim`) where
    they minimise other losses than those `before` a change: what is trained so is not that method.
    A row that the change itself named stays."""
    if losses_in_use(values) == losses_in_use(before) or values.get("aim") != before.get("aim"):
        return values
    return {key: value for key, value in values.items() if key != "aim"}


def losses_in_use(values: Mapping[str, Any]) -> set[str]:
    """Return the names of the losses in a recipe's tables whose weight is not 0, 1 unless it is
    set. The tables are not checked yet: what is no table is left to that check."""
    losses = values.get("losses")
    if not isinstance(losses, Mapping):
        return set()
    return {
        name
        for name, spec in losses.items()
        if not isinstance(spec, Mapping) or spec.get("weight", 1)
    }


def method_of(recipe: Recipe) -> str:
    """What a run of a recipe is called: by the published row that it should reproduce, or else by
    what it minimises.

    >>> method_of(resolve("sop-happier"))
    'HAPPIER'
    >>> changes = ["losses.sup_hap.weight=0", "losses.cluster.weight=0", "losses.triplet.weight=1"]
    >>> method_of(resolve("sop-happier", changes))
    'triplet'
    """
    if recipe.aim is not None:
        return recipe.aim.method
    return " + ".join(name for name, spec in recipe.losses.items() if spec.weight)


def losses_in_words(recipe: Recipe, name_or_file: str) -> str:
    """Say what a recipe minimises, and, if it was read from a file, which of its losses come from
    the recipe that the file extends: they stay where somebody may think to have replaced them.
    `name_or_file`: by which the recipe was read.

    >>> losses_in_words(resolve("sop-happier"), "sop-happier")
    'minimises 0.9 sup_hap + 0.1 cluster'
    >>> losses_in_words(resolve("sop-happier-f"), "sop-happier-f")
    'minimises 0.9 sup_hap (alpha 5.0) + 0.1 cluster'
    """
    terms = [_term(name, spec) for name, spec in recipe.losses.items() if spec.weight]
    said = f"minimises {' + '.join(terms)}"
    if not name_or_file.endswith(".toml"):
        return said
    own = parse_toml(read_text(Path(name_or_file)))
    kept = [name for name in recipe.losses if name not in own.get("losses", {})]
    if kept and "extends" in own:
        return f"{said} ({', '.join(kept)} from {own['extends']})"
    return said


def _term(name: str, spec: LossSpec) -> str:
    """A loss with its weight, and with the parameters that the recipe sets: two methods may differ
    by these alone."""
    term = f"{spec.weight:g} {name}"
    said = ", ".join(f"{key} {value}" for key, value in spec.params.items())
    return f"{term} ({said})" if said else term


def _without_none(value: Any) -> Any:
    """Return values of a recipe, in tables at any depth, without the keys that are None, which TOML
    cannot express; a missing key is None again when the file is read."""
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value


def differences(
    first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = ""
) -> Iterable[str]:
    """Yield the keys, with dots, at which the tables of two recipes differ. `prefix`: the keys that
    lead to these tables.

    >>> list(differences({"a": {"x": 1}, "b": 2}, {"a": {"x": 3}, "b": 2}))
    ['a.x']
    """
    for key in sorted({*first, *second}):
        one = first.get(key)
        two = second.get(key)
        if isinstance(one, Mapping) and isinstance(two, Mapping):
            yield from differences(one, two, f"{prefix}{key}.")
        elif one != two:
            yield f"{prefix}{key}"
