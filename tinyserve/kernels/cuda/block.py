"""Reductions over the threads of a CTA: shuffles inside each warp, then one number a warp through shared memory."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda

from .warp import warp_max, warp_sum


@cuda.jit(device=True)
def _add(a, b):
    return a + b


@cuda.jit(device=True)
def _max(a, b):
    return max(a, b)


@functools.cache
def _reduction(threads: int, within: Any, combine: Any) -> Any:
    warps = threads // 32

    @cuda.jit(device=True)
    def reduce(value, partial):
        value = within(value)
        if cuda.threadIdx.x % 32 == 0:
            partial[cuda.threadIdx.x // 32] = value
        cuda.syncthreads()
        total = partial[0]
        for warp in range(1, warps):
            total = combine(total, partial[warp])
        cuda.syncthreads()
        return total
    return reduce


def block_sum(threads: int) -> Any:
    """A device function (value, partial) -> the sum over a CTA of `threads` threads, in every thread; the order is fixed.
    `partial` is shared memory for one number a warp. Every thread must call it: it holds two barriers."""
    return _reduction(threads, warp_sum, _add)


def block_max(threads: int) -> Any:
    """The same for the maximum; NaN is not seen."""
    return _reduction(threads, warp_max, _max)
