"""hbench recipes: list the training recipes, or print one in full."""

from fnmatch import fnmatch

import click

from hbench.cli.names import RECIPE
from hbench.cli.terminal import show, show_json, show_table


@click.command("recipes")
@click.argument("name", type=RECIPE, required=False)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change one setting of the printed recipe.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
@click.option("--csv", "as_csv", is_flag=True, help="The list as CSV.")
@click.option(
    "--setups", is_flag=True, help="The setups side by side in Markdown, and whose values they are."
)
@click.option(
    "--keys", is_flag=True, help="Every key of a recipe: allowed values, default, meaning."
)
def command(
    name: str | None,
    changes: tuple[str, ...],
    *,
    as_json: bool,
    as_csv: bool,
    setups: bool,
    keys: bool,
) -> None:
    """List the recipes and the published rows they aim at; with NAME (or a file), print that recipe
    with every default.

    NAME may be a pattern such as 'sop-*'.

    Example: hbench recipes sop-happier
    """
    from hbench.core.errors import UnknownName
    from hbench.train.recipes import files, overview

    if setups:
        show(overview.markdown().rstrip("\n"))
        return

    if keys:
        from hbench.train.fitting import keys as explained

        show_table(
            None, explained.HEADER, explained.rows(), left=explained.HEADER[1:], as_csv=as_csv
        )
        return

    name = name or "*"
    one = not any(character in name for character in "*?[")
    if (one and as_csv) or (changes and not one):
        raise click.UsageError("--csv goes with the list, --set with the name of one recipe.")

    if one:
        recipe = files.resolve(name, changes)
        if as_json:
            show_json(recipe.model_dump(mode="json"))
        else:
            show(files.as_toml(recipe).rstrip("\n"))
        return

    recipes = {listed: files.resolve(listed) for listed in files.names() if fnmatch(listed, name)}
    if not recipes:
        raise UnknownName("recipe", name, files.names())
    if as_json:
        show_json(
            {recipe_name: recipe.model_dump(mode="json") for recipe_name, recipe in recipes.items()}
        )
        return

    rows = []
    for recipe_name, recipe in recipes.items():
        losses = " + ".join(f"{spec.weight:g} {loss}" for loss, spec in recipe.losses.items())
        aim = f"{recipe.aim.method}: {recipe.aim.table}" if recipe.aim and recipe.aim.table else ""
        rows.append([recipe_name, losses, recipe.model.backbone, aim])
    header = ["recipe", "losses", "backbone", "published row it aims at"]
    show_table(None, header, rows, left=header[1:], as_csv=as_csv)
