"""Activations to INT8, 32 neighbours sharing a scale, in the order that the multiplying kernels read."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32

from ..elements import FORMATS
from ..warp import i32, round_i32, shfl_xor, store32, u32

THREADS = 128


@cuda.jit(device=True)
def _word(a, b, c, d):
    return u32((a & 255) | (b & 255) << 8 | (c & 255) << 16 | (d & 255) << 24)


@cuda.jit(device=True)
def _largest_of_group(v):
    largest = max(max(max(abs(v[0]), abs(v[1])), max(abs(v[2]), abs(v[3]))), max(max(abs(v[4]), abs(v[5])), max(abs(v[6]), abs(v[7]))))
    largest = max(largest, shfl_xor(largest, 1))
    return max(largest, shfl_xor(largest, 2))


@cuda.jit(device=True)
def _not_a_number(v):
    """NaN if one of the group's values is not finite, else 0: a bad activation must reach the output, not be rounded away."""
    zero = float32(0)
    bad = (v[0] * zero + v[1] * zero + v[2] * zero + v[3] * zero) + (v[4] * zero + v[5] * zero + v[6] * zero + v[7] * zero)
    bad += shfl_xor(bad, 1)
    return bad + shfl_xor(bad, 2)


@functools.cache
def _in_order(read8: Any) -> Any:
    @cuda.jit(device=True)
    def read(x, order, row, column):
        return read8(x, row, column)
    return read


@functools.cache
def _gather8(read1: Any) -> Any:
    @cuda.jit(device=True)
    def read(x, order, row, column):
        return (read1(x, row, order[column]), read1(x, row, order[column + 1]), read1(x, row, order[column + 2]),
                read1(x, row, order[column + 3]), read1(x, row, order[column + 4]), read1(x, row, order[column + 5]),
                read1(x, row, order[column + 6]), read1(x, row, order[column + 7]))
    return read


@functools.cache
def quantize(form: str, reordered: bool) -> Any:
    """The kernel for activations of one format; `reordered` ones are gathered by `order` (GPTQ's act-order), else it is not read."""
    read8 = _gather8(FORMATS[form].read1) if reordered else _in_order(FORMATS[form].read8)

    @cuda.jit
    def quantize(x, order, codes, scales):
        """x[T, K] -> codes uint32 [T, K/128, 4, 8] and scales float32 [T, K/32, 2] (scale, scale * sum of codes), K padded to 128s.

        The word [t, b, c, 2g + h] holds columns 128b + 32g + 16h + 4c..+3. Scale = max|x| / 127. K a multiple of 32.
        Column k is x[:, order[k]] where a weight has its columns in another order.
        Grid: T * K/8 / 128, rounded up, K padded. Block: 128. Four lanes share a group, each owning 8 neighbours.
        global_read_bytes: T * K * (nbytes + 4 * reordered)
        global_write_bytes: T * 128 * ceil(K, 128) + 8 * T * 4 * ceil(K, 128)
        """
        pieces = 16 * codes.shape[1]
        row, piece = divmod(cuda.grid(1), pieces)
        inside = row < x.shape[0] and 8 * piece < x.shape[1]
        zero = float32(0)
        v = (zero, zero, zero, zero, zero, zero, zero, zero)
        if inside:
            v = read8(x, order, row, 8 * piece)
        largest, bad = _largest_of_group(v), _not_a_number(v)
        inverse = float32(127) / largest if largest > zero else zero
        a, b, c, d = round_i32(v[0] * inverse), round_i32(v[1] * inverse), round_i32(v[2] * inverse), round_i32(v[3] * inverse)
        e, f, g, h = round_i32(v[4] * inverse), round_i32(v[5] * inverse), round_i32(v[6] * inverse), round_i32(v[7] * inverse)
        total = i32(a + b + c + d + e + f + g + h)
        total = i32(total + shfl_xor(total, 1))
        total = i32(total + shfl_xor(total, 2))
        if row < x.shape[0]:
            group, quarter = piece % 16 // 4, piece % 4
            block, first, word = piece // 16, 2 * (quarter % 2), 2 * group + quarter // 2
            store32(codes, (row, block, first, word), _word(a, b, c, d))
            store32(codes, (row, block, first + 1, word), _word(e, f, g, h))
            if quarter == 0:
                scale = largest / float32(127) + bad
                scales[row, piece // 4, 0] = scale
                scales[row, piece // 4, 1] = scale * float32(total)
    return quantize
