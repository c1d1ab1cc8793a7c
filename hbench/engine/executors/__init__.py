"""Executors compute the blocks of a job: on threads, on graphics cards, or on a dask cluster. Each
can be combined with a folder in which finished blocks are kept.
"""
