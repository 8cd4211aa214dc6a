"""The second half of flash-decoding: splits of one context become one result."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32

from ..elements import FORMATS
from ..warp import exp2, reciprocal
from .decode import first_seen, place_of
from .running import FAR_BELOW


@functools.cache
def merge_splits(form: str, head_dim: int, split: int) -> Any:
    """The kernel that writes out in one format."""
    write8, read8, lanes = FORMATS[form].write8, FORMATS["float32"].read8, head_dim // 8

    @cuda.jit
    def merge_splits(partial, weights, query_start, lengths, window, most, out):
        """out[T, Hq * D] = the splits' sums, weighted by what each saw; arguments as `decode.paged_decode` leaves them.

        Grid: T * Hq * D/8 / 128, rounded up. Block: 128. A thread owns 8 columns of one head of a row. rows: those served.
        global_write_bytes: rows * Hq * D * nbytes
        """
        heads = weights.shape[2]
        piece = cuda.grid(1)
        row, head, column = piece // (heads * lanes), piece // lanes % heads, 8 * (piece % lanes)
        if row >= weights.shape[0]:
            return
        _, rows, context = place_of(row, query_start, lengths)
        if rows > most:
            return
        zero = float32(0)
        top, total = float32(FAR_BELOW), zero
        a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
        for part in range(first_seen(context - 1, window) // split, (context + split - 1) // split):
            other = weights[row, part, head, 0]
            higher = max(top, other)
            keep, weight = exp2(top - higher), exp2(other - higher)
            v = read8(partial[row, part], head, column)
            a, b, c, d = a * keep + v[0] * weight, b * keep + v[1] * weight, c * keep + v[2] * weight, d * keep + v[3] * weight
            e, f, g, h = e * keep + v[4] * weight, f * keep + v[5] * weight, g * keep + v[6] * weight, h * keep + v[7] * weight
            top, total = higher, total * keep + weights[row, part, head, 1] * weight
        share = reciprocal(total) if total > zero else zero
        result = a * share, b * share, c * share, d * share, e * share, f * share, g * share, h * share
        write8(out, row, head * (8 * lanes) + column, result)
    return merge_splits
