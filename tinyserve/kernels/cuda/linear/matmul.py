"""Batches times a quantized weight, on the tensor cores: weights go from memory to registers to the multiplier, dequantized never.

A group of 32 columns is one INT8 `mma`: its sum is an exact integer, which is then scaled and added in float32, group after group in
order. That is the CPU kernel's arithmetic, so both give the same numbers up to the rounding of each addition.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32, int32

from ..elements import FORMATS
from ..warp import load64, mma_m16n8k32_s8
from .fetch import fetchers

WARPS = 4


@functools.cache
def matmul(bits: int, group: int, row_tiles: int, form: str) -> Any:
    """The kernel for weights of 4 or 8 bits in groups of 32, 64 or 128, and CTAs of 16 * row_tiles tokens (1 to 4
    tiles); results of one format."""
    fetch_codes, fetch_scales = fetchers(bits, group)
    write1 = FORMATS[form].write1

    @cuda.jit
    def matmul(codes, scales, x, x_scales, bias, out):
        """out[T, N] = x[T, K] @ W[N, K].T + bias[N]; arguments as for `matvec`.

        Grid: (N / 32, T / (16 * row_tiles)), rounded up. Block: 128. Warp w of CTA (i, j) owns 8 rows of W (tile 4i + w) for the CTA's
        tokens: row_tiles results of 16 x 8. Rows of x past T read row T - 1 and are not written.
        flops: 2 * T * N * K
        global_write_bytes: nbytes * T * N
        """
        sums = cuda.local.array((row_tiles, 4), float32)
        lane = cuda.threadIdx.x % 32
        tile = WARPS * cuda.blockIdx.x + cuda.threadIdx.x // 32
        if tile >= codes.shape[0]:
            return
        first, row, part = 16 * row_tiles * cuda.blockIdx.y, lane // 4, lane % 4
        for m in range(row_tiles):
            for i in range(4):
                sums[m, i] = float32(0)
        for block in range(codes.shape[1]):
            w = fetch_codes(codes, tile, block, lane)
            scale0, minimum0 = fetch_scales(scales, tile, block, 2 * part)
            scale1, minimum1 = fetch_scales(scales, tile, block, 2 * part + 1)
            for m in range(row_tiles):
                upper = min(first + 16 * m + row, x.shape[0] - 1)
                lower = min(first + 16 * m + row + 8, x.shape[0] - 1)
                for g in range(4):
                    a, b = load64(x, (upper, block, part, 2 * g)), load64(x, (lower, block, part, 2 * g))
                    zero = int32(0)
                    dots = mma_m16n8k32_s8((a[0], b[0], a[1], b[1]), (w[2 * g], w[2 * g + 1]), (zero, zero, zero, zero))
                    s, t = load64(x_scales, (upper, 4 * block + g, 0)), load64(x_scales, (lower, 4 * block + g, 0))
                    sums[m, 0] += float32(dots[0]) * (scale0[g] * s[0]) + minimum0[g] * s[1]
                    sums[m, 1] += float32(dots[1]) * (scale1[g] * s[0]) + minimum1[g] * s[1]
                    sums[m, 2] += float32(dots[2]) * (scale0[g] * t[0]) + minimum0[g] * t[1]
                    sums[m, 3] += float32(dots[3]) * (scale1[g] * t[0]) + minimum1[g] * t[1]
        for m in range(row_tiles):
            for i in range(4):
                t, n = first + 16 * m + row + 8 * (i // 2), 8 * tile + 2 * part + i % 2
                if t < out.shape[0] and n < out.shape[1]:
                    total = sums[m, i]
                    if bias.shape[0] > 0:
                        total += bias[n]
                    write1(out, t, n, total)
    return matmul
