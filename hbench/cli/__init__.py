"""Runs the command line: verbs are loaded when called, and refusals become a message and an exit
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
from typing import NoReturn

import click

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
PLUGINS = "hbench.verbs"  # the entry-point group of the verbs that other packages bring
VARIABLES = {
    "HBENCH_HOME": "the folder of datasets, cache and own leaderboards, unless said below",
    "HBENCH_DATA": "downloaded and built datasets",
    "HBENCH_CACHE": "what can be made again: drawn glyphs, compiled code",
    "HBENCH_VERB_OPTION": "the default of an option, as HBENCH_EVALUATE_THREADS=4",
    "TORCH_HOME, HF_HOME": "where pretrained weights lie; HF_HUB_OFFLINE=1 asks no server",
    "HBENCH_GUARD": "0: show a defect as Python does, with its traceback",
    "NO_COLOR": "no colours",
}
CONTEXT = {
    "help_option_names": ["-h", "--help"],
    "auto_envvar_prefix": "HBENCH",
    "max_content_width": 110,
}


def module_of(verb: str) -> str:
    """Return the name of the module that has a verb's `command`."""
    return f"hbench.cli.{verb.replace('-', '_')}"


def _set_at_the_root(context: click.Context, option: click.Parameter, value: bool) -> None:
    """Take a flag that stands behind its verb for one of hbench itself: write it into the
    parameters of the outermost command, where --quiet and --verbose are read. A flag that is not
    given must not take one back that stands before the verb."""
    if value:
        context.find_root().params[str(option.name)] = True


def common_options() -> list[click.Option]:
    """The options that every verb takes, before its name and behind it."""
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


def with_common_options(command: click.Command) -> click.Command:
    """Add the options that every verb takes to a command, and to those below it; return it. An
    option of the command's own with the same name, such as its own -v, stays."""
    known = {option for parameter in command.params for option in parameter.opts}
    for option in common_options():
        option.expose_value = False  # the command's function does not take it
        option.callback = _set_at_the_root  # as if said before the verb
        if not known.intersection(option.opts):
            command.params.append(option)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_common_options(below)
    return command


class Verbs(click.Group):
    """A group whose verbs live in hbench.cli.<verb> or in the packages that bring them by the entry
    point `hbench.verbs`; each is imported only when needed, so that help is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the verbs that are installed, without importing them: hbench's own in the order of
        the help, then those of other packages."""
        plugins = entry_points(group=PLUGINS).names
        return [
            verb for verb in VERBS if importlib.util.find_spec(module_of(verb)) or verb in plugins
        ] + sorted(plugins - set(VERBS))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of one verb, so that no command waits for the packages of the
        others. A name of none ends with the names that are near it."""
        # a verb of hbench's own may be in another package, which need not be installed
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

        assert isinstance(command, click.Command)
        return with_common_options(command)

    def invoke(self, ctx: click.Context) -> object:
        """Print the whole traceback of an error of hbench where --verbose asks for it."""
        try:
            return super().invoke(ctx)
        except HBenchError:
            if ctx.params["verbose"]:
                traceback.print_exc()
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what click would, without importing the verbs, and the environment variables."""
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
    """Run the command line; what is refused, by hbench or by the system, becomes a message on
    stderr and an exit code.

    An unexpected error becomes one line and exit code 70 (HBENCH_GUARD=0 lets it pass, as the tests
    do).
    """
    for stream in (sys.stdout, sys.stderr):
        # letters that the stream's encoding lacks, such as α in latin-1, are replaced; a test's
        # stream may be of another kind
        if isinstance(stream, io.TextIOWrapper):
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
    except (OSError, SystemExit) as error:
        _end_by_system(error)
    except (click.Abort, KeyboardInterrupt):
        _end_interrupted()
    except Exception as error:  # the one guard behind all checks
        _end_unforeseen(error)


def _refuse_other_bytes(arguments: Sequence[str]) -> None:
    """Refuse names that are not UTF-8 among the `arguments` of the command line: neither Arrow nor
    a report in JSON can hold them."""
    for argument in arguments:
        # Python holds bytes that are not UTF-8 as surrogates, which UTF-8 cannot write
        if argument.encode(errors="replace").decode() != argument:
            raise UsageError(
                "an argument is not UTF-8",
                expected="names in UTF-8",
                found=argument,
                fix="rename the file",
            )


def _end_refused(refusal: HBenchError) -> NoReturn:
    """Say on stderr what was refused and why, and end with the exit code of its kind."""
    click.echo(f"hbench: {refusal}", err=True)
    sys.exit(refusal.exit_code)


def _end_by_system(error: OSError | SystemExit) -> NoReturn:
    """End for what the system refused, with its reason, or for a `sys.exit` in a program of the
    user's own."""
    if isinstance(error, SystemExit):
        _end_in_own_code(error)
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
    # Python writes what stdout still holds once more as it ends: to a full disk it would fail again
    with suppress(OSError, AttributeError):
        sys.stdout.close()
    sys.exit(1)


def _say_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    """Say a warning of any library in one line, in place of Python's with file and line; not with
    --quiet. The arguments are those of `warnings.showwarning`. It may come while no command runs,
    so the words of the command line themselves are asked."""
    if not {"-q", "--quiet"} & set(sys.argv):
        click.echo(f"hbench: {visible(str(message))}", err=True)


def _end_in_own_code(error: BaseException) -> None:
    """End with the line of a user's own program, FILE.py:NAME, or of a package that adds to hbench,
    where an error came through one; return where it came through none. Such an error is theirs to
    mend, and no bug of hbench."""
    from hbench.cli.environment import foreign_line

    if foreign := foreign_line(error):
        met = shorten(one_line(f"{type(error).__name__}: {error}"), 300)
        _end_refused(ConfigError(f"{foreign.whose} fails in {foreign.line}", found=met))


def _end_unforeseen(error: Exception) -> NoReturn:
    """Say in one line what was being done and which error came of it; with --verbose where, too.
    The exit code is that of an internal error (EX_SOFTWARE of sysexits.h)."""
    # Python 3.11 wraps what interrupts the making of a class, as while a library is imported.
    if isinstance(error.__cause__, KeyboardInterrupt):
        _end_interrupted()
    if os.environ.get("HBENCH_GUARD") == "0":  # for developers, who need the traceback
        raise error
    if {"-v", "--verbose"} & set(sys.argv):
        traceback.print_exception(error)
    _end_in_own_code(error)
    doing = shorten(one_line(" ".join(["hbench", *sys.argv[1:]])))
    met = shorten(one_line(f"{type(error).__name__}: {error}"), 300)
    click.echo(
        f"hbench: {doing} failed unexpectedly: {met}; this is a bug, please report it with the "
        "output of hbench info",
        err=True,
    )
    sys.exit(70)


def _end_interrupted() -> NoReturn:
    """End as programs do after Ctrl-C: 128 and the number of the signal, 2."""
    click.echo("hbench: interrupted", err=True)
    sys.exit(130)
