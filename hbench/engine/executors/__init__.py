"""Executors compute the blocks of a job: threads, a GPU, a dask cluster, or a folder of blocks kept
from an earlier run.
"""
