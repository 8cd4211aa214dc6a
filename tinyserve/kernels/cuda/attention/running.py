"""The running softmax of `decode`, in registers: a lane adds keys one by one, then lanes and warps join what they have.

A state is the largest score so far (`tops`), the sum of weights relative to it (`totals`) and the weighted sum of values (`sums`). Two
states join after both are scaled to the larger of their maxima.
"""

from __future__ import annotations

import functools

from numba import cuda, float32

from ..warp import exp2, shfl_xor

WARPS = 4
FAR_BELOW = -1.0e30


@functools.cache
def running_softmax(head_dim: int, heads: int) -> tuple:
    """(add_key, join_lanes, join_warps) for `heads` query heads that share each key; head_dim / 8 lanes share a key."""
    lanes = head_dim // 8

    @cuda.jit(device=True)
    def score_of(query, g, k):
        """The dot product of a query and a key, over the lanes that share the key."""
        dot = (query[g, 0] * k[0] + query[g, 1] * k[1] + query[g, 2] * k[2] + query[g, 3] * k[3]) + (
            query[g, 4] * k[4] + query[g, 5] * k[5] + query[g, 6] * k[6] + query[g, 7] * k[7])
        step = lanes // 2
        while step > 0:
            dot += shfl_xor(dot, step)
            step //= 2
        return dot

    @cuda.jit(device=True)
    def add_key(query, sums, tops, totals, k, v, valid):
        for g in range(heads):
            dot = score_of(query, g, k)
            score = dot if valid else float32(FAR_BELOW)
            higher = max(tops[g], score)
            keep, weight = exp2(tops[g] - higher), exp2(score - higher) if valid else float32(0)
            tops[g], totals[g] = higher, totals[g] * keep + weight
            for i in range(8):
                sums[g, i] = sums[g, i] * keep + weight * v[i]

    @cuda.jit(device=True)
    def join_lanes(sums, tops, totals):
        """Lanes that hold the same columns of different keys join, until all of a warp hold its whole state."""
        for g in range(heads):
            step = lanes
            while step < 32:
                higher = max(tops[g], shfl_xor(tops[g], step))
                keep = exp2(tops[g] - higher)
                tops[g], totals[g] = higher, totals[g] * keep
                totals[g] += shfl_xor(totals[g], step)
                for i in range(8):
                    sums[g, i] *= keep
                    sums[g, i] += shfl_xor(sums[g, i], step)
                step *= 2

    @cuda.jit(device=True)
    def join_warps(sums, tops, totals, g, d):
        """(weighted sum of column d, maximum, total) of head g over the warps' states in shared memory."""
        top = max(max(tops[0, g], tops[1, g]), max(tops[2, g], tops[3, g]))
        total, result = float32(0), float32(0)
        for w in range(WARPS):
            keep = exp2(tops[w, g] - top)
            total += totals[w, g] * keep
            result += sums[w, g, d] * keep
        return result, top, total
    return add_key, join_lanes, join_warps
