"""Kernels that look at a whole row before they write it: norms and the log-probabilities. One CTA of 128 threads a row."""

from __future__ import annotations

import functools
import math
from typing import Any

from numba import cuda, float32

from .block import block_max, block_sum
from .elements import FORMATS
from .warp import exp2

THREADS = 128
WARPS = THREADS // 32
LOG2_E = 1.4426950408889634
FAR_BELOW = -3.0e38
_block_sum, _block_max = block_sum(THREADS), block_max(THREADS)


@cuda.jit(device=True)
def _sum8(v):
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]))


@cuda.jit(device=True)
def _squares8(v, mean):
    a, b, c, d = v[0] - mean, v[1] - mean, v[2] - mean, v[3] - mean
    e, f, g, h = v[4] - mean, v[5] - mean, v[6] - mean, v[7] - mean
    return (a * a + b * b + c * c + d * d) + (e * e + f * f + g * g + h * h)


@functools.cache
def rms_norm(form: str) -> Any:
    """The kernel for x and out of one format; weight is float32."""
    read8, write8, weight8 = FORMATS[form].read8, FORMATS[form].write8, FORMATS["float32"].read8

    @cuda.jit
    def rms_norm(x, weight, eps, out):
        """out[T, H] = x / sqrt(mean(x^2) + eps) * weight[1, H].

        Grid: T. Block: 128. The CTA owns a row, thread i its elements 8i..8i+7, 8i + 1024 ...; x comes twice, from cache the second time.
        flops: 4 * T * H
        global_read_bytes: T * H * (2 * nbytes + 4)
        global_write_bytes: T * H * nbytes
        barriers: 2 * T
        """
        partial = cuda.shared.array(WARPS, float32)
        row, columns = cuda.blockIdx.x, x.shape[1]
        total = float32(0)
        for column in range(8 * cuda.threadIdx.x, columns, 8 * THREADS):
            total += _squares8(read8(x, row, column), float32(0))
        mean = _block_sum(total, partial) / float32(columns)
        scale = float32(1) / math.sqrt(mean + float32(eps))
        for column in range(8 * cuda.threadIdx.x, columns, 8 * THREADS):
            v, w = read8(x, row, column), weight8(weight, 0, column)
            write8(out, row, column, (v[0] * scale * w[0], v[1] * scale * w[1], v[2] * scale * w[2], v[3] * scale * w[3],
                                      v[4] * scale * w[4], v[5] * scale * w[5], v[6] * scale * w[6], v[7] * scale * w[7]))
    return rms_norm


@functools.cache
def layer_norm(form: str) -> Any:
    """The kernel for x and out of one format; weight and bias are float32."""
    read8, write8, weight8 = FORMATS[form].read8, FORMATS[form].write8, FORMATS["float32"].read8

    @cuda.jit
    def layer_norm(x, weight, bias, eps, out):
        """out[T, H] = (x - mean) / sqrt(variance + eps) * weight[1, H] + bias[1, H].

        Grid: T. Block: 128. As rms_norm, with one more pass (from cache): the variance is that of the differences.
        flops: 8 * T * H
        global_read_bytes: T * H * (3 * nbytes + 8)
        global_write_bytes: T * H * nbytes
        barriers: 4 * T
        """
        partial = cuda.shared.array(WARPS, float32)
        row, columns = cuda.blockIdx.x, x.shape[1]
        total, squares = float32(0), float32(0)
        for column in range(8 * cuda.threadIdx.x, columns, 8 * THREADS):
            total += _sum8(read8(x, row, column))
        mean = _block_sum(total, partial) / float32(columns)
        for column in range(8 * cuda.threadIdx.x, columns, 8 * THREADS):
            squares += _squares8(read8(x, row, column), mean)
        variance = _block_sum(squares, partial) / float32(columns)
        scale = float32(1) / math.sqrt(variance + float32(eps))
        for column in range(8 * cuda.threadIdx.x, columns, 8 * THREADS):
            v, w, b = read8(x, row, column), weight8(weight, 0, column), weight8(bias, 0, column)
            write8(out, row, column, (
                (v[0] - mean) * scale * w[0] + b[0], (v[1] - mean) * scale * w[1] + b[1],
                (v[2] - mean) * scale * w[2] + b[2], (v[3] - mean) * scale * w[3] + b[3],
                (v[4] - mean) * scale * w[4] + b[4], (v[5] - mean) * scale * w[5] + b[5],
                (v[6] - mean) * scale * w[6] + b[6], (v[7] - mean) * scale * w[7] + b[7]))
    return layer_norm


@cuda.jit
def log_softmax(x, out):
    """out[S, V] = x - max(x) - ln(sum(e^(x - max(x)))), float32.

    Grid: S. Block: 128. Thread i owns elements i, i + 128 ...; x comes three times, from cache after the first.
    flops: 5 * S * V
    global_read_bytes: 12 * S * V
    global_write_bytes: 4 * S * V
    barriers: 4 * S
    """
    partial = cuda.shared.array(WARPS, float32)
    row, thread, size = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    top, total = float32(FAR_BELOW), float32(0)
    for i in range(thread, size, THREADS):
        top = max(top, x[row, i])
    top = _block_max(top, partial)
    for i in range(thread, size, THREADS):
        total += exp2((x[row, i] - top) * float32(LOG2_E))
    shift = top + math.log(_block_sum(total, partial))
    for i in range(thread, size, THREADS):
        out[row, i] = x[row, i] - shift
