"""Executors compute the blocks of a job: on threads, on graphics cards, or on a dask cluster. Another
one takes blocks that an earlier run kept in a folder.
"""
