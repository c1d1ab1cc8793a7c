"""A campaign of damaged files: `python -m tests.hostile.campaign ROUNDS SEED [NAME …]`; `make fuzz`
runs it for long.

Each reader gets mutated copies of its sample in a process of its own, so that a crash of the
process is seen and counted; a fine reader reads, or refuses with an HBenchError. Everything else is
a failure, printed with the round that makes it again.
"""

import faulthandler
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from hbench.core.errors import HBenchError
from tests.hostile.corpus import SAMPLES, Sample, mutated

# a fresh interpreter for each reader would take longer than all its files
CONTEXT = get_context("fork")
PATIENCE = 60.0  # seconds that one reader may take for one round of files


def outcome(sample: Sample, path: Path) -> str:
    """What a reader makes of a file: "read", "refused", or what it raised."""
    try:
        sample.read(path)
    except HBenchError as error:
        return "refused" if str(error) else "an empty message"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "read"


def sound(sample: Sample) -> bytes:
    """The bytes of a sample, which its reader reads."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / sample.name
        sample.make(path)
        assert outcome(sample, path) == "read", outcome(sample, path)
        return path.read_bytes()


def rounds(sample: Sample, content: bytes, numbers: range, seed: int, results: Connection) -> None:
    """Some rounds of a sample, in this process; every outcome goes to `results`."""
    faulthandler.disable()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / sample.name
        for number in numbers:
            path.write_bytes(mutated(content, Random(f"{seed} {sample.name} {number}")))
            results.send((number, outcome(sample, path)))
    results.send(None)


def campaign(sample: Sample, count: int, seed: int) -> Counter[str]:
    """Count each outcome in a number of rounds; a process that dies or hangs is replaced."""
    found: Counter[str] = Counter()
    content, begun = sound(sample), 0
    while begun < count:
        ours, theirs = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(
            target=rounds, args=(sample, content, range(begun, count), seed, theirs)
        )
        process.start()
        theirs.close()
        for number, kind in _messages(ours):
            found[kind] += 1
            begun = number + 1
        if begun < count:
            process.kill()
            process.join()
            found[f"in round {begun} the process died or took more than {PATIENCE:.0f} s"] += 1
            begun += 1
        process.join()
    return found


def _messages(pipe: Connection) -> Iterator[tuple[int, str]]:
    """What comes through a pipe, until it says None, is closed, or is silent for too long."""
    with suppress(EOFError):
        while pipe.poll(PATIENCE) and (message := pipe.recv()) is not None:
            yield message


def main() -> None:
    count, seed, *names = sys.argv[1:]
    failed = False
    for sample in SAMPLES:
        if not names or sample.name in names:
            found = campaign(sample, int(count), int(seed))
            failed |= not set(found) <= {"read", "refused"}
            told = ", ".join(f"{number:,} {kind}" for kind, number in found.most_common())
            sys.stdout.write(f"{sample.name:14} {told}\n")
            sys.stdout.flush()
    sys.exit(failed)


if __name__ == "__main__":
    main()
