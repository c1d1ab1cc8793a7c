"""Finds wrong labels by the nearest neighbours of every item and a label tree. It tells how strong
the evidence against a label is, and how sure it is that the label is wrong.
"""
