"""A few tokens times a quantized weight: what decode does. The weights are read once, 128 bits a lane, and never leave registers."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32, int32

from ..elements import FORMATS
from ..warp import dp4a_s8, load64, load128, quad_sum
from .fetch import fetchers

WARPS = 4


@functools.cache
def matvec(bits: int, group: int, tokens: int, form: str) -> Any:
    """The kernel for weights of 4 or 8 bits in groups of 32, 64 or 128, 1 to 8 tokens, and results of one format."""
    fetch_codes, fetch_scales = fetchers(bits, group)
    write1 = FORMATS[form].write1
    outputs = 8 * tokens

    @cuda.jit
    def matvec(codes, scales, x, x_scales, bias, out):
        """out[T, N] = x[T, K] @ W[N, K].T + bias[N]; codes and scales as `packing.PackedWeight`, x and x_scales as `activations.quantize`.

        Grid: N / 8, rounded up. Block: 128. A CTA owns 8 rows of W; warp w takes every fourth tile of 128 columns, lane l in each of
        its 4 groups 8 columns of row l // 4 (see `packing`). Sums inside a group are integers. bias may be empty.
        flops: 2 * T * N * K
        global_read_bytes: ceil(N, 8) * ceil(K, 128) * 32 * (4 * bits + scale_bytes + T * (32 + 32)) + 4 * T * biased * N
        global_write_bytes: nbytes * T * N
        shared_reads: ceil(N, 8) * 8 * T * 4
        shared_writes: ceil(N, 8) * 8 * T * 4
        barriers: ceil(N, 8)
        """
        partial = cuda.shared.array((WARPS, outputs), float32)
        sums = cuda.local.array(tokens, float32)
        tile, lane, warp = cuda.blockIdx.x, cuda.threadIdx.x % 32, cuda.threadIdx.x // 32
        row, part = lane // 4, lane % 4
        for t in range(tokens):
            sums[t] = float32(0)
        for block in range(warp, codes.shape[1], WARPS):
            w = fetch_codes(codes, tile, block, lane)
            scale, minimum = fetch_scales(scales, tile, block, row)
            for t in range(tokens):
                a, b = load128(x, (t, block, part, 0)), load128(x, (t, block, part, 4))
                dots = (dp4a_s8(w[0], a[0], dp4a_s8(w[1], a[1], int32(0))), dp4a_s8(w[2], a[2], dp4a_s8(w[3], a[3], int32(0))),
                        dp4a_s8(w[4], b[0], dp4a_s8(w[5], b[1], int32(0))), dp4a_s8(w[6], b[2], dp4a_s8(w[7], b[3], int32(0))))
                for g in range(4):
                    x_scale, x_sum = load64(x_scales, (t, 4 * block + g, 0))
                    sums[t] += scale[g] * x_scale * float32(dots[g])
                    sums[t] += minimum[g] * x_sum if g == part else float32(0)
        for t in range(tokens):
            total = quad_sum(sums[t])
            if part == 0:
                partial[warp, 8 * t + row] = total
        cuda.syncthreads()
        for i in range(cuda.threadIdx.x, outputs, 32 * WARPS):
            n = 8 * tile + i % 8
            total = (partial[0, i] + partial[1, i]) + (partial[2, i] + partial[3, i])
            if n < out.shape[1]:
                if bias.shape[0] > 0:
                    total += bias[n]
                write1(out, i // 8, n, total)
    return matvec
