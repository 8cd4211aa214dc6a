"""Attention of one row: keys and values go from the cache through registers once, for three query heads at a time.

Where a step holds more rows of a sequence, `attention_tiles` unpacks a tile for all of them instead. Both do the same float
operations in the same order, so a decode step has the bits of a chunk. A group of heads that three does not divide repeats
its last head, which writes the same numbers twice.
"""

from . import simd
from .compiler import inline, template
from .memory import load_f16x16, load_f32, load_f32x16, load_i8_f32x16, load_i32, load_i64, store_f32x16
from .simd import broadcast, fma, mul

SPLIT, TILE = 256, 64


@inline
def _keys_of(a, table, head, position):
    """Where the key elements of 16 positions begin."""
    size, p = load_i64(a + 72), load_i64(a + 144)
    block = load_i32(table + position // p * 4) * load_i64(a + 56)
    return load_i64(a + 40) + head * load_i64(a + 64) + block + position % p * size


@inline
def _store_four(to, factor, s0, s1, s2, s3):
    store_f32x16(to, mul(s0, factor))
    store_f32x16(to + 64, mul(s1, factor))
    store_f32x16(to + 128, mul(s2, factor))
    store_f32x16(to + 192, mul(s3, factor))


@template
def _scores_of_three(load, q, r, o, k0, k1, k2, k3, step, d, scale, to, to_r, to_o):
    """to[64] = scale * (q[D] . keys) for positions k0.. k3 of 16 each, and the same of r and o."""
    s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = u0 = u1 = u2 = u3 = broadcast(simd.f32(0))
    for j in range(d):
        at = j * step
        v, w, x = broadcast(load_f32(q + j * 4)), broadcast(load_f32(r + j * 4)), broadcast(load_f32(o + j * 4))
        k = load(k0 + at)
        s0, t0, u0 = fma(v, k, s0), fma(w, k, t0), fma(x, k, u0)
        k = load(k1 + at)
        s1, t1, u1 = fma(v, k, s1), fma(w, k, t1), fma(x, k, u1)
        k = load(k2 + at)
        s2, t2, u2 = fma(v, k, s2), fma(w, k, t2), fma(x, k, u2)
        k = load(k3 + at)
        s3, t3, u3 = fma(v, k, s3), fma(w, k, t3), fma(x, k, u3)
    factor = broadcast(scale)
    _store_four(to, factor, s0, s1, s2, s3)
    _store_four(to_r, factor, t0, t1, t2, t3)
    _store_four(to_o, factor, u0, u1, u2, u3)


@inline
def scores_of_row(a, table, head, q, group, begin, end, scores):
    """scores[group, SPLIT] of the positions begin..end, begin a multiple of 64; `scores` is where begin's score goes."""
    size, d, p, q_head = load_i64(a + 72), load_i64(a + 136), load_i64(a + 144), load_i64(a + 32)
    scale = load_f32(load_i64(a + 152))
    step = p * size
    for tile in range(begin, end, TILE):
        k0 = _keys_of(a, table, head, tile)
        k1 = _keys_of(a, table, head, tile + 16) if tile + 16 < end else k0
        k2 = _keys_of(a, table, head, tile + 32) if tile + 32 < end else k0
        k3 = _keys_of(a, table, head, tile + 48) if tile + 48 < end else k0
        for g in range(0, group, 3):
            h, i = min(g + 1, group - 1), min(g + 2, group - 1)
            at, to = q, scores + (tile - begin) * 4
            v, w, x = at + g * q_head, at + h * q_head, at + i * q_head
            to_g, to_h, to_i = to + g * SPLIT * 4, to + h * SPLIT * 4, to + i * SPLIT * 4
            if size == 4:
                _scores_of_three(load_f32x16, v, w, x, k0, k1, k2, k3, step, d, scale, to_g, to_h, to_i)
            else:
                _scores_of_three(load_f16x16, v, w, x, k0, k1, k2, k3, step, d, scale, to_g, to_h, to_i)


@template
def _weigh_three(load, a, table, base, size, begin, end, p, r, o, y, z, u):
    """y[64] = sum of p[i] * values[i][64] for begin <= i < end in order, and the same of r into z and o into u."""
    y0 = y1 = y2 = y3 = z0 = z1 = z2 = z3 = u0 = u1 = u2 = u3 = broadcast(simd.f32(0))
    d, block_size = load_i64(a + 136), load_i64(a + 144)
    position = begin
    while position < end:
        stop = min(end, (position // block_size + 1) * block_size)
        v = base + load_i32(table + position // block_size * 4) * load_i64(a + 56) + position % block_size * d * size
        for i in range(position - begin, stop - begin):
            one, two, three = broadcast(load_f32(p + i * 4)), broadcast(load_f32(r + i * 4)), broadcast(load_f32(o + i * 4))
            value = load(v)
            y0, z0, u0 = fma(one, value, y0), fma(two, value, z0), fma(three, value, u0)
            value = load(v + 16 * size)
            y1, z1, u1 = fma(one, value, y1), fma(two, value, z1), fma(three, value, u1)
            value = load(v + 32 * size)
            y2, z2, u2 = fma(one, value, y2), fma(two, value, z2), fma(three, value, u2)
            value = load(v + 48 * size)
            y3, z3, u3 = fma(one, value, y3), fma(two, value, z3), fma(three, value, u3)
            v += d * size
        position = stop
    factor = broadcast(simd.f32(1))
    _store_four(y, factor, y0, y1, y2, y3)
    _store_four(z, factor, z0, z1, z2, z3)
    _store_four(u, factor, u0, u1, u2, u3)


@inline
def weigh_row(a, table, head, group, begin, end, weights, records, record_bytes):
    """records[group][D] = sum of weights[group, i] * values[i] for begin <= i < end; `weights` is where begin's weight lies."""
    size, d = load_i64(a + 72), load_i64(a + 136)
    for g in range(0, group, 3):
        h, i = min(g + 1, group - 1), min(g + 2, group - 1)
        p, r, o = weights + g * SPLIT * 4, weights + h * SPLIT * 4, weights + i * SPLIT * 4
        for j in range(0, d, 64):
            base = load_i64(a + 48) + head * load_i64(a + 64) + j * size
            y, z, u = records + g * record_bytes + j * 4, records + h * record_bytes + j * 4, records + i * record_bytes + j * 4
            if size == 4:
                _weigh_three(load_f32x16, a, table, base, 4, begin, end, p, r, o, y, z, u)
            elif size == 2:
                _weigh_three(load_f16x16, a, table, base, 2, begin, end, p, r, o, y, z, u)
            else:
                _weigh_three(load_i8_f32x16, a, table, base, 1, begin, end, p, r, o, y, z, u)
