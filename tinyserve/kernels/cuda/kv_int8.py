"""Keys and values in INT8: a code an element and one scale for each head of a slot, half the bytes of float16.

A slot is one row of bytes: the codes of all heads, then a float32 scale a head, padded to 16 bytes. So a cache is still one array, and
the view [B, P, Hk, D] of its codes has the shape that the op set asks for.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda, float32, uint32

from .elements import FORMATS, Format
from .warp import bits_float, i32, load32, load64, round_i32, shfl_xor, store32, store64, u32

PREFIX = "int8x"


def row_bytes(heads: int, head_dim: int) -> int:
    """Bytes of one slot."""
    return -(-heads * (head_dim + 4) // 16) * 16


@cuda.jit(device=True)
def _signed(word, byte):
    return float32(i32(((word >> (8 * byte) & 255) ^ 128) - 128))


@cuda.jit(device=True)
def _unpack8(words):
    a, b, scale = words[0], words[1], bits_float(words[2])
    return (_signed(a, 0) * scale, _signed(a, 1) * scale, _signed(a, 2) * scale, _signed(a, 3) * scale,
            _signed(b, 0) * scale, _signed(b, 1) * scale, _signed(b, 2) * scale, _signed(b, 3) * scale)


@cuda.jit(device=True)
def _zeros8():
    zero = uint32(0)
    return zero, zero, zero


@functools.cache
def int8_format(heads: int, head_dim: int) -> Format:
    """How kernels read such rows; it has no `write8`, because a head's scale needs all of its elements (see `store_kv_int8`)."""
    scales = heads * head_dim

    @cuda.jit(device=True)
    def load8(array, row, column):
        words = load64(array, (row, column))
        return words[0], words[1], load32(array, (row, scales + 4 * (column // head_dim)))
    return Format(f"{PREFIX}{heads}", np.uint8, 1, load8, _unpack8, _zeros8, None, None, None)


def cache_format(name: str, head_dim: int) -> Format:
    """The element format of a cache: a name of `FORMATS`, or "int8x" and the number of its heads."""
    return int8_format(int(name.removeprefix(PREFIX)), head_dim) if name.startswith(PREFIX) else FORMATS[name]


@cuda.jit(device=True)
def _largest(v):
    return max(max(max(abs(v[0]), abs(v[1])), max(abs(v[2]), abs(v[3]))), max(max(abs(v[4]), abs(v[5])), max(abs(v[6]), abs(v[7]))))


@cuda.jit(device=True)
def _word(a, b, c, d, inverse):
    return u32((round_i32(a * inverse) & 255) | (round_i32(b * inverse) & 255) << 8
               | (round_i32(c * inverse) & 255) << 16 | (round_i32(d * inverse) & 255) << 24)


@functools.cache
def store_kv_int8(form: str, heads: int, head_dim: int) -> Any:
    """The kernel for k and v of one format; head_dim a power of two from 16 to 256."""
    read8, lanes, scales = FORMATS[form].read8, head_dim // 8, heads * head_dim

    @cuda.jit(device=True)
    def write_head(cache, slot, column, v, inside):
        largest = _largest(v)
        step = lanes // 2
        while step > 0:
            largest = max(largest, shfl_xor(largest, step))
            step //= 2
        inverse = float32(127) / largest if largest > float32(0) else float32(0)
        if inside:
            store64(cache, (slot, column), (_word(v[0], v[1], v[2], v[3], inverse), _word(v[4], v[5], v[6], v[7], inverse)))
            if column % head_dim == 0:
                store32(cache, (slot, scales + 4 * (column // head_dim)), largest / float32(127))

    @cuda.jit
    def store_kv_int8(k, v, slots, key_cache, value_cache):
        """Round k[t], v[t] to INT8 per head (scale = max|x| / 127) and write them at row slots[t] of the caches [slots, row_bytes].

        Grid: T * C / (8 * 128), rounded up. Block: 128. D/8 neighbouring lanes share a head, each owning 8 of its elements.
        global_read_bytes: 2 * T * C * nbytes + 4 * T * C // 8
        global_write_bytes: 2 * T * (C + 4 * Hk)
        """
        row, piece = divmod(cuda.grid(1), scales // 8)
        inside = row < k.shape[0]
        zero = float32(0)
        a = (zero, zero, zero, zero, zero, zero, zero, zero)
        b, slot = a, 0
        if inside:
            a, b, slot = read8(k, row, 8 * piece), read8(v, row, 8 * piece), slots[row]
        write_head(key_cache, slot, 8 * piece, a, inside)
        write_head(value_cache, slot, 8 * piece, b, inside)
    return store_kv_int8
