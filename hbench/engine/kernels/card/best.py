"""The kernel that finds the code of each query's best item, for plans that do not list all
positives.
"""

from __future__ import annotations

from hbench.engine.kernels.card.compiling import (
    Float32s,
    Uint8s,
    card_kernel,
    cuda,
    float32,
    int32,
)
from hbench.engine.kernels.card.of_block import largest
from hbench.engine.kernels.card.ranks import INFINITY, THREADS, CardRanges, code_of


@card_kernel
def codes_of_best(rows: Float32s, ranges: CardRanges, first: Uint8s) -> None:
    """Write to `first` (n,) the code of the item with the best score in each row (n, G), 0 if it is
    a distractor. Each block of threads handles one query.

    A code is a level, or under partial labels one of two per level. If several items have the best
    score, the lowest code is written if `ranges.pessimistic`, else the highest. `ranges`: the
    columns of each code from 1 on.
    """
    extremes = cuda.shared.array(THREADS, float32)
    codes = cuda.shared.array(THREADS, int32)
    query = cuda.blockIdx.x
    scores = rows[query]

    # each of the T threads takes every T-th column, and `largest` compares their results
    own = -INFINITY
    for column in range(cuda.threadIdx.x, len(scores), cuda.blockDim.x):
        own = max(own, scores[column])
    best = largest(own, extremes)

    # The lowest code is found as the largest of the negated codes. −256 stands for none: a code is
    # a byte, so negated codes are greater.
    code = int32(-256)
    if best > -INFINITY:
        for column in range(cuda.threadIdx.x, len(scores), cuda.blockDim.x):
            if scores[column] == best:
                here = int32(code_of(ranges, query, column))
                code = max(code, -here if ranges.pessimistic else here)
    found = largest(code, codes)
    if cuda.threadIdx.x == 0:
        first[query] = 0 if found == -256 else abs(found)
