"""Scores over an INT8 cache: the query is rounded too, and the processor's dot instruction takes four elements at a time.

A head's block of keys holds codes + 128 as [D/4, position, 4], then one float32 scale a position; values hold codes as [position, D]
and their scales. score = float(q_codes . k_codes) * (q_scale * scale) * k_scale, the integers exact whatever the processor.
"""

from . import memory
from .attention_tiles import SPLIT, TILE
from .compiler import inline
from .dot import dot_wide
from .linear import round_to_int8
from .memory import load_f32, load_f32x16, load_i32, load_i64, load_u8x64, store_f32, store_f32x16
from .simd import broadcast, broadcast_i32, mul, sub_i32, to_f32, zero_i32x16


@inline
def _block_of(a, cache, table, head, position):
    """Where the block of a position begins, for one head."""
    return cache + head * load_i64(a + 64) + load_i32(table + position // load_i64(a + 144) * 4) * load_i64(a + 56)


@inline
def _keys_of(a, table, head, position):
    """Where the codes of 16 positions begin."""
    return _block_of(a, load_i64(a + 40), table, head, position) + position % load_i64(a + 144) * 4


@inline
def _store_four(to, q, total, s0, s1, s2, s3):
    """The dot products of one query; its scale lies at q, 128 times the sum of its codes is taken back."""
    factor, back = broadcast(load_f32(q)), broadcast_i32(total)
    store_f32x16(to, mul(to_f32(sub_i32(s0, back)), factor))
    store_f32x16(to + 64, mul(to_f32(sub_i32(s1, back)), factor))
    store_f32x16(to + 128, mul(to_f32(sub_i32(s2, back)), factor))
    store_f32x16(to + 192, mul(to_f32(sub_i32(s3, back)), factor))


@inline
def _dots_of_three(q, r, o, k0, k1, k2, k3, p, d, to, to_r, to_o):
    """Three rounded queries (scale, 128 * sum of codes, codes[D]) against 64 positions."""
    s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = u0 = u1 = u2 = u3 = zero_i32x16()
    for j in range(0, d, 4):
        v, w, x = load_i32(q + 8 + j), load_i32(r + 8 + j), load_i32(o + 8 + j)
        k = load_u8x64(k0 + j * p)
        s0, t0, u0 = dot_wide(s0, k, v), dot_wide(t0, k, w), dot_wide(u0, k, x)
        k = load_u8x64(k1 + j * p)
        s1, t1, u1 = dot_wide(s1, k, v), dot_wide(t1, k, w), dot_wide(u1, k, x)
        k = load_u8x64(k2 + j * p)
        s2, t2, u2 = dot_wide(s2, k, v), dot_wide(t2, k, w), dot_wide(u2, k, x)
        k = load_u8x64(k3 + j * p)
        s3, t3, u3 = dot_wide(s3, k, v), dot_wide(t3, k, w), dot_wide(u3, k, x)
    _store_four(to, q, load_i32(q + 4), s0, s1, s2, s3)
    _store_four(to_r, r, load_i32(r + 4), t0, t1, t2, t3)
    _store_four(to_o, o, load_i32(o + 4), u0, u1, u2, u3)


@inline
def _fetch(a, cache, table, head, begin, end):
    """Ask for the cache lines of the positions begin..end before they are needed: blocks are too short for the processor
    to see a stream in them."""
    p, block_bytes = load_i64(a + 144), load_i64(a + 56)
    for position in range(begin, end, p):
        block = _block_of(a, cache, table, head, position)
        for line in range(0, block_bytes, 64):
            memory.prefetch(block + line)


@inline
def scores_int8(a, table, head, q, group, begin, end, scores, scratch):
    """scores[group, SPLIT] of the positions begin..end, begin a multiple of 64; `scores` is where begin's score goes."""
    d, p, q_head, scale = load_i64(a + 136), load_i64(a + 144), load_i64(a + 32), load_f32(load_i64(a + 152))
    each = d + 8
    for g in range(group):
        to = scratch + g * each
        q_scale, total = round_to_int8(q + g * q_head, d, to + 8)
        store_f32(to, q_scale * scale)
        memory.store_i32(to + 4, total << 7)
    _fetch(a, load_i64(a + 40), table, head, begin, min(begin + TILE, end))
    for tile in range(begin, end, TILE):
        _fetch(a, load_i64(a + 40), table, head, tile + TILE, min(tile + 2 * TILE, end))
        _fetch(a, load_i64(a + 48), table, head, tile, min(tile + TILE, end))
        k0 = _keys_of(a, table, head, tile)
        k1 = _keys_of(a, table, head, tile + 16) if tile + 16 < end else k0
        k2 = _keys_of(a, table, head, tile + 32) if tile + 32 < end else k0
        k3 = _keys_of(a, table, head, tile + 48) if tile + 48 < end else k0
        for g in range(0, group, 3):
            h, i, to = min(g + 1, group - 1), min(g + 2, group - 1), scores + (tile - begin) * 4
            _dots_of_three(scratch + g * each, scratch + h * each, scratch + i * each, k0, k1, k2, k3, p, d,
                           to + g * SPLIT * 4, to + h * SPLIT * 4, to + i * SPLIT * 4)


@inline
def times_scales(a, cache, table, head, begin, end, row):
    """row[i] *= the scale of position begin + i, begin a multiple of 16, in one of the caches."""
    d, p = load_i64(a + 136), load_i64(a + 144)
    for i in range(0, end - begin, 16):
        position = begin + i
        scale = _block_of(a, cache, table, head, position) + d * p + position % p * 4
        store_f32x16(row + i * 4, mul(load_f32x16(row + i * 4), load_f32x16(scale)))
