"""Runs the command line: verbs are loaded when called, and refusals become a message and an exit code."""

import importlib
import importlib.util
import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from typing import NoReturn

import click

from hbench.core import extras
from hbench.core.errors import HBenchError, UsageError, closest, one_line, readable, shorten, visible

VERBS = {
    "demo": "score a baseline on the built-in benchmark, in a minute",
    "datasets": "list the benchmarks, or show one's card",
    "download": "fetch a benchmark's files, resumably and verified",
    "build": "turn raw annotations, or your own table, into a dataset",
    "evaluate": "score an embedding or ranking file",
    "evaluate-all": "score every embedding file of a folder, each compared with the best",
    "look": "show what a model retrieves, and its mistakes, as pictures",
    "plot": "draw the pictures of a paper: per level, mistakes, curves, leaderboards, trees",
    "report": "make pages of evaluations: scores, mistakes, classes, queries",
    "site": "make pages of all leaderboards: sort, filter, sources, exports",
    "gap": "measure the decomposability gap of an embedding file",
    "compare": "test the difference of two reports",
    "leaderboard": "show, add to, verify or export published and own rows",
    "tree": "show, validate, export or draw a label tree",
    "losses": "list the losses, their formulas and defaults",
    "recipes": "list the training recipes",
    "train": "train from a recipe",
    "detect": "train an object detector, and score it",
    "embed": "embed a dataset's images with a model",
    "cite": "print the BibTeX of a dataset, metric, loss or method",
    "info": "say what a bug report needs: versions, processor, folders",
    "hgldv2": "rebuild the super-categories of H-GLDv2, step by step",
}
PLUGINS = "hbench.verbs"  # the entry-point group of the verbs that other packages bring
GONE = {  # verbs, kinds of plots and options that once were, and what to use instead
    "self-check": "hbench info --check",
    "evaluate --each": "hbench evaluate-all FOLDER --dataset NAME --out REPORTS",
    "tree draw --title": "the picture is named after its source",
    "tree draw --colour-by": "hbench plot tree, with --metric and --by-query, colours by values",
    "serve": "open DIR/index.html, or: python -m http.server --bind 127.0.0.1 --directory DIR",
    "study": "in a clone of hbench: python -m studies run NAME",
    "plot --over": "in a clone of hbench: python -m studies plot sweep",
    "plot pareto glyphs-study": "in a clone of hbench: python -m studies plot arms glyphs-study",
    "plot gap": "in a clone of hbench: python -m studies plot gap",
    "hgldv2 explain": "hbench hgldv2 review; on its page, i shows the decisions about a label",
    "hgldv2 diff": "hbench hgldv2 agreement FIRST SECOND",
    "hgldv2 review --sheet": "decide on the page review.html, and export decisions.yaml there",
    "hgldv2 review --images": "open the categories on Commons that review.html names as examples of a label",
    "hgldv2 review --by": "write your initials on the page review.html",
    "plot sweep": "in a clone of hbench: python -m studies plot sweep",
}
VARIABLES = {
    "HBENCH_HOME": "the folder of datasets, cache and own leaderboards, unless said below",
    "HBENCH_DATA": "downloaded and built datasets",
    "HBENCH_CACHE": "what can be made again: drawn glyphs, compiled code",
    "HBENCH_VERB_OPTION": "the default of an option, as HBENCH_EVALUATE_THREADS=4",
    "TORCH_HOME, HF_HOME": "where pretrained weights lie; HF_HUB_OFFLINE=1 asks no server",
    "HBENCH_GUARD": "0: show a defect as Python does, with its traceback",
    "NO_COLOR": "no colours",
}
CONTEXT = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "HBENCH", "max_content_width": 110}


def refuse_gone(name: str) -> None:
    """Raise UsageError for a verb, kind or option of GONE."""
    if name in GONE:
        raise UsageError(f"hbench {name} is gone", fix=GONE[name])


def module_of(verb: str) -> str:
    """The module of a verb."""
    return f"hbench.cli.{verb.replace('-', '_')}"


def _set_at_the_root(context: click.Context, option: click.Parameter, value: bool) -> None:
    """Take a habit that stands behind its verb for one of hbench itself."""
    if value:
        context.find_root().params[str(option.name)] = True


def habits() -> list[click.Option]:
    """The options that every verb takes, before its name and behind it."""
    return [
        click.Option(["--quiet", "-q"], is_flag=True, help="No remarks and no progress; refusals are still said."),
        click.Option(["--verbose", "-v"], is_flag=True, help="With a refusal, where in the code it was made."),
    ]


def gone_option(name: str) -> click.Option:
    """The hidden option that a name of GONE ends in; whoever gives it is told what to use instead."""

    def refuse(_context: click.Context, _option: click.Parameter, value: str | bool | None) -> None:
        if value:
            refuse_gone(name)

    is_flag = name == "evaluate --each" or None  # the others took a value
    return click.Option([name.split()[-1]], is_flag=is_flag, expose_value=False, hidden=True, callback=refuse)


def with_habits(command: click.Command, words: str) -> click.Command:
    """The command that these words call, and those below it, with the habits of all verbs and the options that are gone."""
    known = {option for parameter in command.params for option in parameter.opts}
    gone = [gone_option(name) for name in GONE if name.startswith(f"{words} --")]
    behind = habits()
    for habit in behind:
        habit.expose_value, habit.callback = False, _set_at_the_root
    command.params += [option for option in [*behind, *gone] if not known.intersection(option.opts)]
    for name, below in command.commands.items() if isinstance(command, click.Group) else ():
        with_habits(below, f"{words} {name}")
    return command


class Verbs(click.Group):
    """A group whose verbs live in hbench.cli.<verb> or in the packages that bring them by the entry point `hbench.verbs`; each is
    imported only when needed, so that help is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        plugins = entry_points(group=PLUGINS).names
        return [verb for verb in VERBS if importlib.util.find_spec(module_of(verb)) or verb in plugins] + sorted(
            plugins - set(VERBS)
        )

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        refuse_gone(name)
        if name in VERBS and importlib.util.find_spec(module_of(name)):
            command = importlib.import_module(module_of(name)).command
        elif name in (plugins := entry_points(group=PLUGINS)).names:
            command = plugins[name].load()
        elif name in VERBS:
            raise UsageError(
                f"the package of hbench {name} is not installed", fix="install hbench again: pip install hbench"
            )
        else:
            close = closest(name, VERBS)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {' or '.join(close)}?" if close else ""))
        assert isinstance(command, click.Command)
        return with_habits(command, name)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except HBenchError:
            if ctx.params["verbose"]:
                traceback.print_exc()
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, VERBS.get(verb, "from another package")) for verb in self.list_commands(ctx)])
        with formatter.section("Environment"):
            formatter.write_dl([*VARIABLES.items()])


@click.group(cls=Verbs, context_settings=CONTEXT, params=[*habits()])
@click.version_option(package_name="hbench", prog_name="hbench")
def group(**_: bool) -> None:
    """hbench: measure, train for, and publish hierarchical image retrieval.

    Switch completion of verbs, datasets, leaderboards and metrics on: eval "$(_HBENCH_COMPLETE=bash_source hbench)",
    or with zsh_source or fish_source.
    """


def main() -> None:
    """Run the command line; what is refused, by hbench or by the system, becomes a message on stderr and an exit code.

    What nobody foresaw becomes one line and exit code 70 (HBENCH_GUARD=0 lets it pass, as the tests do).
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # letters that its encoding lacks, such as latin-1, are replaced
            stream.reconfigure(errors="replace")
    warnings.showwarning = _say_warning  # type: ignore[assignment]
    try:
        _refuse_other_bytes(sys.argv[1:])
        group(prog_name="hbench", standalone_mode=False)
    except HBenchError as error:
        _end_refused(error)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        if (refusal := extras.missing(error)) is not None:
            _end_refused(refusal)
        _end_unforeseen(error)  # the module belongs to no extra
    except OSError as error:
        click.echo(f"hbench: {readable(visible(str(error)))}", err=True)
        with suppress(OSError, AttributeError):
            sys.stdout.close()  # what a full one still holds back is not tried again
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        _end_interrupted()
    except Exception as error:  # the one guard behind all checks
        _end_unforeseen(error)


def _refuse_other_bytes(arguments: Sequence[str]) -> None:
    """Refuse names that are not UTF-8: neither Arrow nor a report in JSON can hold them."""
    for argument in arguments:
        if argument.encode(errors="replace").decode() != argument:
            raise UsageError(
                "an argument is not UTF-8", expected="names in UTF-8", found=argument, fix="rename the file"
            )


def _end_refused(refusal: HBenchError) -> NoReturn:
    click.echo(f"hbench: {refusal}", err=True)
    sys.exit(refusal.exit_code)


def _say_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    if not {"-q", "--quiet"} & set(sys.argv):
        click.echo(f"hbench: {visible(str(message))}", err=True)


def _end_unforeseen(error: Exception) -> NoReturn:
    """Say in one line what was being done and what was met; with --verbose where, too."""
    # Python 3.11 wraps what interrupts the making of a class, as while a library is imported.
    if isinstance(error.__cause__, KeyboardInterrupt):
        _end_interrupted()
    if os.environ.get("HBENCH_GUARD") == "0":
        raise error
    if {"-v", "--verbose"} & set(sys.argv):
        traceback.print_exception(error)
    doing = shorten(one_line(" ".join(["hbench", *sys.argv[1:]])))
    met = shorten(one_line(f"{type(error).__name__}: {error}"), 300)
    click.echo(
        f"hbench: {doing} met what nobody foresaw: {met}; please report it with the output of hbench info", err=True
    )
    sys.exit(70)


def _end_interrupted() -> NoReturn:
    click.echo("hbench: interrupted", err=True)
    sys.exit(130)
