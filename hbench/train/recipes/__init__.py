"""Defines recipes: the settings of training runs, in checked TOML files that extend each other."""
