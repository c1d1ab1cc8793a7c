"""Makes the verb `hbench hgldv2` from the table of steps, and the options of each step from the
signature of its `run`.

A keyword-only parameter becomes an option, any other parameter an argument. The annotation holds
the type, the help text and, if needed, the placeholder of the value: `k: Annotated[int, "Number of
clusters."] = 140`.
"""

import importlib
import inspect
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import click

from hbench.cli import CONTEXT, with_common_options
from hbench.core.errors import closest
from hbench_hgldv2.steps import STEPS

# parameter -> the name of its option, where the two differ
FLAGS = {"as_json": ["--json"], "out": ["--out", "-o"]}


class StepGroup(click.Group):
    """A group of commands, one per step. A step's module is loaded only when its command is
    called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(STEPS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Load a step's module and return its command. An unknown name is refused with the nearest
        names."""
        if name not in STEPS:
            close = closest(name, STEPS)
            ctx.fail(
                f"No such step {name!r}."
                + (f" Did you mean {' or '.join(close)}?" if close else "")
            )
        return with_common_options(command_of(name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Steps, in order"):
            formatter.write_dl([(name, step.does) for name, step in STEPS.items()])


def command_of(name: str) -> click.Command:
    """Make the command of the step `name` from the signature of its `run`. The first parameter of
    `run` is the work folder."""
    run = importlib.import_module(f"hbench_hgldv2.{STEPS[name].module}").run
    hints = get_type_hints(run, include_extras=True)
    # the first parameter is the work folder, an option that all steps share
    _, *parameters = inspect.signature(run).parameters.values()
    options = [_option(parameter, hints[parameter.name]) for parameter in parameters]

    @click.pass_obj
    def call(work: Path, /, **values: Any) -> None:
        """Run the step in the work folder, which the command group holds."""
        run(work, **values)

    return click.Command(
        name, callback=call, params=options, help=run.__doc__, epilog=STEPS[name].files
    )


def _option(parameter: inspect.Parameter, hint: Any) -> click.Parameter:
    """Make an option from a keyword-only parameter of a step, an argument from any other parameter.

    `hint` is a type, or Annotated[type, help] or Annotated[type, help, placeholder of the value].
    The help of an argument is not used, since click shows none.
    """
    help_text = ""
    placeholder = None
    if get_origin(hint) is Annotated:
        hint, help_text, *rest = get_args(hint)
        placeholder = rest[0] if rest else None

    # the names on the command line, from FLAGS where they differ from the parameter's; the last
    # name is the parameter that receives the value
    names = [*FLAGS.get(parameter.name, [f"--{parameter.name.replace('_', '-')}"]), parameter.name]
    if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:  # a positional argument
        return click.Argument([parameter.name], type=_type(hint))
    if hint is bool:
        return click.Option(names, is_flag=True, help=help_text)

    is_repeated = get_origin(hint) is Sequence  # such as Sequence[Path]: may be given repeatedly
    is_required = parameter.default is inspect.Parameter.empty
    return click.Option(
        names,
        type=_type(get_args(hint)[0] if is_repeated else hint),
        multiple=is_repeated,
        required=is_required,
        default=None if is_required else parameter.default,
        show_default=not is_required and parameter.default not in (None, ()),
        metavar=placeholder,
        help=help_text,
    )


def _type(hint: Any) -> Any:
    """Translate an annotation such as int, Path | None, Literal["train", "index"] or tuple[str,
    Path] to a type of click. Whole numbers must not be negative, since those of the steps are
    counts and seeds."""
    parts = get_args(hint)
    if isinstance(hint, UnionType):  # X | None, where None means that the option was not given
        return _type(parts[0])
    if get_origin(hint) is Literal:
        return click.Choice(parts)
    if get_origin(hint) is tuple:
        return tuple(map(_type, parts))
    # click understands any other type, such as str, as it is
    return {Path: click.Path(path_type=Path), int: click.IntRange(min=0)}.get(hint, hint)


@click.group(cls=StepGroup, context_settings=CONTEXT)
@click.option(
    "--work",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("hgldv2-work"),
    show_default=True,
    help="Folder of the steps' files.",
)
@click.pass_context
def group(ctx: click.Context, work: Path) -> None:
    """Rebuild the super-categories of H-GLDv2, from Wikimedia to a label tree.

    \b
    hbench hgldv2 --work w scrape --raw gldv2/raw --contact you@example.org
    hbench hgldv2 --work w clean
    """
    ctx.obj = work
