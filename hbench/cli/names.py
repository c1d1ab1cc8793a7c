"""Kinds of words on the command line: names that are known, refused with what there is, and
completed by the shell.

Names are listed only when one is given or asked for, so that help stays instant. Switch completion
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
    """A path that is none of the verb's options: `--by-query --json` names no file, it forgets
    one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse the name of an option, which click takes for a file where that was left out."""
        options = {
            name
            for each in (ctx.command.params if ctx else ())
            for name in (*each.opts, *each.secondary_opts)
        }
        # a short word such as -o is left alone: a file may be called so, and - is stdin
        if str(value) in options and str(value).startswith("--"):
            self.fail(f"it needs a file, and the next word is the option {value}", param, ctx)
        return super().convert(value, param, ctx)


FILE = FilePath(path_type=Path)
FOLDER = FilePath(path_type=Path, file_okay=False)


class Known(click.ParamType):  # type: ignore[type-arg]  # a generic class in the stubs alone
    """A text whose names the shell completes; what else it may be (a file, a pattern) its verb
    decides. `listed` returns the names; `separator` stands between several of them.
    """

    def __init__(self, name: str, listed: Listed, *, separator: str = "") -> None:
        self.name = name
        self.listed = listed
        self.separator = separator

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the last name of a list, of which the word so far, `incomplete`, may have some
        already; where no known name begins so, the shell completes files."""
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
    """One of the listed names, perhaps with options in parentheses; another is a usage error that
    lists them.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text if it is a listed name; `param` and `ctx`, click's own, let the refusal
        name the option. `listed`: gives the names, read only now, since loading them takes time."""
        names = list(self.listed())
        if str(value).partition("(")[0] not in names:  # in brackets stand a metric's settings
            close = closest(str(value), names)
            hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
            self.fail(f"{value!r} is not one of {', '.join(names)}{hint}", param, ctx)
        return str(value)


class SimilarityName(Known):
    """A similarity with its options, refused as `hbench.engine.similarity.named` does, before any
    file is read.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the similarity's name with its options, as hbench writes them; `param` and `ctx`,
        click's own, let the refusal name the option."""
        from hbench.engine.similarity import named

        try:
            return named(str(value))[0]
        except UsageError as error:
            self.fail(str(error), param, ctx)


def _names_in(module: str, registry: str) -> Listed:
    """Return a function that lists the names in a registry, called `registry` in the module
    `module`; it imports the module only when it is called, so that help is instant."""
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
