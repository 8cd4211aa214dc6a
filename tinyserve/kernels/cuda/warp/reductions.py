"""Sums and maxima over a warp, made of shuffles: after five exchanges every lane holds the result of all 32."""

from __future__ import annotations

from numba import cuda

from .doors import shfl_xor


@cuda.jit(device=True)
def warp_sum(value):
    """The sum of `value` over the 32 lanes, in every lane; the order of additions is fixed."""
    value += shfl_xor(value, 16)
    value += shfl_xor(value, 8)
    value += shfl_xor(value, 4)
    value += shfl_xor(value, 2)
    return value + shfl_xor(value, 1)


@cuda.jit(device=True)
def warp_max(value):
    """The maximum of `value` over the 32 lanes, in every lane."""
    value = max(value, shfl_xor(value, 16))
    value = max(value, shfl_xor(value, 8))
    value = max(value, shfl_xor(value, 4))
    value = max(value, shfl_xor(value, 2))
    return max(value, shfl_xor(value, 1))


@cuda.jit(device=True)
def quad_sum(value):
    """The sum over the 4 lanes that share a row of an mma result."""
    value += shfl_xor(value, 2)
    return value + shfl_xor(value, 1)


@cuda.jit(device=True)
def quad_max(value):
    """The maximum over the 4 lanes that share a row of an mma result."""
    value = max(value, shfl_xor(value, 2))
    return max(value, shfl_xor(value, 1))
