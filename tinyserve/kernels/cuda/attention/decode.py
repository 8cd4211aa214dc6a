"""One row against a long paged context: flash-decoding. The context is cut into fixed splits, each served by its own CTA
(Dao et al. 2023, "Flash-Decoding"); a second kernel merges them. Keys and values are read once for all heads that share them.

Splits begin at multiples of the split size and rows do not meet, so a row is summed in the same order whatever else is in the batch.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32

from ..elements import FORMATS
from ..kv_int8 import cache_format
from .running import FAR_BELOW, WARPS, running_softmax


@cuda.jit(device=True)
def first_seen(position, window):
    """The first key that a row at this position attends to (window 0: all)."""
    return max(0, position - window + 1) if window > 0 else 0


@cuda.jit(device=True)
def sequence_of(row, query_start):
    """The sequence that owns a row: the last one that starts at or before it. At once if all have one row, else by bisection."""
    low, high = 0, query_start.shape[0] - 1
    if row < high and query_start[row] == row and query_start[row + 1] == row + 1:
        return row
    while high - low > 1:
        middle = (low + high) // 2
        if query_start[middle] <= row:
            low = middle
        else:
            high = middle
    return low


@cuda.jit(device=True)
def place_of(row, query_start, lengths):
    """(sequence, rows of it, keys that this row sees without a window) of a row."""
    sequence = sequence_of(row, query_start)
    end = query_start[sequence + 1]
    return sequence, end - query_start[sequence], lengths[sequence] - end + row + 1


@functools.cache
def paged_decode(form: str, cache_form: str, head_dim: int, heads_per_key: int, block_size: int, split: int) -> Any:
    """The kernel for q of one format and caches of another (`kv_int8.cache_format`); head_dim 16 to 256, a power of two;
    heads_per_key query heads share a key head; blocks hold block_size positions; a CTA sums `split` of them."""
    read_q, kept = FORMATS[form].read8, cache_format(cache_form, head_dim)
    load_kv, unpack_kv, no_kv = kept.load8, kept.unpack8, kept.zeros8
    lanes = head_dim // 8
    keys = 32 // lanes
    D, G = head_dim, heads_per_key
    add_key, join_lanes, join_warps = running_softmax(head_dim, heads_per_key)

    @cuda.jit(device=True)
    def load_key(caches, tables, sequence, position, column):
        """The registers of one key and its value; positions that are not seen give zeros."""
        key_cache, value_cache, first, last = caches
        k, v = no_kv(), no_kv()
        if first <= position < last:
            slot = tables[sequence, position // block_size] * block_size + position % block_size
            k, v = load_kv(key_cache, slot, column), load_kv(value_cache, slot, column)
        return k, v

    @cuda.jit
    def paged_decode(q, key_cache, value_cache, tables, query_start, lengths, scale, window, most, partial, weights):
        """The attention of each row over one split of its context; sequences with more than `most` rows are left out.

        q[T, Hq * D], caches[slots, Hk * D], tables[S, M], query_start[S + 1], lengths[S]; scale includes log2(e).
        partial[T, splits, Hq, D] gets the weighted sum of values; weights[T, splits, Hq, 2] the largest score and the sum of weights.
        Grid: (splits, Hk, T). Block: 128. D/8 lanes share a key, each owning 8 columns; a warp takes 256/D keys at a time, the warps
        take turns, and the next keys are on their way while one set is weighed. L: keys that the rows see, added up (no window);
        P: splits that are not empty, of C CTAs for a key head (the bytes are those of a batch where every sequence has one row).
        flops: 4 * L * Hq * D
        global_read_bytes: Hk * L * (2 * D * cache_nbytes + 4 * D // 8) + Hk * (1024 * P * G * nbytes + 2560 * C)
        global_write_bytes: P * Hk * G * (4 * D + 8)
        """
        shared_sums = cuda.shared.array((WARPS, G, D), float32)
        shared_tops = cuda.shared.array((WARPS, G), float32)
        shared_totals = cuda.shared.array((WARPS, G), float32)
        query, sums = cuda.local.array((G, 8), float32), cuda.local.array((G, 8), float32)
        tops, totals = cuda.local.array(G, float32), cuda.local.array(G, float32)
        row, key_head, part_of = cuda.blockIdx.z, cuda.blockIdx.y, cuda.blockIdx.x
        lane, warp = cuda.threadIdx.x % 32, cuda.threadIdx.x // 32
        sequence, rows, context = place_of(row, query_start, lengths)
        first = max(part_of * split, first_seen(context - 1, window))
        last = min(part_of * split + split, context)
        if rows > most or first >= last:
            return
        column = 8 * (lane % lanes)
        for g in range(G):
            v = read_q(q, row, (key_head * G + g) * D + column)
            for i in range(8):
                query[g, i], sums[g, i] = v[i] * scale, float32(0)
            tops[g], totals[g] = float32(FAR_BELOW), float32(0)
        start, caches = part_of * split + warp * keys, (key_cache, value_cache, first, last)
        next_k, next_v = load_key(caches, tables, sequence, start + lane // lanes, key_head * D + column)
        for start in range(part_of * split + warp * keys, last, WARPS * keys):
            position = start + lane // lanes
            valid = first <= position < last
            k, v = unpack_kv(next_k), unpack_kv(next_v)
            next_k, next_v = load_key(caches, tables, sequence, position + WARPS * keys, key_head * D + column)
            add_key(query, sums, tops, totals, k, v, valid)
        join_lanes(sums, tops, totals)
        for g in range(G):
            if lane < lanes:
                for i in range(8):
                    shared_sums[warp, g, column + i] = sums[g, i]
            if lane == 0:
                shared_tops[warp, g], shared_totals[warp, g] = tops[g], totals[g]
        cuda.syncthreads()
        for item in range(cuda.threadIdx.x, G * D, 32 * WARPS):
            g, d = item // D, item % D
            head = key_head * G + g
            result, top, total = join_warps(shared_sums, shared_tops, shared_totals, g, d)
            partial[row, part_of, head, d] = result
            if d == 0:
                weights[row, part_of, head, 0], weights[row, part_of, head, 1] = top, total
    return paged_decode
