"""Rows of a weight by id: the embedding table, which tied models keep in the packed form of their output layer."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32

from ..elements import FORMATS
from ..warp import unpack_f16


@functools.cache
def embed(bits: int, group: int, form: str) -> Any:
    """The kernel for packed weights of 4 or 8 bits in groups of 32, 64 or 128, and rows of one format."""
    write1, per_tile = FORMATS[form].write1, 128 // group

    @cuda.jit
    def embed(codes, scales, ids, out):
        """out[T, K] = W[ids[t]], dequantized; codes and scales as `packing.PackedWeight`.

        Grid: T * K/4 / 128, rounded up. Block: 128. A thread owns 4 neighbours: one word of codes (for 4 bits: half of its nibbles).
        global_read_bytes: T * K // 4 * (8 + scale_bytes)
        global_write_bytes: nbytes * T * K
        """
        row, piece = divmod(cuda.grid(1), out.shape[1] // 4)
        if row < out.shape[0]:
            n, column = ids[row], 4 * piece
            tile, block, in_tile = n // 8, column // 128, column % 128
            lane, half, g = n % 8 * 4 + column % 16 // 4, column % 32 // 16, in_tile // 32
            if bits == 4:
                word = codes[tile, block, lane, g] >> (4 * half)
                scale, minimum = unpack_f16(scales[tile, block, n % 8, in_tile // (128 // per_tile)])
                for j in range(4):
                    write1(out, row, column + j, float32(word >> (8 * j) & 15) * scale + minimum)
            else:
                word = codes[tile, block, g // 2, lane, 2 * (g % 2) + half]
                scale = float32(scales[tile, block, n % 8, in_tile // (128 // per_tile)])
                for j in range(4):
                    write1(out, row, column + j, float32(((word >> (8 * j) & 255) ^ 128) - 128) * scale)
    return embed
