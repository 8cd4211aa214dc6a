"""Kernels that touch each element once: rotations, activations, cache writes, gathered rows.

Each is a factory over element formats (see `elements.py`). Arrays are [rows, columns]; heads lie side by side in the columns;
a cache is [slots, heads * head_dim]. Columns, and half a head, are multiples of 8: a thread owns 8 neighbours. T: rows.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from numba import cuda, float32

from .elements import FORMATS
from .warp import exp2, reciprocal

THREADS = 128
LOG2_E = 1.4426950408889634
GELU_SCALE, GELU_CUBE = 2 * LOG2_E * math.sqrt(2 / math.pi), 0.044715


@functools.cache
def rope(form: str) -> Any:
    """The kernel for x and out of one format; cos_sin is float32."""
    read8, write8, table8 = FORMATS[form].read8, FORMATS[form].write8, FORMATS["float32"].read8

    @cuda.jit
    def rope(x, positions, cos_sin, out):
        """Rotate the pairs (i, i + D/2) of each head of x[T, heads * D] by the angles of its row's position.

        Grid: T * heads * D / (16 * 128), rounded up. Block: 128. A thread owns 8 pairs; D is cos_sin's width (cosines, then sines).
        flops: 3 * T * heads * D
        global_read_bytes: T * heads * D * (nbytes + 4) + 4 * T * heads * D // 16
        global_write_bytes: T * heads * D * nbytes
        """
        half = cos_sin.shape[1] // 2
        pieces = x.shape[1] // 16
        row, piece = divmod(cuda.grid(1), pieces)
        if row < x.shape[0]:
            head, part = divmod(piece, half // 8)
            column, position = head * 2 * half + 8 * part, positions[row]
            a, b = read8(x, row, column), read8(x, row, column + half)
            c, s = table8(cos_sin, position, 8 * part), table8(cos_sin, position, half + 8 * part)
            write8(out, row, column, (
                a[0] * c[0] - b[0] * s[0], a[1] * c[1] - b[1] * s[1], a[2] * c[2] - b[2] * s[2], a[3] * c[3] - b[3] * s[3],
                a[4] * c[4] - b[4] * s[4], a[5] * c[5] - b[5] * s[5], a[6] * c[6] - b[6] * s[6], a[7] * c[7] - b[7] * s[7]))
            write8(out, row, column + half, (
                b[0] * c[0] + a[0] * s[0], b[1] * c[1] + a[1] * s[1], b[2] * c[2] + a[2] * s[2], b[3] * c[3] + a[3] * s[3],
                b[4] * c[4] + a[4] * s[4], b[5] * c[5] + a[5] * s[5], b[6] * c[6] + a[6] * s[6], b[7] * c[7] + a[7] * s[7]))
    return rope


@cuda.jit(device=True)
def _silu_mul(gate, up):
    return gate * reciprocal(float32(1) + exp2(-gate * float32(LOG2_E))) * up


@cuda.jit(device=True)
def _add(x, y):
    return x + y


@cuda.jit(device=True)
def _gelu(x, _):
    inner = x + float32(GELU_CUBE) * x * x * x
    return x * reciprocal(float32(1) + exp2(-inner * float32(GELU_SCALE)))


OPERATIONS = {"silu_mul": _silu_mul, "add": _add, "gelu": _gelu}


@functools.cache
def pointwise(operation: str, form: str) -> Any:
    """The kernel of "silu_mul" (gate * sigmoid(gate) * up), "add" or "gelu" (of x alone: give x twice) for one format."""
    read8, write8, f = FORMATS[form].read8, FORMATS[form].write8, OPERATIONS[operation]

    @cuda.jit
    def pointwise(x, y, out):
        """out[T, F] = f(x, y), element by element; rows of x and y may be strided.

        Grid: T * F / (8 * 128), rounded up. Block: 128. A thread owns 8 neighbours.
        global_read_bytes: 2 * T * F * nbytes
        global_write_bytes: T * F * nbytes
        """
        row, piece = divmod(cuda.grid(1), out.shape[1] // 8)
        if row < out.shape[0]:
            a, b = read8(x, row, 8 * piece), read8(y, row, 8 * piece)
            write8(out, row, 8 * piece, (f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3]),
                                         f(a[4], b[4]), f(a[5], b[5]), f(a[6], b[6]), f(a[7], b[7])))
    return pointwise


@functools.cache
def store_kv(form: str, cache_form: str) -> Any:
    """The kernel that writes k and v of one format into caches of another."""
    read8, write8 = FORMATS[form].read8, FORMATS[cache_form].write8

    @cuda.jit
    def store_kv(k, v, slots, key_cache, value_cache):
        """key_cache[slots[t]] = k[t], value_cache[slots[t]] = v[t]; k, v[T, C], caches[slots, C], C = heads * head_dim.

        Grid: T * C / (8 * 128), rounded up. Block: 128. A thread owns 8 neighbours of k and of v.
        global_read_bytes: 2 * T * C * nbytes + 4 * T * C // 8
        global_write_bytes: 2 * T * C * cache_nbytes
        """
        row, piece = divmod(cuda.grid(1), k.shape[1] // 8)
        if row < k.shape[0]:
            slot = slots[row]
            write8(key_cache, slot, 8 * piece, read8(k, row, 8 * piece))
            write8(value_cache, slot, 8 * piece, read8(v, row, 8 * piece))
    return store_kv


@functools.cache
def take_rows(form: str, out_form: str) -> Any:
    """The kernel that copies chosen rows of one format into another."""
    read8, write8 = FORMATS[form].read8, FORMATS[out_form].write8

    @cuda.jit
    def take_rows(x, rows, out):
        """out[R, H] = x[rows[r], H].

        Grid: R * H / (8 * 128), rounded up. Block: 128. A thread owns 8 neighbours.
        global_read_bytes: R * H * nbytes + 4 * R * H // 8
        global_write_bytes: R * H * out_nbytes
        """
        row, piece = divmod(cuda.grid(1), out.shape[1] // 8)
        if row < out.shape[0]:
            write8(out, row, 8 * piece, read8(x, rows[row], 8 * piece))
    return take_rows
