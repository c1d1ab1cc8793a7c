"""Recipes: what a training run needs to know, as checked TOML files that extend each other."""
