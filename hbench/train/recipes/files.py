"""Reads recipes by name.

A setup file says how to train on a dataset. A method file says which losses to minimise, and for
which setups. The recipe SETUP-METHOD is the setup with the changes of the method, and then the
method's changes for this setup.

>>> resolve("sop-happier").losses["sup_hap"].weight
0.9
>>> resolve("sop-happier", ["sampler.batch=128"]).sampler.batch
128

A user's own file begins with `extends = "sop-happier"` (or a setup, or nothing) and lists the
differences. If its table of losses has a loss that the extended recipe does not have, it replaces
the other table; otherwise it changes the losses that it names.
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
UNSET = "unset"  # what users type for a key without a value


def names() -> list[str]:
    """List the names of all shipped recipes."""
    files = shipped()
    # SETUP-METHOD, for each setup in the table `on` of a method
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
    before = values  # not changed below: merge_tables returns a new table
    for change in changes:
        values = merge_tables(values, parse_change(change))
    # with other losses the recipe does not reproduce the published row (`aim`) any more
    values = _without_aim_of_other_losses(values, before)
    source = name_or_file + "".join(f" --set {change}" for change in changes)
    try:
        return build(Recipe, values, source=source)
    except ConfigError as error:
        raise ConfigError(
            error.problem,
            expected=error.expected,
            found=error.found,
            # errors without an advice get this one
            fix=error.fix or "hbench recipes --keys lists what every key may be",
        ) from None


def values_of(name_or_file: str, under: tuple[Path, ...] = ()) -> Values:
    """Read the tables of a recipe, merged with those of the recipes that it extends. They are not
    checked yet. `under`: the files that extend this recipe, the outermost first; a recipe that is
    among them would extend itself."""
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
        # copied, since _extended removes a key, and shipped files are read only once
        return _extended(dict(of_one_file[name_or_file]))

    # SETUP-METHOD: merge the setup, the method, and the method's settings for this setup, which are
    # in its table "on": {setup: settings}
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
    """Suggest what a user meant by a name that is no recipe of `hbench train`: a recipe of another
    verb or, for the name of a setup and of a loss (SETUP-LOSS), the recipes of the setup that
    minimise this loss with the fewest further losses. None if nothing is known."""
    if verb := verb_of(name):
        return f"hbench {verb} {name}, a recipe of that verb"
    fitting = []  # (number of losses, SETUP-METHOD)
    for setup in shipped().setups:
        if not name.startswith(f"{setup}-"):
            continue
        loss = name.removeprefix(f"{setup}-").replace("-", "_")
        for method, values in shipped().methods.items():
            if setup in values["on"]:  # "on": the setups that have the method
                losses = losses_in_use(values_of(f"{setup}-{method}"))
                if loss in losses:
                    fitting.append((len(losses), f"{setup}-{method}"))
    # name all recipes with the smallest number of losses
    least = min((number for number, _ in fitting), default=0)
    return " or ".join(repr(each) for number, each in sorted(fitting) if number == least) or None


def merge_tables(values: Mapping[str, Any], over: Mapping[str, Any]) -> Values:
    """Merge two nested tables; values of `over` replace those of `values`.

    >>> merge_tables({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}})
    {'a': {'x': 1, 'y': 3}}
    """
    result = dict(values)
    for key, value in over.items():
        both_tables = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merge_tables(result[key], value) if both_tables else value
    return result


def parse_change(change: str) -> Values:
    """Parse a change, KEY=VALUE, into nested tables, one for each dot in the key. The value is
    parsed as TOML, or as a Python literal, or is taken as a text.

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
        # the list of keys prints "unset" for a key without a value
        value = None if text.strip() == UNSET else _value_of_python(text.strip())
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return dict(value)


def _value_of_python(text: str) -> Any:
    """Parse a Python literal that is no TOML, such as .5, True or [.8, 1.2]. Any other text is
    returned unchanged."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float | list) else text


def as_toml(recipe: Recipe) -> str:
    """Write a whole recipe, including all defaults, as a file that `resolve` reads."""
    return tomli_w.dumps(_without_none(recipe.model_dump(mode="json")))


def listed(recipe: Recipe) -> list[str]:
    """Return the cells that `hbench recipes` lists for a recipe: its losses, its backbone, and the
    published row that it should reproduce."""
    losses = " + ".join(_term(loss, spec) for loss, spec in recipe.losses.items())
    aim = f"{recipe.aim.method}: {recipe.aim.table}" if recipe.aim and recipe.aim.table else ""
    return [losses, recipe.model.backbone, aim]


class ShippedFiles(NamedTuple):
    """The tables of the recipe files, {name of the file: its table}.

    `methods` list their setups in their table `on`. `whole` are recipes with a name of their own
    that extend a SETUP-METHOD.
    """

    setups: dict[str, Values]
    methods: dict[str, Values]
    whole: dict[str, Values]


@cache
def shipped() -> ShippedFiles:
    """Read the recipe files that hbench ships, and sort them into setups, methods and whole
    recipes."""
    tables = [
        file
        for file in resources.files("hbench.train.recipes").iterdir()
        if file.name.endswith(".toml")
    ]
    files = {Path(file.name).stem: parse_toml(file.read_text(encoding="utf-8")) for file in tables}
    # only methods have a table "on", with the setups that they are combined with
    methods = {name: values for name, values in files.items() if "on" in values}
    # A whole recipe extends a SETUP-METHOD, which is not the name of a file. A setup extends a
    # setup, whose name is that of a file, or nothing: then `get` returns the setup's own name, so
    # that it does not count as a whole recipe
    whole = {
        name: values for name, values in files.items() if values.get("extends", name) not in files
    }
    setups = {
        name: values for name, values in files.items() if name not in methods and name not in whole
    }
    return ShippedFiles(setups, methods, whole)


def _extended(values: Values, under: tuple[Path, ...] = ()) -> Values:
    """Merge the tables of a recipe with those of the recipe that it extends, if there is one.
    `extends` is removed from `values`. `under`: this recipe's file and those that extend it, for
    values_of to find a file that extends itself."""
    base = values.pop("extends", None)
    if not isinstance(base, str | None):
        raise ConfigError(
            f"a recipe extends {base!r}",
            expected="the name of a recipe, or a file",
            found=repr(base),
        )
    return values if base is None else _changed_by_file(values_of(base, under), values)


def _changed_by_file(values: Values, over: Values) -> Values:
    """Change a recipe's tables (`values`) by those of a file that extends it (`over`).

    A file with a loss that the recipe does not have replaces the table of losses: losses that it
    does not name are removed. A file that names only losses of the recipe changes these, and keeps
    the others. If the losses differ, the published row that the recipe should reproduce (`aim`) is
    removed, unless the file has one.
    """
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
    """Remove the published row that a recipe should reproduce (`aim`) if a change made it minimise
    other losses, since it does not train that method any more. `before`: the tables before the
    change. An aim that the change itself has set is kept."""
    if losses_in_use(values) == losses_in_use(before) or values.get("aim") != before.get("aim"):
        return values
    return {key: value for key, value in values.items() if key != "aim"}


def losses_in_use(values: Mapping[str, Any]) -> set[str]:
    """Return the names of the losses in a recipe's tables whose weight is not 0; by default it is
    1. The tables have not been checked, so they may have other values in place of tables. A loss
    with such a value counts as one of weight 1."""
    losses = values.get("losses")
    if not isinstance(losses, Mapping):
        return set()
    return {
        name
        for name, spec in losses.items()
        if not isinstance(spec, Mapping) or spec.get("weight", 1)
    }


def method_of(recipe: Recipe) -> str:
    """Return the name of a recipe's method: that of the published row that it should reproduce, or
    else the names of its losses.

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
    """Say what a recipe minimises. For a file it also says which losses come from the recipe that
    the file extends, since a user may believe to have replaced them. `name_or_file`: the name or
    file of the recipe.

    >>> losses_in_words(resolve("sop-happier"), "sop-happier")
    'minimises 0.9 sup_hap + 0.1 cluster'
    >>> losses_in_words(resolve("sop-happier-f"), "sop-happier-f")
    'minimises 0.9 sup_hap (alpha 5.0) + 0.1 cluster'
    """
    terms = [_term(name, spec) for name, spec in recipe.losses.items() if spec.weight]
    said = f"minimises {' + '.join(terms)}"
    if not name_or_file.endswith(".toml"):
        return said
    own = parse_toml(read_text(Path(name_or_file)))  # the file's tables, without those it extends
    kept = [name for name in recipe.losses if name not in own.get("losses", {})]
    if kept and "extends" in own:
        return f"{said} ({', '.join(kept)} from {own['extends']})"
    return said


def _term(name: str, spec: LossSpec) -> str:
    """Format a loss with its weight and the parameters that the recipe sets: two methods may differ
    only in these."""
    term = f"{spec.weight:g} {name}"
    said = ", ".join(f"{key} {value}" for key, value in spec.params.items())
    return f"{term} ({said})" if said else term


def _without_none(value: Any) -> Any:
    """Remove keys with the value None from nested tables, since TOML has no None. A missing key
    becomes None again when the file is read."""
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value


def differences(
    first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = ""
) -> Iterable[str]:
    """Yield the keys, joined by dots, in which the nested tables of two recipes differ. `prefix`:
    the keys that lead to these tables.

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
