"""The kernels of the graphics card, written in Python as the processor's are and compiled by
numba.cuda: ranks, and all sums over them, of one query per block of threads.
"""
