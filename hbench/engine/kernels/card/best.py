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
    """Write the code (n,) of the best item of n rows (n, G), 0 where it is a distractor; of several
    with this score the lowest code counts, or the highest. `ranges`: of all codes from 1 on."""
    extremes = cuda.shared.array(THREADS, float32)
    codes = cuda.shared.array(THREADS, int32)
    query = cuda.blockIdx.x
    scores = rows[query]

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
