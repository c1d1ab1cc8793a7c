"""Fits a recipe to its dataset and net: checks names, fills in sizes, and explains keys."""
