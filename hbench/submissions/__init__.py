"""Submissions as they are read: embedding files, rankings, lists of pairs; their ids, and
everything that is wrong with them.
"""
