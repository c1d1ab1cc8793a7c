"""hbench losses: list every loss with its formula, paper and parameters."""

import click

from hbench.cli.names import LOSS
from hbench.cli.terminal import show, show_json, show_table


@click.command()
@click.argument("name", type=LOSS, required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
@click.option("--csv", "as_csv", is_flag=True, help="The table as CSV.")
def command(name: str | None, as_json: bool, as_csv: bool) -> None:
    """List the losses, or show the one called NAME: formula, paper, parameters and their defaults.

    \b
    Example: hbench losses sup_hap
    """
    from hbench.losses import loss_entry, losses
    from hbench.losses.entry import REQUIRED

    known = [name] if name else list(losses)
    entries = [loss_entry(loss) for loss in known]
    # {parameter: default} of each loss; REQUIRED marks a parameter without a default
    parameters = []
    for entry in entries:
        defaults = entry.parameters.items()
        parameters.append({n: "required" if value is REQUIRED else value for n, value in defaults})
    if as_json:
        described = [
            {"name": loss, "formula": entry.formula, "paper": entry.paper, "parameters": own}
            for loss, entry, own in zip(known, entries, parameters, strict=True)
        ]
        show_json(described[0] if name else described)
        return

    if name:
        show(name)
        facts = {"formula": entries[0].formula, "paper": entries[0].paper, **parameters[0]}
        for fact, value in facts.items():
            show(f"  {fact:<18}{value}")
        return

    rows = []
    for loss, entry, own in zip(known, entries, parameters, strict=True):
        listed = ", ".join(f"{parameter}={default}" for parameter, default in own.items())
        rows.append([loss, entry.formula, entry.paper, listed])
    header = ["loss", "formula", "paper", "parameters"]
    show_table(None, header, rows, left=header[1:], as_csv=as_csv)
