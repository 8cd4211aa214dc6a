"""Choosing the next token, and log-probabilities.

Sampling never sorts the vocabulary. Probabilities fall into 1,024 buckets by their leading bits, so bucket order is
probability order; top-k, top-p and min-p each keep a prefix of that order, and only the buckets where a prefix ends (or the
draw lands) are sorted.
"""

import numpy as np
from numba import carray

from . import memory, simd
from .compiler import inline, kernel
from .functions import exp, log
from .memory import as_pointer, load_f32, load_i32, load_i64, load_some, store_some
from .simd import add, broadcast, mul, sub
from .team import claim

_INFINITY = float("inf")
BUCKETS = 1024


@inline
def _maximum(x, size):
    """The largest of x[size]; NaN if any is NaN."""
    largest, poison = broadcast(simd.f32(-_INFINITY)), broadcast(simd.f32(0))
    for i in range(0, size, 16):
        v = simd.keep_lanes(load_some(x + i * 4, size - i), 0, size - i, simd.f32(-_INFINITY))
        largest = simd.vmax(v, largest)
        poison = simd.keep_nan(v, poison)
    return simd.max_lanes(largest) + simd.sum_lanes(poison)


@inline
def _argmax(x, size):
    """The lowest index of the largest value; -1 where a value is NaN or +inf, or all are -inf."""
    m = _maximum(x, size)
    if simd.f32(-_INFINITY) < m < simd.f32(_INFINITY):
        for i in range(0, size, 16):
            lane = simd.first_equal(simd.keep_lanes(load_some(x + i * 4, size - i), 0, size - i, simd.f32(-_INFINITY)), broadcast(m))
            if lane < 16:
                return i + lane
    return -1


@inline
def _sorted_bucket(p, bucket):
    """Indices of this bucket by falling probability, then rising index."""
    keys = np.empty(p.size, np.int64)
    bits, count = p.view(np.int32), 0
    for i in range(p.size):
        if bits[i] >> 20 == bucket:
            keys[count] = (np.int64(0x7FFFFFFF - bits[i]) << 32) | i
            count += 1
    return np.sort(keys[:count]) & np.int64(0xFFFFFFFF)


@inline
def _histogram(p, counts, sums):
    bits = p.view(np.int32)
    for i in range(p.size):
        if p[i] > 0:
            bucket = bits[i] >> 20
            counts[bucket] += 1
            sums[bucket] += p[i]


@inline
def _prefix(p, counts, sums, limit_count, limit_mass, least):
    """The shortest prefix of falling probability that reaches `limit_count` tokens or `limit_mass`, or ends before the first
    p < least; returns (tokens, mass, last index)."""
    tokens, mass, last = 0, 0.0, -1
    for bucket in range(BUCKETS - 1, -1, -1):
        if counts[bucket] == 0:
            continue
        whole = tokens + counts[bucket] < limit_count and mass + sums[bucket] < limit_mass
        if whole and (bucket << 20) >= least:
            tokens += counts[bucket]
            mass += sums[bucket]
            last = -bucket - 2
            continue
        for index in _sorted_bucket(p, bucket):
            if p.view(np.int32)[index] < least:
                return tokens, mass, last
            tokens, mass, last = tokens + 1, mass + p[index], index
            if tokens >= limit_count or mass >= limit_mass:
                return tokens, mass, last
    return tokens, mass, last


@inline
def _draw(x, size, temperature, top_k, top_p, min_p, uniform, scratch):
    """One token id from logits x[size]; -1 where a logit is NaN, +inf, or all are -inf."""
    m = _maximum(x, size)
    if not (simd.f32(-_INFINITY) < m < simd.f32(_INFINITY)):
        return -1
    factor = broadcast(simd.f32(1) / temperature)
    for i in range(0, size, 16):
        v = exp(mul(sub(load_some(x + i * 4, size - i), broadcast(m)), factor))
        store_some(scratch + i * 4, v, size - i)
    p = carray(as_pointer(scratch), (size,), np.float32)
    counts, sums = np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.float64)
    _histogram(p, counts, sums)
    limit = top_k if top_k > 0 else size + 1
    tokens, mass, _ = _prefix(p, counts, sums, limit, _INFINITY, 1)
    if top_p < 1:
        tokens, mass, _ = _prefix(p, counts, sums, tokens, top_p * mass, 1)
    if min_p > 0:
        least = np.array([min_p], np.float32).view(np.int32)[0]
        tokens, mass, _ = _prefix(p, counts, sums, tokens, _INFINITY, max(1, least))
    _, _, last = _prefix(p, counts, sums, tokens, uniform * mass * (1 + 1e-15) + 1e-300, 1)
    if last < -1:
        members = _sorted_bucket(p, -last - 2)
        last = members[members.size - 1]
    return last


@kernel
def sample(a, thread, threads, barrier):
    """Arguments: logits, row bytes, S, V, temperature, top_k, top_p, min_p, uniforms, ids, scratch, scratch bytes a thread."""
    x, x_stride, rows, size = load_i64(a + 16), load_i64(a + 24), load_i64(a + 32), load_i64(a + 40)
    scratch = load_i64(a + 96) + thread * load_i64(a + 104)
    while True:
        row = claim(a)
        if row >= rows:
            break
        temperature = load_f32(load_i64(a + 48) + row * 4)
        if temperature < 1e-6:
            token = _argmax(x + row * x_stride, size)
        else:
            token = _draw(x + row * x_stride, size, temperature, load_i32(load_i64(a + 56) + row * 4),
                          load_f32(load_i64(a + 64) + row * 4), load_f32(load_i64(a + 72) + row * 4),
                          load_f32(load_i64(a + 80) + row * 4), scratch)
        memory.store_i32(load_i64(a + 88) + row * 4, token)


@kernel
def log_softmax(a, thread, threads, barrier):
    """Arguments: logits, row bytes, S, V, y. y = x - max - ln(sum of e^(x - max))."""
    x, x_stride, rows, size = load_i64(a + 16), load_i64(a + 24), load_i64(a + 32), load_i64(a + 40)
    while True:
        row = claim(a)
        if row >= rows:
            break
        source, target = x + row * x_stride, load_i64(a + 48) + row * size * 4
        m = broadcast(_maximum(source, size))
        total = broadcast(simd.f32(0))
        for i in range(0, size, 16):
            v = exp(sub(load_some(source + i * 4, size - i), m))
            total = add(total, simd.keep_lanes(v, 0, size - i, simd.f32(0)))
        shift = log(broadcast(simd.sum_lanes(total)))
        for i in range(0, size, 16):
            store_some(target + i * 4, sub(sub(load_some(source + i * 4, size - i), m), shift), size - i)
