"""Embeds datasets, names of nodes and single pictures by a net, and writes nets for others."""
