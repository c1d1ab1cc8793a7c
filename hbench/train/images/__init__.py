"""Brings images into a network: datasets, samplers, transforms and batches."""
