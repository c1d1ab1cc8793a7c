"""Makes a row's file again by the command that the row names, and compares the two.

The command is one of hbench's own that reads no program and no recipe of a stranger; it is never
given to a shell. Where the vectors come out bit by bit, the content is the row's; another make of
processor rounds otherwise, and training carries that far: then the scores are compared with what
another seed would move them by, where the row says so.

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

OPTIONS = {  # of each verb, those that a row may name
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
STRANGE = (".py", "://")  # parts of words that lead to programs, or elsewhere
SURE = 0.95  # of all metrics of a further seed together
SAME = "the same content"
EQUAL = "another content, equal scores"
WITHIN = "another content, scores within what another {} gives"
BEYOND = "another content, scores beyond what another {} gives"


def command_of(made: str, out: Path, file: str) -> list[str]:
    """Return the words of the command that a row names, `made`, but for "hbench", with the place
    for what it makes: the folder `out`, or in it a file of this name. Raises UsageError for a
    command that is not run for a stranger: a row may be anybody's, so that its verb, and every
    option, must be one of those that run nothing but hbench's own code.
    """
    try:
        words = shlex.split(made)
    except ValueError:  # an open quote: no command
        words = []
    verb = words[1] if len(words) > 1 and words[0] == "hbench" else ""
    if verb not in OPTIONS:
        raise UsageError(
            "the row's command is none that is run again",
            expected=f"hbench {', '.join(OPTIONS)} …",
            found=made,
        )

    for before, word in pairwise(words[1:]):
        option = word.partition("=")[0]  # of --size=224; its value may also be the next word
        # a recipe in a file may name programs; hbench's own recipes have plain names
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
    """The command of a row of a run that says one, as one types it: embed asks for the name of its
    file, of which a row's command says nothing."""
    assert run.made is not None
    verb = "".join(run.made.split()[1:2])
    return f"{run.made} --out {shlex.quote(Path(run.file).name)}" if verb == "embed" else run.made


def make(row: Row, out: Path) -> Path:
    """Run the command of a row of a run, and return the file that it made in the folder `out`.

    Raises UsageError where the row names no command that is run again, HBenchError where it fails.
    """
    if row.run is None or row.run.made is None:
        raise UsageError(
            f"the row of {row.method} does not say how it was made",
            expected='made = "hbench train …" in its run',
            fix="hbench leaderboard add … --replace --made 'hbench train …' says it of a row of "
            "yours",
        )

    words = command_of(row.run.made, out, Path(row.run.file).name)  # nothing of a row's folders
    code = _exit_code_of([sys.executable, "-m", "hbench", *words])
    made = out / Path(row.run.file).name
    if code or not made.exists():
        note = f"; the row says: {row.run.note}" if row.run.note else ""
        error = HBenchError(
            f"the command of {row.method} did not make {made.name} (exit code {code})",
            found=shlex.join(["hbench", *words]),
            fix=f"it says above what it lacks; files that it names lie in this folder{note}",
        )
        error.exit_code = code or error.exit_code  # as if it had been typed
        raise error
    return made


def _exit_code_of(command: Sequence[str]) -> int:
    """Run a command to its end, and return its exit code. What it prints to stdout is not shown,
    so that it is told apart from what is found. SIGTERM ends the command first and then this
    process, as `sys.exit` does, also while the command is being started."""
    signals: list[int] = []
    started: list[subprocess.Popen[bytes]] = []

    def end(number: int, _frame: FrameType | None) -> None:
        """Pass the signal on to the command, and note it for this process."""
        signals.append(number)
        for process in started:
            process.terminate()

    former = signal.signal(signal.SIGTERM, end)
    try:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        started.append(process)
        if signals:  # it came before there was a process to end
            process.terminate()
        code = process.wait()
    except BaseException:  # an interrupt, which the command got from the terminal, too
        for process in started:
            process.kill()
            process.wait()
        raise
    finally:
        signal.signal(signal.SIGTERM, former)
    if signals:
        sys.exit(128 + signals[0])  # the code that a shell gives a process ended by a signal
    return code


def outcome(row: Row, checks: Sequence[Check]) -> tuple[str, bool]:
    """Say in words what the comparison of a row with its remade file came to, and whether the row
    stands: the content is the same, or its scores are as near as another run's would be: another
    seed's where the row says how far these are apart, else another processor's."""
    wrong = [check for check in checks if check.differs]
    if not wrong:
        return SAME, True
    # a check of the content is there only where it differs: the vectors are the row's, bit by bit
    if not any(check.field in CONTENT for check in wrong):
        # equal vectors, whose products another processor rounds otherwise
        far = [check for check in wrong if _is_far(check, None)]
        return f"{SAME}, {'other scores' if far else 'scores within rounding'}", not far
    if len(wrong) == 1:  # the content alone
        return EQUAL, True
    assert row.run is not None
    allowed = allowed_of(row.run)
    far = [check for check in wrong if check.field not in CONTENT and _is_far(check, allowed)]
    what = f"seed (of {row.run.seeds})" if row.run.seeds else "processor's rounding"
    return (BEYOND if far else WITHIN).format(what), not far


def allowed_of(run: RunProvenance) -> dict[str, Decimal] | None:
    """How far a further run may be from one of n seeds, by metric, in points: √2 t s, s their
    standard deviation and t of Student's distribution with n − 1 degrees of freedom, all metrics
    together; None where there are no seeds.
    """
    from scipy.stats import t

    if run.seeds is None:
        return None
    # √2: both the row and the new run vary; two-sided, and divided by the number of metrics
    # (Bonferroni), so that SURE is of all together
    quantile = t.ppf(1 - (1 - SURE) / 2 / len(run.between_seeds), run.seeds - 1)
    factor = Decimal(math.sqrt(2) * float(quantile))
    return {metric: factor * s for metric, s in run.between_seeds.items()}


def _is_far(check: Check, allowed: dict[str, Decimal] | None) -> bool:
    """Whether a score is further from the row's than another run may move it, by metric `allowed`
    points, or, None, than another processor's rounding may. Where seeds are known, metrics without
    a deviation are not judged, so they are not far; a missing score always is.
    """
    if allowed is None:
        return not is_within(check, ROUNDING)
    if check.field not in allowed:
        return not isinstance(check.rescored, Decimal)
    # at least ROUNDING: the seed may run on another processor
    return not is_within(check, max(allowed[check.field], ROUNDING))
