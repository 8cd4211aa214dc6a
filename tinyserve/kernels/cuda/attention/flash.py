"""Tiles of queries against tiles of paged keys and values on the tensor cores: FlashAttention-2 (Dao 2023) over a block table.

Serves prefill, chunks and verification: any number of rows of a sequence, the last of its context. The query heads that share a key
head are packed into the rows of a tile: packed row r is query r // G, head r % G. Key tiles begin at multiples of the tile size.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda, float32, uint32

from .. import warp
from ..warp import exp2, pack_bf16, pack_f16, quad_max, quad_sum, reciprocal
from .decode import first_seen
from .running import FAR_BELOW

QUERIES = 64
TILE_ELEMENTS = 4096
KINDS = {
    "float16": (np.float16, pack_f16, warp.mma_m16n8k16_f16),
    "bfloat16": (np.uint16, pack_bf16, warp.mma_m16n8k16_bf16),
}


@functools.cache
def tile_tools(head_dim: int, block_size: int) -> tuple:
    """(swizzled, fetch) for tiles of [keys, head_dim] 16-bit numbers in shared memory."""
    rows_a_line, pieces = max(1, 64 // head_dim), head_dim // 8
    turns, keys = min(8, pieces), TILE_ELEMENTS // head_dim
    per_thread = keys * pieces // 128

    @cuda.jit(device=True)
    def swizzled(row, column):
        """Where a row keeps a column: 16-byte pieces change places from row to row, so 8 rows of an ldmatrix meet 8 bank groups."""
        return column ^ (8 * (row // rows_a_line % turns))

    @cuda.jit(device=True)
    def fetch(tile, stage, cache, tables, sequence, start, first, last, left):
        """Begin the copy of keys start..start+keys-1 to tile[stage]; keys outside first..last-1 become zeros."""
        for i in range(per_thread):
            piece = 128 * i + cuda.threadIdx.x
            row, column = piece // pieces, 8 * (piece % pieces)
            position = start + row
            valid = first <= position < last
            slot = tables[sequence, position // block_size] * block_size + position % block_size if valid else 0
            warp.cp_async(tile, (stage, row, swizzled(row, column)), cache, (slot, left + column), valid)
    return swizzled, fetch


@functools.cache
def score_tools(form: str, head_dim: int, swizzled: Any) -> tuple:
    """(multiply_keys, multiply_values) for one warp's 16 rows."""
    _, pack, mma = KINDS[form]
    keys = TILE_ELEMENTS // head_dim
    steps, key_pairs, column_pairs = head_dim // 16, keys // 16, head_dim // 16

    @cuda.jit(device=True)
    def add_product(sums, n, a, b0, b1):
        sums[n, 0], sums[n, 1], sums[n, 2], sums[n, 3] = mma(a, (b0, b1), (sums[n, 0], sums[n, 1], sums[n, 2], sums[n, 3]))

    @cuda.jit(device=True)
    def multiply_keys(scores, query, tile, stage, lane):
        """scores[16, keys] = query @ tile[stage].T"""
        for n in range(2 * key_pairs):
            for i in range(4):
                scores[n, i] = float32(0)
        for step in range(steps):
            a = query[step, 0], query[step, 1], query[step, 2], query[step, 3]
            for pair in range(key_pairs):
                row = 16 * pair + lane % 8 + 8 * (lane // 16)
                b = warp.ldmatrix_x4(tile, (stage, row, swizzled(row, 16 * step + 8 * (lane // 8 % 2))))
                add_product(scores, 2 * pair, a, b[0], b[1])
                add_product(scores, 2 * pair + 1, a, b[2], b[3])

    @cuda.jit(device=True)
    def multiply_values(sums, scores, tile, stage, lane):
        """sums[16, D] += scores @ tile[stage]: the layout of a result is that of a left operand, so weights stay in registers."""
        for pair in range(key_pairs):
            n = 2 * pair
            a = (pack(scores[n, 0], scores[n, 1]), pack(scores[n, 2], scores[n, 3]),
                 pack(scores[n + 1, 0], scores[n + 1, 1]), pack(scores[n + 1, 2], scores[n + 1, 3]))
            row = 16 * pair + lane % 16
            for columns in range(column_pairs):
                b = warp.ldmatrix_x4_trans(tile, (stage, row, swizzled(row, 16 * columns + 8 * (lane // 16))))
                add_product(sums, 2 * columns, a, b[0], b[1])
                add_product(sums, 2 * columns + 1, a, b[2], b[3])
    return multiply_keys, multiply_values


@functools.cache
def softmax_tools(head_dim: int) -> tuple:
    """(mask, weigh) on one warp's scores; each lane holds two rows, `half` 0 and 1."""
    key_tiles, column_tiles = TILE_ELEMENTS // head_dim // 8, head_dim // 8

    @cuda.jit(device=True)
    def mask(scores, start, upper, lower, window, lane):
        """Scores of keys that a row does not see become very small; upper and lower are the positions of the lane's two rows."""
        for n in range(key_tiles):
            for i in range(4):
                key = start + 8 * n + 2 * (lane % 4) + i % 2
                position = upper if i < 2 else lower
                if key > position or key < first_seen(position, window):
                    scores[n, i] = float32(FAR_BELOW)

    @cuda.jit(device=True)
    def weigh(scores, sums, tops, totals, scale):
        """Scores become weights; what was summed before is scaled to the new maximum of each row."""
        for half in range(2):
            a, b = 2 * half, 2 * half + 1
            top = tops[half]
            for n in range(key_tiles):
                scores[n, a], scores[n, b] = scores[n, a] * scale, scores[n, b] * scale
                top = max(top, max(scores[n, a], scores[n, b]))
            top = quad_max(top)
            keep = exp2(tops[half] - top)
            tops[half], total = top, totals[half] * keep
            for n in range(key_tiles):
                scores[n, a], scores[n, b] = exp2(scores[n, a] - top), exp2(scores[n, b] - top)
                total += scores[n, a] + scores[n, b]
            totals[half] = total
            for n in range(column_tiles):
                sums[n, a], sums[n, b] = sums[n, a] * keep, sums[n, b] * keep
    return mask, weigh


@functools.cache
def flash_prefill(form: str, head_dim: int, heads_per_key: int, block_size: int) -> Any:
    """The kernel for float16 or bfloat16, head_dim 32, 64 or 128, and heads_per_key query heads that share a key head."""
    dtype, pack, _ = KINDS[form]
    swizzled, fetch = tile_tools(head_dim, block_size)
    multiply_keys, multiply_values = score_tools(form, head_dim, swizzled)
    mask, weigh = softmax_tools(head_dim)
    D, G, keys = head_dim, heads_per_key, TILE_ELEMENTS // head_dim
    steps, key_tiles, column_tiles = D // 16, keys // 8, D // 8

    @cuda.jit
    def flash_prefill(q, key_cache, value_cache, tables, query_start, lengths, scale, window, fewest, out):
        """out[T, Hq * D]: causal attention of every sequence that has at least `fewest` rows in q[T, Hq * D].

        caches[slots, Hk * D], tables[S, M], query_start[S + 1], lengths[S] (contexts, these rows included); scale includes log2(e).
        Grid: (most rows of a sequence * G / 64, rounded up; Hk; S). Block: 128. A CTA owns 64 packed rows, each warp 16, and goes
        over the keys that they see in tiles of 4096/D; the next tile is on its way while one is multiplied (cp.async, two stages).
        tiles: the key tiles visited by all CTAs of one key head; rows: those of the sequences served; blocks: CTAs of one key head.
        flops: 4 * 64 * 4096 * tiles * Hk
        shared_read_bytes: 2 * 4 * 8192 * tiles * Hk
        global_write_bytes: 2 * rows * G * D * Hk
        bank_conflicts: 0
        barriers: 2 * tiles * Hk
        """
        key_tile = cuda.shared.array((2, keys, D), dtype, alignment=128)
        value_tile = cuda.shared.array((2, keys, D), dtype, alignment=128)
        query = cuda.local.array((steps, 4), uint32)
        scores, sums = cuda.local.array((key_tiles, 4), float32), cuda.local.array((column_tiles, 4), float32)
        tops, totals = cuda.local.array(2, float32), cuda.local.array(2, float32)
        sequence, key_head = cuda.blockIdx.z, cuda.blockIdx.y
        lane, first_row = cuda.threadIdx.x % 32, QUERIES * cuda.blockIdx.x
        row_start, context = query_start[sequence], lengths[sequence]
        rows = query_start[sequence + 1] - row_start
        if rows < fewest or first_row >= rows * G:
            return
        before = context - rows
        upper = first_row + 16 * (cuda.threadIdx.x // 32) + lane // 4
        lower = upper + 8
        for step in range(steps):
            for i in range(4):
                packed = min(upper if i % 2 == 0 else lower, rows * G - 1)
                column = (key_head * G + packed % G) * D + 16 * step + 2 * (lane % 4) + 8 * (i // 2)
                query[step, i] = warp.load32(q, (row_start + packed // G, column))
        for n in range(column_tiles):
            for i in range(4):
                sums[n, i] = float32(0)
        for half in range(2):
            tops[half], totals[half] = float32(FAR_BELOW), float32(0)
        first = first_seen(before + first_row // G, window)
        last = before + min(rows - 1, (first_row + QUERIES - 1) // G) + 1
        first_tile, last_tile = first // keys, (last + keys - 1) // keys
        left = key_head * D
        fetch(key_tile, first_tile % 2, key_cache, tables, sequence, first_tile * keys, first, last, left)
        fetch(value_tile, first_tile % 2, value_cache, tables, sequence, first_tile * keys, first, last, left)
        warp.cp_async_commit()
        for tile in range(first_tile, last_tile):
            start, stage = tile * keys, tile % 2
            if tile + 1 < last_tile:
                fetch(key_tile, 1 - stage, key_cache, tables, sequence, start + keys, first, last, left)
                fetch(value_tile, 1 - stage, value_cache, tables, sequence, start + keys, first, last, left)
            warp.cp_async_commit()
            warp.cp_async_wait(1)
            cuda.syncthreads()
            multiply_keys(scores, query, key_tile, stage, lane)
            if start + keys > before + first_row // G or window > 0:
                mask(scores, start, before + upper // G, before + lower // G, window, lane)
            weigh(scores, sums, tops, totals, scale)
            multiply_values(sums, scores, value_tile, stage, lane)
            cuda.syncthreads()
        for half in range(2):
            packed = lower if half else upper
            share = reciprocal(quad_sum(totals[half]))
            if packed < rows * G:
                for n in range(column_tiles):
                    column = (key_head * G + packed % G) * D + 8 * n + 2 * (lane % 4)
                    word = pack(sums[n, 2 * half] * share, sums[n, 2 * half + 1] * share)
                    warp.store32(out, (row_start + packed // G, column), word)
    return flash_prefill
