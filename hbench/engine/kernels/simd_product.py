"""The matrix product of vectors and items: their scores, in the instructions of AVX-512.

    s(v, g) = Σ_stretches Σ_d v_d · g_d        each inner sum in the order of d, rounded once a term (fused)

These are the sums of OpenBLAS, numpy's library, for such processors, so the bits of a score are the same with and without
numba. It is quicker, for BLAS prepares both sides for shapes of any kind; and a score depends on its two vectors alone, in
whatever block they are. Other processors, and other types than float32, are multiplied by numpy.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from itertools import product as pairs
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import Scalar, compiled
from hbench.engine.kernels.simd import LANES, Array, Instructions, llvm

ROWS, VECTORS = 8, 3  # vectors of numbers that a tile has in registers while it sums: 24 of the 32
PANEL = VECTORS * LANES  # items whose dimensions lie side by side
STRETCH = 448  # dimensions of one sum, at most, as in OpenBLAS
LARGEST = float(np.finfo(np.float32).max)
ROOM = 640 << 10  # bytes of panels at once: they stay in the second cache beside the scores
AHEAD = 4 * LANES  # items asked of the memory before they are wanted


def multiply(vectors: NDArray[np.float32], items: NDArray[np.float32], out: NDArray[np.float32]) -> bool:
    """Write the scores of vectors (B, D) and items (n, D) to `out` (B, n), if B is in whole ROWS, the numbers of every row lie
    side by side, and no score might be beyond the largest float; whether that was so."""
    rows_lie_so = vectors.flags.c_contiguous and items.strides[1] == out.strides[1] == items.itemsize
    return (
        rows_lie_so
        and len(vectors) % ROWS == 0
        and bool(multiply_panels(vectors, items, stretches(vectors.shape[1]), out))
    )


def stretches(width: int) -> NDArray[np.int64]:
    """The stretches of so many dimensions; the last two share what is left evenly, in whole sixteens."""
    found: list[int] = []
    while left := width - sum(found):
        half = -(-(left // 2) // LANES) * LANES
        found.append(left if left <= STRETCH else half if left < 2 * STRETCH else STRETCH)
    return np.array(found)


@compiled
def multiply_panels(
    vectors: NDArray[np.float32], items: NDArray[np.float32], stretches: NDArray[np.int64], out: NDArray[np.float32]
) -> bool:
    """Write the scores of vectors (B, D) and items (n, D), B in whole ROWS, to `out` (B, n), unless one might be beyond the
    largest float; whether none is."""
    deepest = min(vectors.shape[1], 2 * STRETCH)
    panels = max(ROOM // (4 * PANEL * deepest), 1)
    room = np.empty(panels * deepest * PANEL + LANES, np.float32)
    room = room[(-(room.ctypes.data // 4)) % LANES :]  # a vector across two lines of the cache is loaded twice
    edge, most = np.zeros((ROWS, PANEL), np.float32), LARGEST / largest(vectors) / len(vectors[0])
    for first in range(0, len(items), panels * PANEL):
        some, done = items[first : first + panels * PANEL], 0
        for at in range(0, len(stretches), 2):
            two = stretches[at : at + 2]
            depth = two.sum()
            packed = room[: -(-len(some) // PANEL) * depth * PANEL].reshape((-1, depth, PANEL))
            pack(some[:, done : done + depth], packed)
            if not largest(packed) < most:
                return False
            for row in range(0, len(vectors), ROWS):
                own = vectors[row : row + ROWS, done : done + depth]
                to = out[row : row + ROWS, first : first + len(some)]
                multiply_rows(own, packed, (two, np.uint64(done > 0)), (to, edge))
            done += depth
    return True


@compiled
def largest(numbers: NDArray[np.float32]) -> Scalar:
    """The largest size of finite numbers side by side; without their signs, bits have the same order."""
    bits, most = numbers.reshape(-1).view(np.uint32), np.uint32(0)
    for item in range(np.uint64(len(bits))):
        size = np.uint32(bits[item] & np.uint32(0x7FFFFFFF))
        most = np.uint32(size if size > most else most)
    return np.float64(np.array([most], np.uint32).view(np.float32)[0])


@compiled
def pack(items: NDArray[np.float32], packed: NDArray[np.float32]) -> None:
    """Write items (n, D) as panels (n / PANEL, D, PANEL), the last one filled with zeros."""
    lanes, depth = np.uint64(LANES), np.uint64(items.shape[1])
    for first in range(0, len(packed) * PANEL, LANES):
        panel, column = packed[first // PANEL], np.uint64(first % PANEL)
        turned = np.uint64(0) if first + LANES > len(items) else depth - depth % lanes
        for dimension in range(np.uint64(0), turned, lanes):
            turn((items, panel), (np.uint64(first), np.uint64(dimension), column))
        for dimension in range(turned, depth):
            for lane in range(lanes):
                row = np.uint64(first) + lane
                panel[dimension, column + lane] = items[row, dimension] if row < len(items) else 0


@compiled
def multiply_rows(
    vectors: NDArray[np.float32],
    packed: NDArray[np.float32],
    sums: tuple[NDArray[np.int64], Scalar],
    to: tuple[NDArray[np.float32], NDArray[np.float32]],
) -> None:
    """Multiply ROWS vectors (ROWS, D) with panels. `sums`: the stretches of D, and whether there were others before; `to`:
    the scores (ROWS, n), and an `edge` (ROWS, PANEL) for those that do not fill a panel."""
    (stretches, more), (out, edge) = sums, to
    for column in range(0, out.shape[1], PANEL):
        own = out[:, column : column + PANEL]
        tile = own
        if own.shape[1] < PANEL:
            tile = edge
            edge[:, : own.shape[1]] = own
        done = 0
        for depth in stretches:
            panel = packed[column // PANEL, done : done + depth]
            onto = more | np.uint64(done > 0)
            multiply_tile((vectors[:, done:], panel, tile), (np.uint64(depth), onto))
            done += depth
        if own.shape[1] < PANEL:
            own[:, :] = edge[:, : own.shape[1]]


def _one_by_one(arrays: Sequence[NDArray[np.float32]], places: tuple[Scalar, Scalar]) -> Scalar:
    """Write the sums over the first dimensions of ROWS vectors and a panel's items to `out` (ROWS, PANEL), or add them to
    it. Places: how many dimensions; whether to add."""
    (vectors, panel, out), (depth, onto) = arrays, places
    for row in range(ROWS):
        for column in range(PANEL):
            total = np.float32(0)
            for dimension in range(depth):
                total += vectors[row, dimension] * panel[dimension, column]
            out[row, column] = total + (out[row, column] if onto else np.float32(0))
    return np.uint64(0)


def _write_tile(builder: Any, arrays: Sequence[Array], places: Sequence[Any]) -> Any:
    """The same, all sums in registers."""
    ir, blocks = llvm(), importlib.import_module("numba.core.cgutils")
    (vectors, panel, out), (depth, onto) = arrays, places
    number, vector = ir.FloatType(), ir.VectorType(ir.FloatType(), LANES)
    zero, tile = ir.Constant(vector, [0.0] * LANES), list(pairs(range(ROWS), range(VECTORS)))
    fused = builder.module.declare_intrinsic(f"llvm.fma.v{LANES}f32", fnty=ir.FunctionType(vector, [vector] * 3))
    sums = {place: blocks.alloca_once(builder, vector) for place in tile}
    for each in sums.values():
        builder.store(zero, each)
    with blocks.for_range(builder, depth) as loop:
        line = panel.place(builder, vector, loop.index, 0)
        items = [
            builder.load(builder.gep(line, [ir.Constant(loop.index.type, each)]), align=4) for each in range(VECTORS)
        ]
        for row in range(ROWS):
            own = _all_lanes(builder, builder.load(vectors.place(builder, number, row, loop.index)))
            for each in range(VECTORS):
                added = builder.call(fused, [own, items[each], builder.load(sums[row, each])])
                builder.store(added, sums[row, each])
    scores = {place: out.place(builder, vector, place[0], place[1] * LANES) for place in tile}
    with builder.if_then(builder.icmp_unsigned("!=", onto, ir.Constant(onto.type, 0))):
        for place, each in sums.items():
            builder.store(builder.fadd(builder.load(scores[place], align=4), builder.load(each)), each)
    for place, each in sums.items():
        builder.store(builder.load(each), scores[place], align=4)
    return ir.Constant(ir.IntType(64), 0)


def _all_lanes(builder: Any, number: Any) -> Any:
    """A vector of one number."""
    ir = llvm()
    vector, places = ir.VectorType(number.type, LANES), ir.VectorType(ir.IntType(32), LANES)
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(places, [0] * LANES))


def _turn_one_by_one(arrays: Sequence[NDArray[np.float32]], places: tuple[Scalar, Scalar, Scalar]) -> Scalar:
    """Write LANES dimensions of LANES items to a panel (D, PANEL). Places: the first item, dimension, and column."""
    (items, panel), (first, dimension, column) = arrays, places
    for row in range(np.uint64(LANES)):
        for each in range(np.uint64(LANES)):
            panel[dimension + each, column + row] = items[first + row, dimension + each]
    return np.uint64(0)


def _write_turn(builder: Any, arrays: Sequence[Array], places: Sequence[Any]) -> Any:
    """The same: squares of 1, 2, 4, 8 lanes change places across the diagonal."""
    ir = llvm()
    (items, panel), (first, dimension, column) = arrays, places
    vector, word = ir.VectorType(ir.FloatType(), LANES), ir.IntType(32)

    def at(array: Array, row: Any, step: int, other: Any) -> Any:
        return array.place(builder, vector, builder.add(row, ir.Constant(row.type, step)), other)

    byte, hints = ir.IntType(8).as_pointer(), [ir.Constant(word, hint) for hint in (0, 3, 1)]  # read, often, data
    of_type = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    prefetch = builder.module.declare_intrinsic("llvm.prefetch.p0", fnty=of_type)
    for lane in range(LANES):
        builder.call(prefetch, [builder.bitcast(at(items, first, AHEAD + lane, dimension), byte), *hints])
    lines = [builder.load(at(items, first, lane, dimension), align=4) for lane in range(LANES)]
    for square in (1, 2, 4, 8):
        for line in (each for each in range(LANES) if not each & square):
            above, below = lines[line], lines[line + square]
            left = [lane + (LANES - square if lane & square else 0) for lane in range(LANES)]
            right = [each + square for each in left]
            for place, lanes in ((line, left), (line + square, right)):
                chosen = ir.Constant(ir.VectorType(word, LANES), lanes)
                lines[place] = builder.shuffle_vector(above, below, chosen)
    for lane, line in enumerate(lines):
        builder.store(line, at(panel, dimension, lane, column), align=4)
    return ir.Constant(ir.IntType(64), 0)


multiply_tile = Instructions(_one_by_one, "+avx512f", _write_tile)
turn = Instructions(_turn_one_by_one, "+avx512f", _write_turn)
