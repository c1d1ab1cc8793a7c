"""`hbench losses`: every loss with its formula, paper and parameters."""

from __future__ import annotations

from typing import Any

import click

from hbench.cli.terminal import show, show_json, show_table


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def command(name: str | None, as_json: bool) -> None:
    """List the losses, or show the one called NAME: formula, paper, parameters and their defaults.

    \b
    Example: hbench losses sup_hap
    """
    from hbench.losses import loss_entry, losses
    from hbench.losses.entries import REQUIRED

    rows: list[dict[str, Any]] = []
    for known in [name] if name else losses:
        entry = loss_entry(known)
        parameters = {p: "required" if default is REQUIRED else default for p, default in entry.parameters.items()}
        rows.append({"name": known, "formula": entry.formula, "paper": entry.paper, "parameters": parameters})
    if as_json:
        show_json(rows[0] if name else rows)
    elif name:
        show(f"{rows[0]['name']}\n  formula   {rows[0]['formula']}\n  paper     {rows[0]['paper']}")
        for parameter, default in rows[0]["parameters"].items():
            show(f"  {parameter:<18}{default}")
    else:
        spelled = [", ".join(f"{p}={d}" for p, d in row["parameters"].items()) for row in rows]
        show_table(
            None,
            ["loss", "formula", "paper", "parameters"],
            [[row["name"], row["formula"], row["paper"], text] for row, text in zip(rows, spelled, strict=True)],
        )
