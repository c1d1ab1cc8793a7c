"""Finds wrong labels by the nearest neighbours of every item, with a label tree: how wrong a
suspect is, and how sure that is.
"""
