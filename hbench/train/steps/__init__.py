"""Defines a step of training: the gradient of a batch, and the optimisers."""
