"""The steps of a training: gradients of a batch, and the optimisers that take them."""
