"""Choosing the next token without sorting the vocabulary.

Weights e^((x - max) / temperature) are in (0, 1], and the bits of such floats are ordered like the floats. So a prefix of the
order "falling weight, then rising id" is a pair (bits, id), and where it ends is found by bisection: count or add up what lies
before a guess, halve, 31 times over the bits and log2(V) times over the ids of equal weights. Every sum is made in a fixed
order, so draws are repeatable.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32, int32

from .block import block_max, block_sum
from .warp import exp2, float_bits, i32

LOG2_E = 1.4426950408889634
GREEDY_BELOW = 1e-6
ONE_BITS = 0x3F800000
INFINITY = float("inf")
SMALLEST = 1e-30


@functools.cache
def prefix_tools(threads: int) -> tuple:
    """(measure, cut) on one row of weights, for CTAs of `threads` threads."""
    total_of = block_sum(threads)

    @cuda.jit(device=True)
    def measure(weights, row, bits, last, counting, partial):
        """How many weights (or how much weight) lie in the prefix: those above `bits`, and equal ones up to id `last`."""
        part = float32(0)
        for i in range(cuda.threadIdx.x, weights.shape[1], threads):
            weight = weights[row, i]
            own = float_bits(weight)
            if own > bits or (own == bits and i <= last):
                part += float32(1) if counting else weight
        return total_of(part, partial)

    @cuda.jit(device=True)
    def cut(weights, row, target, counting, partial):
        """The shortest prefix whose measure reaches `target` (everything, if none does), as (bits, last)."""
        size = weights.shape[1]
        low, high = int32(0), int32(ONE_BITS + 1)
        while high - low > 1:
            middle = i32((low + high) // 2)
            if measure(weights, row, middle, size, counting, partial) >= target:
                low = middle
            else:
                high = middle
        below, last = int32(-1), i32(size - 1)
        while last - below > 1:
            middle = i32((below + last) // 2)
            if measure(weights, row, low, middle, counting, partial) >= target:
                last = middle
            else:
                below = middle
        return low, last
    return measure, cut


@functools.cache
def logit_tools(threads: int) -> tuple:
    """(largest_logit, first_equal) on one row of logits."""
    largest_of = block_max(threads)

    @cuda.jit(device=True)
    def largest_logit(logits, row, partial):
        """The maximum; infinity if any logit is NaN."""
        top = float32(-INFINITY)
        for i in range(cuda.threadIdx.x, logits.shape[1], threads):
            value = logits[row, i]
            top = max(top, value) if value == value else float32(INFINITY)
        return largest_of(top, partial)

    @cuda.jit(device=True)
    def first_equal(logits, row, top, partial):
        """The lowest id whose logit is `top`."""
        best = float32(-logits.shape[1])
        for i in range(cuda.threadIdx.x, logits.shape[1], threads):
            if logits[row, i] == top:
                best = max(best, float32(-i))
        return i32(-int32(largest_of(best, partial)))
    return largest_logit, first_equal


@functools.cache
def sample(threads: int) -> Any:
    """The kernel with CTAs of `threads` threads (512 on a GPU; the simulator is quicker with 32)."""
    warps = threads // 32
    measure, cut = prefix_tools(threads)
    largest_logit, first_equal = logit_tools(threads)

    @cuda.jit(device=True)
    def draw(weights, row, top_k, top_p, min_p, uniform, partial):
        """The token at `uniform` of what top_k, then top_p of the rest, then min_p leave."""
        bits, last = int32(0), int32(-1)
        if top_k > 0 and top_k < weights.shape[1]:
            bits, last = cut(weights, row, float32(top_k), True, partial)
        if top_p < float32(1):
            mass = measure(weights, row, bits, last, False, partial)
            bits, last = cut(weights, row, max(top_p * mass, float32(SMALLEST)), False, partial)
        least = i32(float_bits(min_p))
        if least > bits:
            bits, last = i32(least - 1), int32(-1)
        mass = measure(weights, row, bits, last, False, partial)
        _, token = cut(weights, row, max(uniform * mass, float32(SMALLEST)), False, partial)
        return token

    @cuda.jit
    def sample(logits, temperature, top_k, top_p, min_p, uniforms, weights, ids):
        """ids[S] from logits[S, V], as the op set's `sample`; -1 where a logit is NaN or +inf, or all are -inf. weights[S, V] is scratch.

        Grid: S. Block: threads. The CTA owns a row; thread i its ids i, i + threads ...; after the first pass a row comes from cache.
        global_write_bytes: 4 * S + 4 * drawn * V
        """
        partial = cuda.shared.array(warps, float32)
        row = cuda.blockIdx.x
        top = largest_logit(logits, row, partial)
        token = int32(-1)
        if float32(-INFINITY) < top < float32(INFINITY):
            if temperature[row] < float32(GREEDY_BELOW):
                token = first_equal(logits, row, top, partial)
            else:
                factor = float32(LOG2_E) / temperature[row]
                for i in range(cuda.threadIdx.x, logits.shape[1], threads):
                    weights[row, i] = exp2((logits[row, i] - top) * factor)
                token = draw(weights, row, top_k[row], top_p[row], min_p[row], uniforms[row], partial)
        if cuda.threadIdx.x == 0:
            ids[row] = token
    return sample
