"""Builds networks (backbones by name, pooling, projection), and embeds images with them."""
