"""Attention without stored scores: one pass over keys and values, correcting what was summed when a larger score comes
(Milakov & Gimelshein 2018; Rabe & Staats 2021)."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32

from ..warp import exp2, reciprocal, warp_sum

LOG2_E = 1.4426950408889634


@functools.cache
def attention_online(head_dim: int) -> Any:
    """The kernel for a head of head_dim float32 numbers, a multiple of 32."""
    each = head_dim // 32

    @cuda.jit
    def attention_online(q, k, v, scale, out):
        """out[T, D] = softmax(scale * q[T, D] @ k[S, D].T, causal) @ v[S, D]; row t sees keys 0..S-T+t.

        Grid: T. Block: 32. The CTA owns a row, lane i its columns i, i + 32 ... of q, k, v and out.
        flops: 4 * D * pairs + 6 * pairs
        global_read_bytes: 8 * D * pairs + 4 * T * D
        global_write_bytes: 4 * T * D
        """
        query, sums = cuda.local.array(each, float32), cuda.local.array(each, float32)
        row, lane = cuda.blockIdx.x, cuda.threadIdx.x
        for i in range(each):
            query[i], sums[i] = q[row, lane + 32 * i] * float32(scale) * float32(LOG2_E), float32(0)
        top, total = float32(-3.0e38), float32(0)
        for key in range(k.shape[0] - q.shape[0] + row + 1):
            dot = float32(0)
            for i in range(each):
                dot += query[i] * k[key, lane + 32 * i]
            score = warp_sum(dot)
            higher = max(top, score)
            keep, weight = exp2(top - higher), exp2(score - higher)
            top, total = higher, total * keep + weight
            for i in range(each):
                sums[i] = sums[i] * keep + weight * v[key, lane + 32 * i]
        share = reciprocal(total)
        for i in range(each):
            out[row, lane + 32 * i] = sums[i] * share
    return attention_online
