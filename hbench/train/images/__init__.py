"""Images on their way into a network: datasets, samplers, transforms and batches."""
