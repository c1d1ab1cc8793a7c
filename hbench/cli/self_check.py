"""hbench self-check: compute known values again on this machine, and describe it."""

from __future__ import annotations

import sys

import click

from hbench.cli.info import show_environment
from hbench.cli.terminal import say, show, show_json, show_table


@click.command("self-check")
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def command(as_json: bool) -> None:
    """Compute known values of every metric again on this machine; exit code 7 where one is off by more than 1e-9.

    What it prints is what a bug report needs.

    Example: hbench self-check --json > self-check.json
    """
    from hbench.core.environment import environment
    from hbench.evaluation.self_check import TOLERANCE, deviations

    found, machine = deviations(), environment()
    worst = max(found, key=lambda each: each.size)
    wrong = [each for each in found if not each.size <= TOLERANCE]  # a NaN is wrong, too
    if as_json:
        values = [{**each._asdict(), "deviation": each.size} for each in found]
        show_json({"sound": not wrong, "largest_deviation": worst.size, "values": values, **machine})
    else:
        show_environment(machine)
        if wrong:
            rows = [[each.case, each.metric, f"{each.expected:.12f}", f"{each.found:.12f}"] for each in wrong]
            show_table(None, ["case", "metric", "expected", "found"], rows, left=["metric"])
        show(
            f"{len(found) - len(wrong)} of {len(found)} known values are right; the largest deviation is {worst.size:.1e}"
        )
    if wrong:
        say("these values are wrong on this machine: report them with this output, and do not publish its scores")
        sys.exit(7)
