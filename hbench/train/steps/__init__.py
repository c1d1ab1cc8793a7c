"""Defines the state of a training run and its steps: the gradient of a batch, the optimisers."""
