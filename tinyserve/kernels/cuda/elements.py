"""Eight neighbouring elements at a time: how kernels read and write float32, float16 and bfloat16 arrays alike.

`Format` is one way to hold numbers in memory. Arrays have two axes; columns are a multiple of 8, so that every access is 128 bits
wide. Reading may be cut in two: `load8` only asks for the registers, and `unpack8` makes numbers of them when they are needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, float32, uint32

from .warp import bits_float, load128, pack_bf16, pack_f16, store128, u32, unpack_bf16, unpack_f16


@cuda.jit(device=True)
def _load8_f32(array, row, column):
    a, b = load128(array, (row, column)), load128(array, (row, column + 4))
    return a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]


@cuda.jit(device=True)
def _unpack8_f32(words):
    return words


@cuda.jit(device=True)
def _zeros8_f32():
    zero = float32(0)
    return zero, zero, zero, zero, zero, zero, zero, zero


@cuda.jit(device=True)
def _write8_f32(array, row, column, v):
    store128(array, (row, column), (v[0], v[1], v[2], v[3]))
    store128(array, (row, column + 4), (v[4], v[5], v[6], v[7]))


@cuda.jit(device=True)
def _load8_16bit(array, row, column):
    return load128(array, (row, column))


@cuda.jit(device=True)
def _zeros8_16bit():
    zero = uint32(0)
    return zero, zero, zero, zero


@cuda.jit(device=True)
def _unpack8_f16(words):
    a, b, c, d = unpack_f16(words[0]), unpack_f16(words[1]), unpack_f16(words[2]), unpack_f16(words[3])
    return a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]


@cuda.jit(device=True)
def _write8_f16(array, row, column, v):
    words = pack_f16(v[0], v[1]), pack_f16(v[2], v[3]), pack_f16(v[4], v[5]), pack_f16(v[6], v[7])
    store128(array, (row, column), words)


@cuda.jit(device=True)
def _unpack8_bf16(words):
    a, b, c, d = unpack_bf16(words[0]), unpack_bf16(words[1]), unpack_bf16(words[2]), unpack_bf16(words[3])
    return a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]


@cuda.jit(device=True)
def _write8_bf16(array, row, column, v):
    words = pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7])
    store128(array, (row, column), words)


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


@dataclass(frozen=True)
class Format:
    """A way to hold numbers: its name, the NumPy dtype that carries it (bfloat16 travels as uint16), bytes, and device functions.

    load8(array, row, column) -> registers, unpack8(registers) -> 8 float32, zeros8() -> registers; write8(array, row, column,
    numbers); read1 and write1 for one element.
    """

    name: str
    dtype: type
    nbytes: int
    load8: Any
    unpack8: Any
    zeros8: Any
    write8: Any
    read1: Any
    write1: Any

    @property
    def read8(self) -> Any:
        """A device function (array, row, column) -> 8 float32."""
        return _READERS[self.name]


FORMATS = {
    "float32": Format("float32", np.float32, 4, _load8_f32, _unpack8_f32, _zeros8_f32, _write8_f32, _read1, _write1),
    "float16": Format("float16", np.float16, 2, _load8_16bit, _unpack8_f16, _zeros8_16bit, _write8_f16, _read1, _write1),
    "bfloat16": Format("bfloat16", np.uint16, 2, _load8_16bit, _unpack8_bf16, _zeros8_16bit, _write8_bf16, _read1_bf16, _write1_bf16),
}


def _reader(form: Format) -> Any:
    load8, unpack8 = form.load8, form.unpack8

    @cuda.jit(device=True)
    def read8(array, row, column):
        return unpack8(load8(array, row, column))
    return read8


_READERS = {name: _reader(form) for name, form in FORMATS.items()}
