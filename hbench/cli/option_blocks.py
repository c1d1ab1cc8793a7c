"""Blocks of options: options that several verbs have in common, handed to each as one typed record.

    @dataclass(frozen=True)
    class Size:
        width: int
        height: int

    OPTIONS = [click.option("--width", type=int), click.option("--height", type=int)]
    SIZE = block("size", Size, OPTIONS)

A command below `@SIZE` has both options and takes `size`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from functools import reduce, wraps
from typing import Any, TypeVar

import click
from click.core import ParameterSource

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def with_options(
    options: Sequence[Callable[[CommandT], CommandT]],
) -> Callable[[CommandT], CommandT]:
    """Return a decorator that gives a command these options, decorators of click, in their order.
    The last is applied first, as with decorators above a function: click lists them so."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def block(
    parameter: str, record: type[Any], options: Sequence[Callable[[Any], Any]]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a command these options, and hands it their values as one
    record.

    Args:
        parameter: by which the command takes the record.
        record: a dataclass whose fields are called as the options' parameters.
        options: decorators of click.
    """
    names = [field.name for field in fields(record)]

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        """Put between click and the command a function that makes the record."""

        # with the name, the help and the options that were given to `command` already
        @wraps(command)
        def call(*arguments: Any, **values: Any) -> Any:
            # click hands over a value per option: the block's own become the fields of its record
            own = {name: values.pop(name) for name in names}
            return command(*arguments, **values, **{parameter: record(**own)})

        made: Callable[..., Any] = with_options(options)(call)
        return made

    return decorated


def given_among(parameters: Collection[str]) -> list[str]:
    """The options that were typed, of the command that runs, among those of these parameters. A
    default is no option that was given."""
    context = click.get_current_context()
    return [
        option.opts[0]
        for option in context.command.params
        if option.name in parameters
        and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]


def words_of(text: str | None) -> list[str]:
    """The words between the commas of an option."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]
