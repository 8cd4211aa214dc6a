"""Dense products without a library: one warp a result. On a GPU torch multiplies dense batches; this serves the simulator and decode."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32

from ..elements import FORMATS
from ..warp import warp_sum

WARPS = 4


@functools.cache
def dense(form: str, weight_form: str) -> Any:
    """The kernel for activations of one format and weights of another; K a multiple of 8."""
    read_x, read_w, write1 = FORMATS[form].read8, FORMATS[weight_form].read8, FORMATS[form].write1

    @cuda.jit
    def dense(x, weight, bias, out):
        """out[T, N] = x[T, K] @ weight[N, K].T + bias[N], in x's format; bias may be empty.

        Grid: (N / 4, rounded up; T). Block: 128. Warp w owns row w of its 4, lane i columns 8i..8i+7, 8i + 256 ...
        flops: 2 * T * N * K
        global_read_bytes: T * N * K * (nbytes + weight_nbytes) + 4 * T * biased * N
        global_write_bytes: nbytes * T * N
        """
        token, row, lane = cuda.blockIdx.y, WARPS * cuda.blockIdx.x + cuda.threadIdx.x // 32, cuda.threadIdx.x % 32
        if row < out.shape[1]:
            total = float32(0)
            for column in range(8 * lane, x.shape[1], 256):
                a, w = read_x(x, token, column), read_w(weight, row, column)
                total += (a[0] * w[0] + a[1] * w[1] + a[2] * w[2] + a[3] * w[3]) + (a[4] * w[4] + a[5] * w[5] + a[6] * w[6] + a[7] * w[7])
            total = warp_sum(total)
            if lane == 0:
                if bias.shape[0] > 0:
                    total += bias[row]
                write1(out, token, row, total)
    return dense
