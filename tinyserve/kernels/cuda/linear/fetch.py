"""How a lane takes its part of a packed tile: two registers of codes and a (scale, minimum) for each of four groups."""

from __future__ import annotations

import functools
from collections.abc import Callable

from numba import cuda, float32

from ..warp import load32, load64, load128, load128_once, unpack_f16

LOW_NIBBLES = 0x0F0F0F0F


@cuda.jit(device=True)
def _codes4(codes, tile, block, lane):
    w = load128_once(codes, (tile, block, lane, 0))
    return (w[0] & LOW_NIBBLES, w[0] >> 4 & LOW_NIBBLES, w[1] & LOW_NIBBLES, w[1] >> 4 & LOW_NIBBLES,
            w[2] & LOW_NIBBLES, w[2] >> 4 & LOW_NIBBLES, w[3] & LOW_NIBBLES, w[3] >> 4 & LOW_NIBBLES)


@cuda.jit(device=True)
def _codes8(codes, tile, block, lane):
    a, b = load128_once(codes, (tile, block, 0, lane, 0)), load128_once(codes, (tile, block, 1, lane, 0))
    return a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]


@cuda.jit(device=True)
def _scales4_group32(scales, tile, block, row):
    w = load128(scales, (tile, block, row, 0))
    a, b, c, d = unpack_f16(w[0]), unpack_f16(w[1]), unpack_f16(w[2]), unpack_f16(w[3])
    return (a[0], b[0], c[0], d[0]), (a[1], b[1], c[1], d[1])


@cuda.jit(device=True)
def _scales4_group64(scales, tile, block, row):
    w = load64(scales, (tile, block, row, 0))
    a, b = unpack_f16(w[0]), unpack_f16(w[1])
    return (a[0], a[0], b[0], b[0]), (a[1], a[1], b[1], b[1])


@cuda.jit(device=True)
def _scales4_group128(scales, tile, block, row):
    a = unpack_f16(load32(scales, (tile, block, row, 0)))
    return (a[0], a[0], a[0], a[0]), (a[1], a[1], a[1], a[1])


@cuda.jit(device=True)
def _scales8_group32(scales, tile, block, row):
    w = load64(scales, (tile, block, row, 0))
    a, b, zero = unpack_f16(w[0]), unpack_f16(w[1]), float32(0)
    return (a[0], a[1], b[0], b[1]), (zero, zero, zero, zero)


@cuda.jit(device=True)
def _scales8_group64(scales, tile, block, row):
    a, zero = unpack_f16(load32(scales, (tile, block, row, 0))), float32(0)
    return (a[0], a[0], a[1], a[1]), (zero, zero, zero, zero)


@cuda.jit(device=True)
def _scales8_group128(scales, tile, block, row):
    a, zero = float32(scales[tile, block, row, 0]), float32(0)
    return (a, a, a, a), (zero, zero, zero, zero)


SCALES = {
    (4, 32): _scales4_group32, (4, 64): _scales4_group64, (4, 128): _scales4_group128,
    (8, 32): _scales8_group32, (8, 64): _scales8_group64, (8, 128): _scales8_group128,
}


@functools.cache
def fetchers(bits: int, group: int) -> tuple[Callable, Callable]:
    """(codes, scales) for a kind of packed weight: `codes(array, tile, block, lane)` -> 8 registers, (low, high) of each group;
    `scales(array, tile, block, row)` -> 4 scales and 4 minimums."""
    return (_codes4 if bits == 4 else _codes8), SCALES[bits, group]


def scale_bytes(bits: int, group: int) -> int:
    """Bytes of scales that a lane asks for in one tile."""
    return 128 // group * (4 if bits == 4 else 2)


