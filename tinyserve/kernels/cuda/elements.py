"""Eight neighbouring elements at a time: how kernels read and write float32, float16 and bfloat16 arrays alike.

`Format` is one way to hold numbers in memory. Its `read8(array, row, column)` gives eight float32, `read1`
one; `write8` and `write1` take them. Arrays have two axes; columns are a multiple of 8, so that every access is 128 bits wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, float32

from .warp import bits_float, load128, pack_bf16, pack_f16, store128, u32, unpack_bf16, unpack_f16


@cuda.jit(device=True)
def _read8_f32(array, row, column):
    a, b = load128(array, (row, column)), load128(array, (row, column + 4))
    return a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]


@cuda.jit(device=True)
def _write8_f32(array, row, column, v):
    store128(array, (row, column), (v[0], v[1], v[2], v[3]))
    store128(array, (row, column + 4), (v[4], v[5], v[6], v[7]))


@cuda.jit(device=True)
def _read1(array, row, column):
    return float32(array[row, column])


@cuda.jit(device=True)
def _read1_bf16(array, row, column):
    return bits_float(u32(array[row, column]) << 16)


@cuda.jit(device=True)
def _write1(array, row, column, value):
    array[row, column] = value


@cuda.jit(device=True)
def _write1_bf16(array, row, column, value):
    array[row, column] = pack_bf16(value, value) & 0xFFFF


@cuda.jit(device=True)
def _read8_f16(array, row, column):
    words = load128(array, (row, column))
    a, b, c, d = unpack_f16(words[0]), unpack_f16(words[1]), unpack_f16(words[2]), unpack_f16(words[3])
    return a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]


@cuda.jit(device=True)
def _write8_f16(array, row, column, v):
    store128(array, (row, column), (pack_f16(v[0], v[1]), pack_f16(v[2], v[3]), pack_f16(v[4], v[5]), pack_f16(v[6], v[7])))


@cuda.jit(device=True)
def _read8_bf16(array, row, column):
    words = load128(array, (row, column))
    a, b, c, d = unpack_bf16(words[0]), unpack_bf16(words[1]), unpack_bf16(words[2]), unpack_bf16(words[3])
    return a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]


@cuda.jit(device=True)
def _write8_bf16(array, row, column, v):
    store128(array, (row, column), (pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7])))


@dataclass(frozen=True)
class Format:
    """A way to hold numbers: its name, the NumPy dtype that carries it (bfloat16 travels as uint16), bytes, and its accesses."""

    name: str
    dtype: type
    nbytes: int
    read8: Any
    write8: Any
    read1: Any
    write1: Any


FORMATS = {
    "float32": Format("float32", np.float32, 4, _read8_f32, _write8_f32, _read1, _write1),
    "float16": Format("float16", np.float16, 2, _read8_f16, _write8_f16, _read1, _write1),
    "bfloat16": Format("bfloat16", np.uint16, 2, _read8_bf16, _write8_bf16, _read1_bf16, _write1_bf16),
}
