"""Scores one submission several times: under other trees, at smaller sizes of its vectors."""
