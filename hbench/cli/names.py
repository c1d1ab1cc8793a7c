"""Parameter types of the command line for names: an unknown name is refused with the list of known
ones, and the shell completes names.

Names are listed only when one is given or completed, so that help stays instant. Switch completion
on with `eval "$(_HBENCH_COMPLETE=bash_source hbench)"` (or zsh_source, fish_source).
"""

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

import hbench
from hbench.core.errors import UsageError, closest

Listed = Callable[[], Iterable[str]]


class FilePath(click.Path):
    """A path, but not the name of an option: in `--by-query --json` the file was forgotten."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse the name of an option, which click would take for a file."""
        options = {
            name
            for each in (ctx.command.params if ctx else ())
            for name in (*each.opts, *each.secondary_opts)
        }
        # short words such as -o are accepted: a file may have such a name, and - is stdin
        if str(value) in options and str(value).startswith("--"):
            self.fail(f"it needs a file, and the next word is the option {value}", param, ctx)
        return super().convert(value, param, ctx)


class OutPath(FilePath):
    """The path of a file that the command writes, which `refuse_overwriting` tells from one that it
    reads."""


FILE = FilePath(path_type=Path)
OUT_FILE = OutPath(path_type=Path)
FOLDER = FilePath(path_type=Path, file_okay=False)


class Known(click.ParamType):  # type: ignore[type-arg]  # a generic class in the stubs alone
    """A text for which the shell completes known names. The verb itself decides whether other texts
    (a file, a pattern) are valid. `listed`: returns the names. `separator`: between several names.
    """

    def __init__(self, name: str, listed: Listed, *, separator: str = "") -> None:
        self.name = name
        self.listed = listed
        self.separator = separator

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the last name in `incomplete`, which may hold several names with
        `self.separator` between them (an empty separator: one name). If no known name, as
        `self.listed()` returns them, begins like the last one, the shell completes files."""
        before = ""  # the names that stand already
        begun = incomplete
        if self.separator:
            names, separator, begun = incomplete.rpartition(self.separator)
            before = names + separator
        fitting = [name for name in self.listed() if name.startswith(begun)]
        if not fitting:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(before + name) for name in fitting]


class OneOf(Known):
    """One of the listed names, optionally with parameters in parentheses. Other texts are a usage
    error that lists the names."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text if it is a listed name. `param` and `ctx` are click's: the error names
        the option by them."""
        names = list(self.listed())
        if str(value).partition("(")[0] not in names:  # in brackets stand a metric's settings
            close = closest(str(value), names)
            hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
            self.fail(f"{value!r} is not one of {', '.join(names)}{hint}", param, ctx)
        return str(value)


class SimilarityName(Known):
    """A similarity with its parameters. Invalid ones are refused before any file is read."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the similarity as hbench spells it. `param` and `ctx` are click's: the error names
        the option by them."""
        from hbench.engine.similarity import named

        try:
            return named(str(value))[0]  # `named` returns the name and the function
        except UsageError as error:
            self.fail(str(error), param, ctx)


def _names_in(module: str, registry: str) -> Listed:
    """Return a function that lists the names in a registry, the object `registry` of a module. It
    imports the module only when it is called, so that help is instant."""
    return lambda: getattr(importlib.import_module(module), registry)


def _policies() -> Iterable[str]:
    """List what --policy may be: a way to mend names, or the one that a refusal recommends."""
    from hbench.tree.policies import RECOMMENDED, policies

    return [*policies, RECOMMENDED]


DATASET = Known("dataset", hbench.list_datasets)
BOARD = Known("board", hbench.list_leaderboards)
LOSS = Known("loss", hbench.list_losses)
RECIPE = Known("recipe", hbench.list_recipes)
METRICS = Known("metrics", _names_in("hbench.metrics.definitions", "metrics"), separator=",")
PROTOCOL = OneOf("protocol", _names_in("hbench.metrics.protocols", "protocols"))
SIMILARITY = SimilarityName("similarity", _names_in("hbench.engine.similarity", "similarities"))
POLICY = Known("policy", _policies)
TIES = click.Choice(["pessimistic", "optimistic"])
TESTED = click.option(
    "--dataset",
    "-d",
    type=DATASET,
    required=True,
    help="A dataset's name, its folder, or one manifest (.parquet, .csv).",
)


def refuse_overwriting(context: click.Context) -> None:
    """Raise UsageError if a file that the command is to write is one that it reads, or one that it
    writes for another option, too.

    What it reads are its arguments, its other options that are paths, and --dataset.
    """
    params = [each for each in context.command.params if context.params.get(str(each.name))]
    written = [each for each in params if isinstance(each.type, OutPath)]
    others = [
        each
        for each in params
        if isinstance(each, click.Argument)
        or isinstance(each.type, click.Path)
        or each.type is DATASET
    ]
    for param in written:
        path = Path(context.params[str(param.name)])
        for other in others:
            if other is not param and any(_is_same(path, each) for each in _paths(other, context)):
                raise UsageError(
                    f"{path} would be overwritten: {_name_of(other)} is the same file",
                    expected=f"another file for {_name_of(param)}",
                )


def _paths(param: click.Parameter, context: click.Context) -> list[Path]:
    """The values of a parameter, one or several, as paths."""
    value = context.params[str(param.name)]
    return [Path(each) for each in (value if isinstance(value, tuple) else (value,))]


def _is_same(path: Path, other: Path) -> bool:
    """Whether two paths lead to the same file, which need not exist yet. A device, such as
    /dev/null, may be written twice."""
    try:
        if path.exists() and not path.is_file():
            return False
        if path.exists() and other.exists():  # links may lead to one file, too
            return path.samefile(other)
        return path.resolve() == other.resolve()
    except (OSError, RuntimeError):
        # a place that this user may not look into, or links in a circle: the command itself refuses
        # to read or write it, and says why
        return False


def _name_of(param: click.Parameter) -> str:
    """How the help calls a parameter: --out, or FILE."""
    if isinstance(param, click.Argument):
        return param.human_readable_name
    return max(param.opts, key=len)
