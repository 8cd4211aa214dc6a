"""The pieces of attention: loading a tile of keys or values, scores, softmax, the weighted sum, and merging two parts.

Every query vector is worked on in one order of float operations, whichever of the functions for one or for two runs.
"""

from . import simd
from .compiler import inline, template
from .functions import exp
from .memory import load_f16, load_f16x16, load_f32, load_f32x16, load_i8_f32x16, load_i32, load_i64, store_f32, store_f32x16
from .simd import add, broadcast, fma, mul

SPLIT, TILE = 256, 64
_INFINITY = float("inf")


@template
def _vectors(load, source, step, to, to_step, count):
    """to[i] = 16 elements at source + i * step."""
    for i in range(count):
        store_f32x16(to + i * to_step, load(source + i * step))


@inline
def _copy(size, source, step, to, to_step, count):
    """`_vectors` for elements of `size` bytes."""
    if size == 4:
        _vectors(load_f32x16, source, step, to, to_step, count)
    elif size == 2:
        _vectors(load_f16x16, source, step, to, to_step, count)
    else:
        _vectors(load_i8_f32x16, source, step, to, to_step, count)


@inline
def load_keys(a, table, head, first, count, to):
    """Keys of positions first..first+count as float32 to[D, 64]; lanes past the context hold whatever the block holds."""
    size, d, p = load_i64(a + 72), load_i64(a + 136), load_i64(a + 144)
    base = load_i64(a + 40) + head * load_i64(a + 64)
    for i in range(0, count, 1 if p < 16 else 16):
        position = first + i
        source = base + load_i32(table + position // p * 4) * load_i64(a + 56) + position % p * size
        if p < 16:
            for j in range(d):
                store_f32(to + (j * TILE + i) * 4, load_f32(source + j * p * 4) if size == 4 else load_f16(source + j * p * 2))
        else:
            _copy(size, source, p * size, to + i * 4, TILE * 4, d)


@inline
def load_values(a, table, head, first, count, to, padded):
    """Values of positions first..first+count as float32 to[64, padded]."""
    size, d, p = load_i64(a + 72), load_i64(a + 136), load_i64(a + 144)
    base = load_i64(a + 48) + head * load_i64(a + 64)
    for i in range(count):
        position = first + i
        source = base + load_i32(table + position // p * 4) * load_i64(a + 56) + position % p * d * size
        target = to + i * padded * 4
        if d != padded:
            for j in range(d):
                store_f32(target + j * 4, load_f32(source + j * 4) if size == 4 else load_f16(source + j * 2))
        else:
            _copy(size, source, 16 * size, target, 64, d // 16)


@inline
def scores_of_one(q, keys, d, scale, to):
    """to[64] = scale * (q[D] . keys[D, 64]), each position's sum over d in order."""
    s0 = s1 = s2 = s3 = broadcast(simd.f32(0))
    for j in range(d):
        v, k = broadcast(load_f32(q + j * 4)), keys + j * TILE * 4
        s0 = fma(v, load_f32x16(k), s0)
        s1 = fma(v, load_f32x16(k + 64), s1)
        s2 = fma(v, load_f32x16(k + 128), s2)
        s3 = fma(v, load_f32x16(k + 192), s3)
    _store_four(to, scale, s0, s1, s2, s3)


@inline
def scores_of_two(q, r, keys, d, scale, to):
    """`scores_of_one` of q into to[0] and of r into to[SPLIT]: every key is loaded once for both."""
    s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = broadcast(simd.f32(0))
    for j in range(d):
        v, w, k = broadcast(load_f32(q + j * 4)), broadcast(load_f32(r + j * 4)), keys + j * TILE * 4
        k0, k1, k2, k3 = load_f32x16(k), load_f32x16(k + 64), load_f32x16(k + 128), load_f32x16(k + 192)
        s0, t0 = fma(v, k0, s0), fma(w, k0, t0)
        s1, t1 = fma(v, k1, s1), fma(w, k1, t1)
        s2, t2 = fma(v, k2, s2), fma(w, k2, t2)
        s3, t3 = fma(v, k3, s3), fma(w, k3, t3)
    _store_four(to, scale, s0, s1, s2, s3)
    _store_four(to + SPLIT * 4, scale, t0, t1, t2, t3)


@inline
def _store_four(to, scale, s0, s1, s2, s3):
    factor = broadcast(scale)
    store_f32x16(to, mul(s0, factor))
    store_f32x16(to + 64, mul(s1, factor))
    store_f32x16(to + 128, mul(s2, factor))
    store_f32x16(to + 192, mul(s3, factor))


@inline
def softmax(scores, low, high):
    """scores[low:high] -> exp(score - maximum) in place; returns (maximum, sum). Lanes outside the range become 0."""
    start, stop = low // 16 * 16, (high + 15) // 16 * 16
    largest = broadcast(simd.f32(-_INFINITY))
    for i in range(start, stop, 16):
        v = simd.keep_lanes(load_f32x16(scores + i * 4), low - i, high - i, simd.f32(-_INFINITY))
        largest = simd.vmax(v, largest)
    m = simd.max_lanes(largest)
    total = broadcast(simd.f32(0))
    for i in range(start, stop, 16):
        v = exp(simd.sub(load_f32x16(scores + i * 4), broadcast(m)))
        v = simd.keep_lanes(v, low - i, high - i, simd.f32(0))
        store_f32x16(scores + i * 4, v)
        total = add(total, v)
    return m, simd.sum_lanes(total)


@inline
def weigh(p, values, padded, low, high, y):
    """y[padded] += sum of p[i] * values[i] for low <= i < high, in order."""
    for j in range(0, padded // 64 * 64, 64):
        at = y + j * 4
        y0, y1, y2, y3 = load_f32x16(at), load_f32x16(at + 64), load_f32x16(at + 128), load_f32x16(at + 192)
        for i in range(low, high):
            weight, v = broadcast(load_f32(p + i * 4)), values + (i * padded + j) * 4
            y0 = fma(weight, load_f32x16(v), y0)
            y1 = fma(weight, load_f32x16(v + 64), y1)
            y2 = fma(weight, load_f32x16(v + 128), y2)
            y3 = fma(weight, load_f32x16(v + 192), y3)
        store_f32x16(at, y0)
        store_f32x16(at + 64, y1)
        store_f32x16(at + 128, y2)
        store_f32x16(at + 192, y3)
    for j in range(padded // 64 * 64, padded, 16):
        _weigh_lanes(p, values, padded, low, high, y, j)


@inline
def weigh_two(p, values, padded, low, high, y, z):
    """`weigh` with p[0] into y and p[SPLIT] into z."""
    for j in range(0, padded // 64 * 64, 64):
        at, to = y + j * 4, z + j * 4
        y0, y1, y2, y3 = load_f32x16(at), load_f32x16(at + 64), load_f32x16(at + 128), load_f32x16(at + 192)
        z0, z1, z2, z3 = load_f32x16(to), load_f32x16(to + 64), load_f32x16(to + 128), load_f32x16(to + 192)
        for i in range(low, high):
            v = values + (i * padded + j) * 4
            one, two = broadcast(load_f32(p + i * 4)), broadcast(load_f32(p + (i + SPLIT) * 4))
            v0, v1, v2, v3 = load_f32x16(v), load_f32x16(v + 64), load_f32x16(v + 128), load_f32x16(v + 192)
            y0, z0 = fma(one, v0, y0), fma(two, v0, z0)
            y1, z1 = fma(one, v1, y1), fma(two, v1, z1)
            y2, z2 = fma(one, v2, y2), fma(two, v2, z2)
            y3, z3 = fma(one, v3, y3), fma(two, v3, z3)
        store_f32x16(at, y0)
        store_f32x16(at + 64, y1)
        store_f32x16(at + 128, y2)
        store_f32x16(at + 192, y3)
        store_f32x16(to, z0)
        store_f32x16(to + 64, z1)
        store_f32x16(to + 128, z2)
        store_f32x16(to + 192, z3)
    for j in range(padded // 64 * 64, padded, 16):
        _weigh_lanes(p, values, padded, low, high, y, j)
        _weigh_lanes(p + SPLIT * 4, values, padded, low, high, z, j)


@inline
def _weigh_lanes(p, values, padded, low, high, y, j):
    total = load_f32x16(y + j * 4)
    for i in range(low, high):
        total = fma(broadcast(load_f32(p + i * 4)), load_f32x16(values + (i * padded + j) * 4), total)
    store_f32x16(y + j * 4, total)


@inline
def merge(state, part, padded):
    """Add one split (m, l, a) to the running state: two records of [a (padded floats), m, l]."""
    m0, l0 = load_f32(state + padded * 4), load_f32(state + padded * 4 + 4)
    m1, l1 = load_f32(part + padded * 4), load_f32(part + padded * 4 + 4)
    m = m0 if m0 > m1 else m1
    c0 = exp(broadcast(m0 - m))
    c1 = exp(broadcast(m1 - m))
    for j in range(0, padded, 16):
        kept = mul(load_f32x16(state + j * 4), c0)
        store_f32x16(state + j * 4, fma(load_f32x16(part + j * 4), c1, kept))
    total = fma(broadcast(l1), c1, mul(broadcast(l0), c0))
    store_f32(state + padded * 4, m)
    store_f32(state + padded * 4 + 4, simd.max_lanes(total))
