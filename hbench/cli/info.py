"""hbench info: describe the machine for a bug report."""

from typing import Any

import click

from hbench.cli.terminal import progress, show_json, show_table


@click.command("info")
@click.option(
    "--compile",
    "compiles",
    is_flag=True,
    help="Compile the ranking kernels now, for instance in an image of a container.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def command(compiles: bool, as_json: bool) -> None:
    """Print versions, processor, folders, variables and plug-ins, each tried: what a bug report
    needs.

    Example: hbench info --json
    """
    from hbench.cli.environment import environment
    from hbench.engine.values.blocks import kernels_are_compiled

    if compiles:
        _compile()
    machine = environment()
    machine["processor"]["kernels"] = (
        "compiled" if kernels_are_compiled() else "compiled when first needed"
    )
    if as_json:
        show_json(machine)
    else:
        _show(machine)


def _compile() -> None:
    """Compile the functions that evaluations call, by three small evaluations: two that compute
    whole rows of scores, in float32 and in float64, and one that computes each pair's score once
    for both of its items, as is done only for vectors with many numbers in all."""
    import numpy as np

    from hbench.evaluation.arrays import score

    with progress() as bars:
        task = bars.add_task("compiling the ranking kernels", total=3)
        for dim, dtype in ((8, np.float32), (8, np.float64), (2048, np.float32)):
            # enough items that compiled code is used for their pairs; fewer are ranked by numpy
            items = np.arange(2200)
            vectors = np.random.default_rng(0).normal(size=(len(items), dim)).astype(dtype)
            # two levels: classes of 40 items, divided into classes of 5
            score(vectors, np.stack([items // 40, items // 5], axis=1))
            bars.advance(task)


def _show(machine: dict[str, Any]) -> None:
    """Print the description of the machine as a table of two columns."""
    rows = [
        [name, str(value)]
        for name, value in {**machine["versions"], **machine["processor"]}.items()
    ]
    for name, folder in machine["folders"].items():
        rows.append([f"{name} folder", f"{folder['path']} ({_state_of(folder)})"])
    rows += [[name, value] for name, value in machine["variables"].items()]
    for each in machine["plugins"]:
        state = each["problem"] or ("works" if each["tried"] else "is loaded, and was not tried")
        rows.append([f"{each['kind']} {each['name']}", f"of {each['package']}: {state}"])
    if not machine["plugins"]:
        rows.append(["plug-ins", "none (docs/plugins.md)"])
    show_table(None, ["", "here"], rows, left=["here"])


def _state_of(folder: dict[str, Any]) -> str:
    """Format the owner of a folder, and who may write to it."""
    if not folder["exists"]:
        return "not there yet"
    state = f"{folder['owner']}'s"
    if not folder["only_by_owner"]:
        state += ", others may write to it"
    if not folder["writable"]:
        state += ", read-only"
    return state
