"""The steps as commands: one file per step in this folder, loaded when it is called; hbench_hgldv2.steps lists them."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import click

from hbench.cli import CONTEXT, refuse_gone, with_habits
from hbench.core.errors import closest
from hbench_hgldv2.steps import STEPS


class StepGroup(click.Group):
    """A group whose commands live in hbench_hgldv2.cli.<step>."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(STEPS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        refuse_gone(f"hgldv2 {name}")
        if name not in STEPS:
            close = closest(name, STEPS)
            ctx.fail(f"No such step {name!r}." + (f" Did you mean {' or '.join(close)}?" if close else ""))
        command = importlib.import_module(f"hbench_hgldv2.cli.{name}").command
        assert isinstance(command, click.Command)
        command.epilog = STEPS[name].files
        return with_habits(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Steps, in order"):
            formatter.write_dl([(name, step.does) for name, step in STEPS.items()])


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
    from hbench_hgldv2.work_folder import Work

    ctx.obj = Work(work)
