"""hbench info: what a bug report needs to say of the machine, and whether it computes known values."""

import sys
from typing import Any

import click

from hbench.cli.terminal import progress, say, show, show_json, show_table


@click.command("info")
@click.option(
    "--check", is_flag=True, help="Compute known values of every metric again; exit code 7 where one is wrong."
)
@click.option(
    "--compile",
    "compiles",
    is_flag=True,
    help="Compile the ranking kernels now, for instance in an image of a container.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def command(check: bool, compiles: bool, as_json: bool) -> None:
    """Print versions, processor, folders and environment variables: what a bug report needs.

    Example: hbench info --check --json
    """
    from hbench.cli.environment import environment
    from hbench.engine.block_values import kernels_are_compiled

    if compiles:
        _compile()
    machine = environment()
    machine["processor"]["kernels"] = "compiled" if kernels_are_compiled() else "compiled when first needed"
    if check:
        _check(machine, as_json=as_json)
    elif as_json:
        show_json(machine)
    else:
        _show(machine)


def _compile() -> None:
    """Compile what evaluations call, by three small ones: of whole rows of float32 and of float64, and of half of the products."""
    import numpy as np

    from hbench.evaluation.arrays import score

    with progress() as bars:
        task = bars.add_task("compiling the ranking kernels", total=3)
        for dim, dtype in ((8, np.float32), (8, np.float64), (2048, np.float32)):
            items = np.arange(2200)
            vectors = np.random.default_rng(0).normal(size=(len(items), dim)).astype(dtype)
            score(vectors, np.stack([items // 40, items // 5], axis=1))
            bars.advance(task)


def _check(machine: dict[str, Any], *, as_json: bool) -> None:
    """Compute known values again; a value that is off by more than 1e-9 ends with exit code 7."""
    from hbench.evaluation.self_check import TOLERANCE, deviations

    values = deviations()
    largest = max(value.size for value in values)
    wrong = [value for value in values if not value.size <= TOLERANCE]  # a NaN is wrong, too
    if as_json:
        records = [{**value._asdict(), "deviation": value.size} for value in values]
        show_json({"sound": not wrong, "largest_deviation": largest, "values": records, **machine})
    else:
        _show(machine)
        if wrong:
            rows = [[value.case, value.metric, f"{value.expected:.12f}", f"{value.found:.12f}"] for value in wrong]
            show_table(None, ["case", "metric", "expected", "found"], rows, left=["metric"])
        right = f"{len(values) - len(wrong)} of {len(values)} known values are right"
        show(f"{right}; the largest deviation is {largest:.1e}")
    if wrong:
        say("these values are wrong on this machine: report them with this output, and do not publish its scores")
        sys.exit(7)


def _show(machine: dict[str, Any]) -> None:
    """The description of the machine as one table of two columns."""
    rows = [[name, str(value)] for name, value in {**machine["versions"], **machine["processor"]}.items()]
    for name, folder in machine["folders"].items():
        state = "not there yet" if not folder["exists"] else f"{folder['owner']}'s"
        state += "" if folder["only_by_owner"] in {True, None} else ", others may write to it"
        state += ", read-only" if folder["writable"] is False else ""
        rows.append([f"{name} folder", f"{folder['path']} ({state})"])
    rows += [[name, value] for name, value in machine["variables"].items()]
    show_table(None, ["", "here"], rows, left=["here"])
