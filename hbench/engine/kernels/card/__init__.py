"""The kernels of the graphics card, written in Python like those of the processor and compiled by
numba.cuda. They compute ranks, and all sums over ranks; each block of threads handles one query.
"""
