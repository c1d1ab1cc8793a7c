"""The command line: loads a verb when it is called, and turns errors into a message and an exit
code.
"""

import errno
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
from pathlib import Path
from typing import Any, NoReturn

import click

from hbench.cli.names import refuse_overwriting
from hbench.core import extras
from hbench.core.errors import (
    ConfigError,
    HBenchError,
    UsageError,
    closest,
    one_line,
    readable,
    shorten,
    visible,
)

VERBS = {
    "run": "embed datasets with models, and score them: one command",
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
    "audit": "find wrong labels, copies and doubtful names",
    "name": "give pictures a path in the tree, by vectors of names",
    "compare": "test the difference of two reports",
    "explain": "find the conventions that give somebody's number",
    "leaderboard": "show, add to, verify or export published and own rows",
    "tree": "show, validate, export or draw a label tree",
    "losses": "list the losses, their formulas and defaults",
    "recipes": "list the training recipes",
    "train": "train from a recipe",
    "detect": "train an object detector, and score it",
    "embed": "embed a dataset's images with a model",
    "search": "show what a model retrieves for any picture",
    "export": "write a model as ONNX",
    "cite": "print the BibTeX of a dataset, metric, loss or method",
    "info": "say what a bug report needs: versions, processor, folders",
    "hgldv2": "rebuild the super-categories of H-GLDv2, step by step",
}
PLUGINS = "hbench.verbs"  # the entry-point group of verbs of other packages
VARIABLES = {
    "HBENCH_HOME": "the folder of datasets, cache and own leaderboards, unless said below",
    "HBENCH_DATA": "downloaded and built datasets",
    "HBENCH_CACHE": "what can be made again: drawn glyphs, compiled code",
    "HBENCH_VERB_OPTION": "the default of an option, as HBENCH_EVALUATE_THREADS=4",
    "TORCH_HOME, HF_HOME": "where pretrained weights lie; HF_HUB_OFFLINE=1 asks no server",
    "HBENCH_GUARD": "0: show a defect as Python does, with its traceback",
    "NO_COLOR": "no colours",
}
# what to do after an error of the operating system, by its number
ADVICE_BY_ERRNO = {
    errno.EACCES: "name a place that this user may read and write",
    errno.EROFS: "name a place on a disk that can be written",
    errno.ENOSPC: "make room on the disk, or name a place on another",
}
CONTEXT = {
    "help_option_names": ["-h", "--help"],
    "auto_envvar_prefix": "HBENCH",
    "max_content_width": 110,
}


def module_of(verb: str) -> str:
    """Return the name of the module that defines a verb's `command`."""
    return f"hbench.cli.{verb.replace('-', '_')}"


def _set_at_the_root(context: click.Context, option: click.Parameter, value: bool) -> None:
    """Treat --quiet or --verbose after the verb like one before the verb: set it in the parameters
    of the outermost command, where both are read. A flag that is absent here must not reset one
    that was given before the verb, hence the `if`."""
    if value:
        context.find_root().params[str(option.name)] = True


def common_options() -> list[click.Option]:
    """Return the options that can be given before and after every verb."""
    return [
        click.Option(
            ["--quiet", "-q"],
            is_flag=True,
            help="No remarks and no progress; refusals are still said.",
        ),
        click.Option(
            ["--verbose", "-v"], is_flag=True, help="With a refusal, where in the code it was made."
        ),
    ]


class KeepingInputs(click.Context):
    """The context of a command whose function starts only if no file that it is to write is one
    that it reads."""

    def invoke(self, callback: Any, /, *arguments: Any, **values: Any) -> Any:
        """Call the function of the command, after the check."""
        refuse_overwriting(self)
        return super().invoke(callback, *arguments, **values)


def with_common_options(command: click.Command) -> click.Command:
    """Add to a command and its subcommands what all have in common, and return the command: the
    common options, and that no file is written over one that is read. If an option of the command
    itself has one of the spellings, such as -v, the common one is left out."""
    # the spellings of all options that the command has, such as "-v"
    known = {spelling for parameter in command.params for spelling in parameter.opts}
    for option in common_options():
        option.expose_value = False  # do not pass it to the command's function
        option.callback = _set_at_the_root  # as if it were given before the verb
        if not known.intersection(option.opts):
            command.params.append(option)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_common_options(below)
    else:
        command.context_class = KeepingInputs
    return command


class Verbs(click.Group):
    """The group of all verbs: those in hbench.cli.<verb> and those of other packages, from the
    entry points `hbench.verbs`. A verb is imported only when it is needed, so that help is
    instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the installed verbs without importing them: hbench's own in the order of VERBS, then
        those of other packages."""
        plugins = entry_points(group=PLUGINS).names
        return [
            verb for verb in VERBS if importlib.util.find_spec(module_of(verb)) or verb in plugins
        ] + sorted(plugins - set(VERBS))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of one verb, so that no command waits for the imports of others, and
        return its command. An unknown name raises click's UsageError, with a suggestion."""
        # a verb of VERBS that is in a separate package has no module here: it is an entry point of
        # the group PLUGINS, or is not installed
        if name in VERBS and importlib.util.find_spec(module_of(name)):
            command = importlib.import_module(module_of(name)).command
        elif name in (plugins := entry_points(group=PLUGINS)).names:
            command = plugins[name].load()
        elif name in VERBS:
            raise UsageError(
                f"the package of hbench {name} is not installed",
                fix="install hbench again: pip install hbench",
            )
        else:
            close = closest(name, VERBS)
            ctx.fail(
                f"No such command {name!r}."
                + (f" Did you mean {' or '.join(close)}?" if close else "")
            )

        assert isinstance(command, click.Command)  # an entry point may name anything
        return with_common_options(command)

    def invoke(self, ctx: click.Context) -> object:
        """Run a verb. With --verbose the traceback of an HBenchError is printed as well."""
        try:
            return super().invoke(ctx)
        except HBenchError:
            if ctx.params["verbose"]:
                traceback.print_exc()
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs, without importing them as click would, and the list of
        environment variables."""
        with formatter.section("Verbs"):
            formatter.write_dl(
                [
                    (verb, VERBS.get(verb, "from another package"))
                    for verb in self.list_commands(ctx)
                ]
            )
        with formatter.section("Environment"):
            formatter.write_dl([*VARIABLES.items()])


@click.group(cls=Verbs, context_settings=CONTEXT, params=[*common_options()])
@click.version_option(package_name="hbench", prog_name="hbench")
def group(**_: bool) -> None:
    """hbench: measure, train for, and publish hierarchical image retrieval.

    Switch completion of verbs, datasets, leaderboards and metrics on: eval
    "$(_HBENCH_COMPLETE=bash_source hbench)", or with zsh_source or fish_source.
    """


def main() -> None:
    """Run the command line. Errors of hbench and of the operating system become a message on stderr
    and an exit code: the functions `_end_…` print it and exit, so they never return. The same holds
    for a `sys.exit` in a user's own program.

    An unexpected error becomes one line and the exit code 70. With HBENCH_GUARD=0 it is raised
    instead, which tests use.
    """
    for stream in (sys.stdout, sys.stderr):
        # replace characters that the stream's encoding lacks, such as α in latin-1. In tests a
        # stream may be of another class
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")

    warnings.showwarning = _say_warning  # type: ignore[assignment]
    try:
        _refuse_other_bytes(sys.argv[1:])  # arguments that are not UTF-8
        # in standalone mode click would print its errors and exit itself
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
    except (OSError, SystemExit) as error:
        _end_by_system(error)
    except (click.Abort, KeyboardInterrupt):
        _end_interrupted()
    except Exception as error:  # the one guard behind all checks
        _end_unforeseen(error)


def _refuse_other_bytes(arguments: Sequence[str]) -> None:
    """Raise UsageError for an argument of the command line that is not UTF-8, since neither Arrow
    nor JSON can store it."""
    for argument in arguments:
        # Python represents bytes that are not UTF-8 as surrogates, which encode() replaces
        if argument.encode(errors="replace").decode() != argument:
            raise UsageError(
                "an argument is not UTF-8",
                expected="names in UTF-8",
                found=argument,
                fix="rename the file",
            )


def _end_refused(refusal: HBenchError) -> NoReturn:
    """Print an error on stderr, and exit with its exit code."""
    click.echo(f"hbench: {refusal}", err=True)
    sys.exit(refusal.exit_code)


def _end_by_system(error: OSError | SystemExit) -> NoReturn:
    """Exit after an error of the operating system, with its message, or after a `sys.exit`: with a
    message if that is in a user's own program, else with the exit code that it asks for."""
    if isinstance(error, SystemExit):
        _end_in_own_code(error)  # returns only if the error is from no user's program or plug-in
        raise error
    if error.errno == errno.ENAMETOOLONG:
        _end_refused(
            UsageError(
                "a name is longer than the name of a file can be",
                expected="at most 255 bytes between two slashes",
                found=shorten(Path(str(error.filename)).name),
            )
        )
    click.echo(f"hbench: {readable(visible(str(error)))}", err=True)
    if advice := ADVICE_BY_ERRNO.get(error.errno or 0):
        click.echo(f"  next:     {advice}", err=True)
    # close stdout now: Python flushes it on exit, which would fail again on a full disk. It is None
    # (AttributeError) in a process that was started without a stdout
    with suppress(OSError, AttributeError):
        sys.stdout.close()
    sys.exit(1)


def _say_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    """Print a warning of any library in one line, without Python's file and line; nothing with
    --quiet. It replaces `warnings.showwarning`."""
    # a warning may come while no command is running, so look at the command line itself
    if not {"-q", "--quiet"} & set(sys.argv):
        click.echo(f"hbench: {visible(str(message))}", err=True)


def _end_in_own_code(error: BaseException) -> None:
    """If an error passed through a user's own program (FILE.py:NAME) or a plug-in package, exit
    with a message that names its line: the error is no bug of hbench. Otherwise return."""
    from hbench.cli.environment import foreign_line

    if foreign := foreign_line(error):
        met = shorten(one_line(f"{type(error).__name__}: {error}"), 300)
        _end_refused(ConfigError(f"{foreign.whose} fails in {foreign.line}", found=met))


def _end_unforeseen(error: Exception) -> NoReturn:
    """Print an unexpected error and the command in one line, with --verbose also the traceback, and
    exit with 70, the code of an internal error (EX_SOFTWARE of sysexits.h)."""
    # Python 3.11 wraps an interrupt while a class is being created, as during imports
    if isinstance(error.__cause__, KeyboardInterrupt):
        _end_interrupted()
    if os.environ.get("HBENCH_GUARD") == "0":  # for developers, who need the traceback
        raise error
    if {"-v", "--verbose"} & set(sys.argv):
        traceback.print_exception(error)
    _end_in_own_code(error)  # returns only if the error is from no user's program or plug-in
    doing = shorten(one_line(" ".join(["hbench", *sys.argv[1:]])))
    met = shorten(one_line(f"{type(error).__name__}: {error}"), 300)
    click.echo(
        f"hbench: {doing} failed unexpectedly: {met}; this is a bug, please report it with the "
        "output of hbench info",
        err=True,
    )
    sys.exit(70)


def _end_interrupted() -> NoReturn:
    """Exit as is usual after Ctrl-C: with 128 plus the number of the signal, 2."""
    click.echo("hbench: interrupted", err=True)
    sys.exit(130)
