"""Knows the recipes of verbs that other packages bring, such as `hbench detect`, by their verb."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from hbench.core.registry import Registry


@runtime_checkable
class RecipeBook(Protocol):
    """A module of recipes: those of `hbench train`, or of another verb, such as `hbench detect`."""

    def names(self) -> list[str]:
        """List the recipes that are shipped."""

    def resolve(self, name_or_file: str, changes: Sequence[str] = ()) -> BaseModel:
        """Read a recipe by its name or file, and apply changes."""

    def as_toml(self, recipe: Any) -> str:
        """Write a whole recipe."""

    def listed(self, recipe: Any) -> list[str]:
        """Say its losses, its backbone and the row it aims at."""


# of verbs that other packages bring
books: Registry[RecipeBook] = Registry("recipes of the verb", "hbench.recipes", RecipeBook)


def verb_of(name: str) -> str | None:
    """Return the verb of another package that has a recipe of this name, None for none."""
    return next((verb for verb in books if name in books[verb].names()), None)
