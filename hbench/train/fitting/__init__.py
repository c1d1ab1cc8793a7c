"""Fits a recipe to what is here: names that exist, sizes of dataset and net, keys explained."""
