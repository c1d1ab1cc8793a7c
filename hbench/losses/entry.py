"""Defines the entry of a loss: the function that builds the loss, its formula, its paper, and the
defaults of its parameters.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from torch import nn

from hbench.core.arguments import fitted
from hbench.core.errors import ConfigError, closest
from hbench.losses.batch_loss import BatchLoss

REQUIRED = inspect.Parameter.empty
LARGEST = 1e18  # value of a parameter, which fits into an integer of 64 bits


@dataclass(frozen=True)
class LossEntry:
    """An entry of the table of losses. Calling the entry builds the loss.

    Attributes:
        build: build(parameters) -> nn.Module.
        formula: of the loss, in one line.
        paper: where the loss was published, in words.
        parameters: {name: default, or REQUIRED}.
    """

    build: Callable[[Mapping[str, Any]], nn.Module]
    formula: str
    paper: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def refuse_unknown(self, name: str, params: Mapping[str, Any]) -> None:
        """Raise ConfigError for a parameter that the loss does not have, or whose value has another
        type than its default. `name`: of the loss. `params`: values by parameter name."""
        for parameter, value in params.items():
            if parameter not in self.parameters:
                close = " or ".join(map(repr, closest(parameter, self.parameters)))
                raise ConfigError(
                    f"loss {name!r} has no parameter {parameter!r}",
                    expected=_listing(self.parameters) if self.parameters else "no parameters",
                    fix=f"did you mean {close}?" if close else None,
                )
            _check_kind(name, parameter, value, self.parameters[parameter])

    def __call__(self, name: str, params: Mapping[str, Any]) -> nn.Module:
        """Build the loss with `params` in place of defaults. Raises ConfigError for parameters that
        the loss does not have or cannot use. `name`: of the loss, for its repr and for errors.
        """
        self.refuse_unknown(name, params)
        missing = [
            p for p, default in self.parameters.items() if default is REQUIRED and p not in params
        ]
        if missing:
            # the fix tells how to set them in a recipe, and in Python
            raise ConfigError(
                f"loss {name!r} needs {' and '.join(missing)}",
                expected=f"a value of {' and '.join(missing)}",
                found=", ".join(params) or "no parameters",
                fix=" ".join(f"--set losses.{name}.params.{p}=…" for p in missing)
                + f" of a recipe; build_loss({name!r}, {', '.join(f'{p}=…' for p in missing)})",
            )

        parameters = {**{p: d for p, d in self.parameters.items() if d is not REQUIRED}, **params}
        loss = self.build(parameters)
        if isinstance(loss, BatchLoss):  # the repr shows the arguments that would build it again
            loss.spelling = ", ".join(
                [repr(name), *(f"{key}={value!r}" for key, value in parameters.items())]
            )
        # a loss inside, such as that of a memory, may have been built by a name of its own
        for part in loss.modules():
            if isinstance(part, BatchLoss) and not part.called:
                part.called = name
        return loss


def entry_of(function: Callable[..., nn.Module], formula: str, paper: str) -> LossEntry:
    """Make an entry from a function or class whose keyword arguments are the loss's parameters."""
    return LossEntry(
        build=lambda params: function(**fitted(function, params)),
        formula=formula,
        paper=paper,
        parameters=parameters_of(function),
    )


def parameters_of(*functions: Callable[..., Any]) -> dict[str, Any]:
    """Collect the arguments of several functions, with their defaults."""
    signatures = [inspect.signature(function).parameters for function in functions]
    return {
        name: parameter.default for signature in signatures for name, parameter in signature.items()
    }


def chosen(function: Callable[..., Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Select the parameters that the function has, converted as it expects them."""
    names = inspect.signature(function).parameters
    return fitted(function, {name: params[name] for name in names if name in params})


def _listing(known: Mapping[str, Any]) -> str:
    """The parameters of a loss with their defaults, as an error lists them. `known`: {name:
    default, or REQUIRED}."""
    return "one of " + ", ".join(
        name if default is REQUIRED else f"{name}={default!r}" for name, default in known.items()
    )


def _check_kind(name: str, parameter: str, value: Any, default: Any) -> None:
    """Raise ConfigError if a `value` does not fit the `default` of its parameter. If the default is
    a bool, the value must be one; if it is a number, the value must be a number between −LARGEST
    and LARGEST. Parameters with other defaults are checked by the loss. `name`: of the loss, for
    the error."""
    if isinstance(default, bool):  # checked before numbers, since a bool is an int in Python
        fits = isinstance(value, bool)
        kind = "true or false"
    elif isinstance(default, int | float):
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        fits = is_number and abs(value) < LARGEST
        kind = "a number" if not is_number else f"a finite number, at most {LARGEST:g}"
    else:
        return
    if not fits:
        raise ConfigError(
            f"{parameter} of loss {name!r} is not {kind}", expected=kind, found=repr(value)
        )
