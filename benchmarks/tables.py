"""Measures anew what docs/scale.md says, and writes its tables, with the machine, the versions and
the date.

    python benchmarks/tables.py            # half an hour on two quiet cores; make bench
    python benchmarks/tables.py --quick    # a minute, small sizes, printed only: to see that all of it runs

A table stands between `<!-- make bench: NAME -->` and `<!-- -->`; the words around it are left
alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from hbench.cli.environment import environment

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "scale.md"
PEERS = ("faiss-cpu", "pytorch-metric-learning")
EVALUATED = (  # options of evaluate.py
    "--set sop --threads 2 --share 0.2 --peers",
    "--set sop --threads 1 --share 0.2",
    "--set inat --threads 2 --share 0.2",
    "--set inat --threads 1 --share 0.2",
)
QUICK = ("--set small --threads 1 --share 1 --rounds 1 --peers",)
SCALED = ("exponent", "intervals", "process", "landmarks")


def main() -> None:
    """Measure, then write the page, or print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    found = tables(quick=quick)
    if quick:
        for name, text in found.items():
            print(f"{name}\n\n{text}\n")
        return
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    print(f"wrote {PAGE}")


def tables(*, quick: bool) -> dict[str, str]:
    """Every table by its name, in Markdown."""
    small = ["--quick"] if quick else []
    evaluated = [
        each for words in (QUICK if quick else EVALUATED) for each in run("evaluate", words.split())
    ]
    scaled = [row for what in SCALED for row in run("scale", [what, *small])]
    return {
        "machine": machine(),
        "evaluations": table(
            ("set", "threads", "µs/query", "× torch.mm", "× best product", "whole set"),
            map(evaluation_row, evaluated),
        ),
        "more": table(("what", "measured"), [*memory_rows(evaluated), *scaled]),
        "stragglers": table(
            ("slow workers", "blocks as tasks (`--scheduler`)", "fixed shares (`--blocks`)"),
            run("scale", ["simulate"]),
        ),
    }


def run(name: str, words: Sequence[str]) -> list[Any]:
    """Run the benchmark NAME.py with these words behind it, in a process of its own, and return
    what it prints as JSON."""
    sys.stderr.write(f"{name} {' '.join(words)}\n")
    command = [sys.executable, str(HERE / f"{name}.py"), *words, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return list(json.loads(done.stdout.splitlines()[-1]))


def machine() -> str:
    """Say on which machine, with which versions and when the figures were measured."""
    np.dot(np.ones(2), np.ones(2))  # loads the library of products, which is named then
    about = environment()
    found, own = about["versions"], about["processor"]
    packages = {name: found[name] for name in ("hbench", "python", "numpy", "numba", "torch")}
    for name in PEERS:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    words = ", ".join(f"{name} {number}" for name, number in packages.items())
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d}: {own['model']} ({own['machine']}), "
        f"{own['threads']} threads, "
        f"{memory:.0f} GB, {own['blas']}; {words}."
    )


def evaluation_row(measured: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of the first table: what, threads, microseconds a query, multiples of torch.mm and of
    the best product, seconds of the set."""
    ratio = f"{digits(measured['ratio'])} ({digits(measured['low'])} … {digits(measured['high'])})"
    whole = f"{measured['whole']:,.0f} s"
    if measured["whole"] < 10:
        whole = f"{measured['whole']:.1f} s"
    what = f"{measured['title']}: {measured['design']}"
    to_best = digits(measured["ratio"] * measured["torch_to_best"])
    return what, str(measured["threads"]), f"{measured['microseconds']:,.0f}", ratio, to_best, whole


def digits(ratio: float) -> str:
    """A multiple with as many digits as can be trusted."""
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def memory_rows(evaluated: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Peak memory beyond inputs and libraries, once a set."""
    most: dict[str, float] = {}
    for each in evaluated:
        most[each["title"]] = max(each["memory"], most.get(each["title"], 0.0))
    return [
        (f"peak memory beyond inputs and libraries, {title}", f"{memory:.0f} MB")
        for title, memory in most.items()
    ]


def table(header: Sequence[str], rows: Any) -> str:
    """A Markdown table; `rows`: cells (texts) of each row."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))


def replaced(page: str, found: Mapping[str, str]) -> str:
    """Return a page in Markdown with these tables, by name, between their marks; raises KeyError
    for a mark without a table, and for a table without a mark.
    """
    marks = re.compile(r"(<!-- make bench: (\w+) -->\n).*?(\n<!-- -->)", re.DOTALL)
    if missing := set(found) ^ {name for _, name, _ in marks.findall(page)}:
        raise KeyError(", ".join(sorted(missing)))
    return marks.sub(lambda place: place[1] + found[place[2]] + place[3], page)


if __name__ == "__main__":
    main()
