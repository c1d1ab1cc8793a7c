"""Counts the modules of hbench that a command enters: how many files a reader opens to follow it.

A module is entered when one of its functions is called. That it was imported does not count, nor what it does meanwhile.

    python benchmarks/walk.py                                     # the three walks whose length has a limit
    python benchmarks/walk.py evaluate my.parquet --dataset sop   # any other command
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

GOALS = {"evaluate FILE --dataset glyphs": 28, "evaluate FILE --dataset own.csv": 26, "one training batch": 16}
LIMITS = dict(zip(GOALS, (55, 48, 22), strict=True))  # no walk is longer than it was; the goals are not reached
FUNCTION = 1  # CO_OPTIMIZED: the code of a function, not that of a module or of a class body


@contextlib.contextmanager
def entered() -> Iterator[set[str]]:
    """The names of hbench's modules of which a function is called inside the block, on any thread."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        name = str(frame.f_globals.get("__name__", ""))
        ours = event == "call" and name.partition(".")[0] == "hbench" and name not in found
        if ours and frame.f_code.co_flags & FUNCTION and not while_importing(frame):
            found.add(name)

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def while_importing(frame: FrameType | None) -> bool:
    """Whether a frame runs because a module is being imported."""
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


def command(arguments: list[str]) -> set[str]:
    """The modules that a command of hbench enters."""
    import hbench.cli

    sys.argv = ["hbench", *arguments]
    with entered() as found, contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        hbench.cli.main()
    return found


def evaluation(dataset: str, folder: Path) -> set[str]:
    """The modules that the evaluation of random embeddings enters."""
    import numpy as np

    from hbench.datasets import load
    from hbench.evaluation import embeddings

    items = load(dataset).tests["test"].items.tolist()
    vectors = np.random.default_rng(0).normal(size=(len(items), 16)).astype(np.float32)
    embeddings.write(folder / "embeddings.parquet", items, vectors)
    return command(["evaluate", str(folder / "embeddings.parquet"), "--dataset", dataset])


def glyphs(folder: Path) -> set[str]:
    return evaluation("glyphs", folder)


def own_table(folder: Path) -> set[str]:
    rows = "".join(f"i{n},f{n % 3},g{n % 9}\n" for n in range(90))
    (folder / "own.csv").write_text(f"item,family,genus\n{rows}", encoding="utf-8")
    return evaluation(str(folder / "own.csv"), folder)


def batch(folder: Path) -> set[str]:
    """The modules that a batch enters: how it is sampled, its images, its loss and the step, in an epoch of its own."""
    from hbench.datasets import load
    from hbench.train.loop import steps
    from hbench.train.recipes.files import resolve
    from hbench.train.run import begin

    recipe, data = resolve("glyphs-happier", ["sampler.batch=16", "steps_per_epoch=1", "epochs=2"]), load("glyphs")
    records = steps(begin(recipe, data), recipe, data, folder)
    next(records)  # which also opens the images
    with entered() as found:
        next(records)
    return found


WALKS: dict[str, Callable[[Path], set[str]]] = dict(zip(LIMITS, (glyphs, own_table, batch), strict=True))


def main() -> None:
    """Print what the command given enters, or each of the three walks, in a process of its own."""
    if sys.argv[1:2] == ["--walk"]:
        with tempfile.TemporaryDirectory() as folder:
            print(*sorted(WALKS[sys.argv[2]](Path(folder))), sep="\n")
    elif sys.argv[1:]:
        print(*sorted(command(sys.argv[1:])), sep="\n")
    else:
        longer = []
        for name, limit in LIMITS.items():
            walk = [sys.executable, __file__, "--walk", name]
            modules = subprocess.run(walk, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
            print(f"{name}: {len(modules)} modules (at most {limit}, goal {GOALS[name]})", *modules, sep="\n  ")
            longer += [name] * (len(modules) > limit)
        if longer:
            raise SystemExit(f"longer than its limit: {', '.join(longer)}")


if __name__ == "__main__":
    main()
