"""Blocks of options: options that several verbs share, passed to each command as one typed record.

    @dataclass(frozen=True)
    class Size:
        width: int
        height: int

    OPTIONS = [click.option("--width", type=int), click.option("--height", type=int)]
    SIZE = block("size", Size, OPTIONS)

A command decorated with `@SIZE` has both options and a parameter `size`.
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
    """Return a decorator that adds click's option decorators to a command. They are applied from
    the last to the first, like decorators above a function, so that help lists them in order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def block(
    parameter: str, record: type[Any], options: Sequence[Callable[[Any], Any]]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds options to a command, and passes their values to it as one
    record.

    Args:
        parameter: the command's parameter for the record.
        record: a dataclass whose fields are named like the options' parameters.
        options: click's option decorators.
    """
    names = [field.name for field in fields(record)]

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a command in a function that makes the record from the options' values."""

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
    """Return which of these parameters the user set on the command line of the running command, as
    option names. Defaults do not count."""
    context = click.get_current_context()
    return [
        option.opts[0]
        for option in context.command.params
        if option.name in parameters
        and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]


def words_of(text: str | None) -> list[str]:
    """Split the value of an option at commas."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]
