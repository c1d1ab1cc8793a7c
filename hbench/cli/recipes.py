"""hbench recipes: list the training recipes, or print one in full."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import TYPE_CHECKING, cast

import click

from hbench.cli.names import RECIPE
from hbench.cli.terminal import show, show_json, show_table

if TYPE_CHECKING:
    from hbench.train.recipes.books import RecipeBook


def _books() -> dict[str, RecipeBook]:
    """Return {name of a shipped recipe: module that reads it}: that of `hbench train`, or one of
    another package's verb."""
    from hbench.train.recipes import files
    from hbench.train.recipes.books import books

    modules = [cast("RecipeBook", files), *(books[verb] for verb in books)]
    return {name: module for module in modules for name in module.names()}


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
    is_one = not any(character in name for character in "*?[")  # otherwise `name` is a pattern
    if (is_one and as_csv) or (changes and not is_one):
        raise click.UsageError("--csv goes with the list, --set with the name of one recipe.")

    # each recipe belongs to a module ("book") that knows how to read and print it
    books = _books()
    if is_one:
        book = books.get(name, files)  # a recipe of one's own, or an unknown name
        recipe = book.resolve(name, changes)
        if as_json:
            show_json(recipe.model_dump(mode="json"))
        else:
            show(book.as_toml(recipe).rstrip("\n"))
        return

    recipes = {known: book.resolve(known) for known, book in books.items() if fnmatch(known, name)}
    if not recipes:
        raise UnknownName("recipe", name, list(books))
    if as_json:
        show_json({known: recipe.model_dump(mode="json") for known, recipe in recipes.items()})
        return

    # a book's `listed` returns the cells of the last three columns
    rows = [[known, *books[known].listed(recipe)] for known, recipe in recipes.items()]
    header = ["recipe", "losses", "backbone", "published row it aims at"]
    show_table(None, header, rows, left=header[1:], as_csv=as_csv)  # all columns have texts
