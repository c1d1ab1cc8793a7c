"""Builds networks (backbones by name, pooling, projection), and embeds batches of images."""
