"""Makes a row's file again with the command that the row names, and compares the two.

Only hbench's own commands are run, without programs or recipes of a stranger, and never in a shell.
If the new vectors are equal bit by bit, the content is that of the row. Another type of processor
rounds differently, and training amplifies this. Then the scores are compared: they may differ as
much as those of another seed, if the row states its deviation between seeds.

>>> command_of("hbench train glyphs-happier --set seed=1", Path("out"), "test.parquet")
['train', 'glyphs-happier', '--set', 'seed=1', '--out', 'out']
>>> command_of("hbench embed timm:resnet18 -d glyphs", Path("out"), "r18.parquet")[-1]
'out/r18.parquet'
"""

import math
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from types import FrameType

from hbench.boards import Row, RunProvenance
from hbench.boards.proof.verification import CONTENT, ROUNDING, Check, is_within
from hbench.core.errors import HBenchError, UsageError

OPTIONS = {  # the options of each command that a row may use
    "train": {"--set", "--threads"},
    "embed": {
        "-d",
        "--dataset",
        "--split",
        "--size",
        "--weights",
        "--key-map",
        "--scales",
        "--flip",
        "--batch",
        "--precision",
        "--skip-unreadable",
        "--workers",
    },
    "demo": {"--dim"},
}
STRANGE = (".py", "://")  # parts of words that name programs, or addresses
SURE = 0.95  # the chance that all metrics of a further seed are within their limits
SAME = "the same content"
EQUAL = "another content, equal scores"
WITHIN = "another content, scores within what another {} gives"
BEYOND = "another content, scores beyond what another {} gives"


def command_of(made: str, out: Path, file: str) -> list[str]:
    """Return the words of a row's command, without "hbench", and with an option for the output.

    A row may come from anybody. So the verb (the word after "hbench") must be a key of OPTIONS, and
    every option must be one of this verb's: these run nothing but hbench's own code. A word must
    not contain a part in STRANGE, which names a program or an address. Raises UsageError for any
    other command.

    Args:
        made: the command in the row.
        out: the folder for the output.
        file: the name of the output file in this folder, for verbs that write a file.
    """
    try:
        words = shlex.split(made)
    except ValueError:  # an unclosed quote
        words = []
    verb = words[1] if len(words) > 1 and words[0] == "hbench" else ""
    if verb not in OPTIONS:
        raise UsageError(
            "the row's command is none that is run again",
            expected=f"hbench {', '.join(OPTIONS)} …",
            found=made,
        )

    for before, word in pairwise(words[1:]):  # every word after the verb, and the one before it
        option = word.partition("=")[0]  # --size for --size=224
        # A recipe in a file may name programs, while hbench's own recipes have plain names. The
        # value of --set is no recipe, so it may have a slash.
        is_value = before == "--set"
        is_recipe = verb == "train" and not is_value and ("/" in word or word.endswith(".toml"))
        is_strange = is_recipe or any(part in word for part in STRANGE)
        if is_strange or (word.startswith("-") and option not in OPTIONS[verb]):
            raise UsageError(
                "the row's command has a word that is not run for a stranger",
                found=word,
                fix="read it, and run it yourself; verify NAME METHOD --embeddings FILE compares",
            )
    target = out / file if verb == "embed" else out  # the other verbs write into a folder
    return [*words[1:], "--out", str(target)]


def typed(run: RunProvenance) -> str:
    """The command of a run as a user types it. `embed` needs the name of its output file, which the
    command in a row does not contain."""
    assert run.made is not None
    verb = "".join(run.made.split()[1:2])
    return f"{run.made} --out {shlex.quote(Path(run.file).name)}" if verb == "embed" else run.made


def make(row: Row, out: Path) -> Path:
    """Run the command of a row, and return the file that it made in the folder `out`.

    Raises UsageError if the row has no command, or one that is not run for a stranger; HBenchError,
    with the exit code of the command, if the command fails or makes no such file. The command's own
    messages are printed before that.
    """
    if row.run is None or row.run.made is None:
        raise UsageError(
            f"the row of {row.method} does not say how it was made",
            expected='made = "hbench train …" in its run',
            fix="hbench leaderboard add … --replace --made 'hbench train …' says it of a row of "
            "yours",
        )

    # only the name of the row's file, so that the row cannot choose a folder
    words = command_of(row.run.made, out, Path(row.run.file).name)
    code = _exit_code_of([sys.executable, "-m", "hbench", *words])
    made = out / Path(row.run.file).name
    if code or not made.exists():
        note = f"; the row says: {row.run.note}" if row.run.note else ""
        error = HBenchError(
            f"the command of {row.method} did not make {made.name} (exit code {code})",
            found=shlex.join(["hbench", *words]),
            fix=f"it says above what it lacks; files that it names lie in this folder{note}",
        )
        error.exit_code = code or error.exit_code  # that of the command, if it failed
        raise error
    return made


def _exit_code_of(command: Sequence[str]) -> int:
    """Run a command to its end, and return its exit code. The command's stdout is not shown, since
    this process prints its own results there. On SIGTERM, the command is ended first, and then this
    process by `sys.exit`; if this process is interrupted in another way, the command is killed.
    """
    signals: list[int] = []
    # the process, once it has started: the handler may be called before
    started: list[subprocess.Popen[bytes]] = []

    def end(number: int, _frame: FrameType | None) -> None:
        """Pass the signal on to the command, and remember it for this process."""
        signals.append(number)
        for process in started:
            process.terminate()

    former = signal.signal(signal.SIGTERM, end)
    try:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        started.append(process)
        if signals:  # the signal came while the process was being started
            process.terminate()
        code = process.wait()
    except BaseException:  # such as an interrupt by the user
        for process in started:
            process.kill()
            process.wait()
        raise
    finally:
        signal.signal(signal.SIGTERM, former)
    if signals:
        sys.exit(128 + signals[0])  # the exit code of a process that a signal ended, as in a shell
    return code


def outcome(row: Row, checks: Sequence[Check]) -> tuple[str, bool]:
    """Return the outcome of comparing a row with its remade file, in words, and whether the row
    holds. `checks` compare each score, and each other field that differs.

    The row holds if the scores are as close as those of another run. For the same content (ids and
    vectors), that is a run on another processor. For another content, it is a run with another seed
    if the row states the deviation between seeds, else one on another processor.
    """
    wrong = [check for check in checks if check.differs]
    if not wrong:
        return SAME, True
    # CONTENT: the fields that can identify a file, of which a row has one. It is checked only if it
    # differs; without such a check, the vectors are equal bit by bit.
    if not any(check.field in CONTENT for check in wrong):
        # even then, another processor may round the products of these vectors differently
        far = [check for check in wrong if _is_far(check, None)]
        return f"{SAME}, {'other scores' if far else 'scores within rounding'}", not far
    if len(wrong) == 1:  # only the content differs
        return EQUAL, True
    assert row.run is not None
    allowed = allowed_of(row.run)
    far = [check for check in wrong if check.field not in CONTENT and _is_far(check, allowed)]
    what = f"seed (of {row.run.seeds})" if row.run.seeds else "processor's rounding"
    return (BEYOND if far else WITHIN).format(what), not far


def allowed_of(run: RunProvenance) -> dict[str, Decimal] | None:
    """Return by metric how far the score of a further seed may be from the row's score, in points;
    None if the row states no seeds.

    The row's score is that of one run, whose file can be scored again; it is not the mean over the
    row's n seeds. The limit is √2 t s, where s is the standard deviation between the n seeds, and t
    a quantile of Student's distribution with n − 1 degrees of freedom.
    """
    from scipy.stats import t

    if run.seeds is None:
        return None
    # √2, since the row and the new run are one run each: their difference has the variance 2 s².
    # The chance of exceeding a limit, 1 − SURE, is for all metrics together: it is shared among
    # them (Bonferroni), and each share between both sides.
    quantile = t.ppf(1 - (1 - SURE) / 2 / len(run.between_seeds), run.seeds - 1)
    factor = Decimal(math.sqrt(2) * float(quantile))
    return {metric: factor * s for metric, s in run.between_seeds.items()}


def _is_far(check: Check, allowed: dict[str, Decimal] | None) -> bool:
    """Whether a new score is farther from the row's score than another run explains. True if the
    new score is missing.

    `allowed` has the limits for another seed, by metric, in points. None means that only the
    rounding of another processor (ROUNDING, in points) is allowed.
    """
    if allowed is None:
        return not is_within(check, ROUNDING)
    if check.field not in allowed:  # no deviation between seeds is known: any score will do
        return not isinstance(check.rescored, Decimal)
    # at least ROUNDING: the seed may run on another processor
    return not is_within(check, max(allowed[check.field], ROUNDING))
