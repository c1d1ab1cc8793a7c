"""The kernel: of every query, the code of the item that has the best score, where not all positives
are listed.
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
    """Write to `first` (n,) the code of the item that has the best score in each row (n, G), one
    query per block of threads; 0 where it is a distractor.

    A code is a level, or under partial labels one of two per level. Of several items with the best
    score the lowest code counts if `ranges.pessimistic`, else the highest. `ranges`: the columns of
    each code from 1 on.
    """
    extremes = cuda.shared.array(THREADS, float32)
    codes = cuda.shared.array(THREADS, int32)
    query = cuda.blockIdx.x
    scores = rows[query]

    # each thread takes every T-th column, and `largest` compares what the T threads found
    own = -INFINITY
    for column in range(cuda.threadIdx.x, len(scores), cuda.blockDim.x):
        own = max(own, scores[column])
    best = largest(own, extremes)

    # every thread looks at its share of the items; the lowest code of all is the largest of the
    # negatives, which begin above −256, for a code is a byte
    code = int32(-256)
    if best > -INFINITY:
        for column in range(cuda.threadIdx.x, len(scores), cuda.blockDim.x):
            if scores[column] == best:
                here = int32(code_of(ranges, query, column))
                code = max(code, -here if ranges.pessimistic else here)
    found = largest(code, codes)
    if cuda.threadIdx.x == 0:
        first[query] = 0 if found == -256 else abs(found)
