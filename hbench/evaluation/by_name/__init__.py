"""Asking by name: nodes of the label tree with vectors of their own, as a text tower gives them."""
