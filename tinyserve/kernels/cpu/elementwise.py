"""Norms, activations, rotation and row copies. One claim takes a few rows; a row is one thread's, start to end.

Sums run in 16 lanes over the row and then up one fixed tree, so a row's bits depend on nothing but the row.
"""

from . import memory, simd
from .compiler import inline, kernel, template
from .functions import sigmoid, tanh
from .memory import load_i32, load_i64, load_some, store_some
from .simd import add, broadcast, fma, mul, sub
from .team import claim


@inline
def _claimed_rows(a, rows):
    """The next rows [start, stop) of this thread; start >= rows when all are taken."""
    chunk = load_i64(a + 16)
    start = claim(a) * chunk
    return start, min(start + chunk, rows)


@kernel
def rms_norm(a, thread, threads, barrier):
    """Arguments: chunk, rows, H, x, x_stride, weight, y, y_stride, eps (address)."""
    rows, size, x, x_stride = load_i64(a + 24), load_i64(a + 32), load_i64(a + 40), load_i64(a + 48)
    weight, y, y_stride, eps = load_i64(a + 56), load_i64(a + 64), load_i64(a + 72), memory.load_f32(load_i64(a + 80))
    start, stop = _claimed_rows(a, rows)
    while start < rows:
        for row in range(start, stop):
            source, target = x + row * x_stride, y + row * y_stride
            total = broadcast(simd.f32(0))
            for i in range(0, size, 16):
                v = load_some(source + i * 4, size - i)
                total = fma(v, v, total)
            mean = simd.sum_lanes(total) / simd.f32(size)
            factor = broadcast(simd.f32(1) / simd.sqrt1(mean + eps))
            for i in range(0, size, 16):
                v = mul(load_some(source + i * 4, size - i), factor)
                store_some(target + i * 4, mul(v, load_some(weight + i * 4, size - i)), size - i)
        start, stop = _claimed_rows(a, rows)


@kernel
def layer_norm(a, thread, threads, barrier):
    """Arguments: chunk, rows, H, x, x_stride, weight, y, y_stride, eps (address), bias."""
    rows, size, x, x_stride = load_i64(a + 24), load_i64(a + 32), load_i64(a + 40), load_i64(a + 48)
    weight, y, y_stride, eps = load_i64(a + 56), load_i64(a + 64), load_i64(a + 72), memory.load_f32(load_i64(a + 80))
    bias = load_i64(a + 88)
    start, stop = _claimed_rows(a, rows)
    while start < rows:
        for row in range(start, stop):
            source, target = x + row * x_stride, y + row * y_stride
            total = broadcast(simd.f32(0))
            for i in range(0, size, 16):
                total = add(total, load_some(source + i * 4, size - i))
            mean = simd.sum_lanes(total) / simd.f32(size)
            total = broadcast(simd.f32(0))
            for i in range(0, size, 16):
                v = simd.keep_lanes(sub(load_some(source + i * 4, size - i), broadcast(mean)), 0, size - i, simd.f32(0))
                total = fma(v, v, total)
            factor = broadcast(simd.f32(1) / simd.sqrt1(simd.sum_lanes(total) / simd.f32(size) + eps))
            for i in range(0, size, 16):
                v = mul(sub(load_some(source + i * 4, size - i), broadcast(mean)), factor)
                v = fma(v, load_some(weight + i * 4, size - i), load_some(bias + i * 4, size - i))
                store_some(target + i * 4, v, size - i)
        start, stop = _claimed_rows(a, rows)


@inline
def _add(x, y):
    return add(x, y)


@inline
def _silu_mul(gate, up):
    return mul(mul(gate, sigmoid(gate)), up)


@inline
def _gelu(x, unused):
    cube = mul(mul(x, x), x)
    inner = mul(fma(cube, broadcast(simd.f32(0.044715)), x), broadcast(simd.f32(0.7978845608028654)))
    return mul(mul(x, broadcast(simd.f32(0.5))), add(broadcast(simd.f32(1)), tanh(inner)))


@template
def _each_element(a, function):
    """Arguments: chunk, rows, size, x, x_stride, other, other_stride, y, y_stride. y = function(x, other)."""
    rows, size, x, x_stride = load_i64(a + 24), load_i64(a + 32), load_i64(a + 40), load_i64(a + 48)
    other, other_stride, y, y_stride = load_i64(a + 56), load_i64(a + 64), load_i64(a + 72), load_i64(a + 80)
    start, stop = _claimed_rows(a, rows)
    while start < rows:
        for row in range(start, stop):
            left, right, target = x + row * x_stride, other + row * other_stride, y + row * y_stride
            for i in range(0, size, 16):
                value = function(load_some(left + i * 4, size - i), load_some(right + i * 4, size - i))
                store_some(target + i * 4, value, size - i)
        start, stop = _claimed_rows(a, rows)


@kernel
def add_rows(a, thread, threads, barrier):
    """x + y."""
    _each_element(a, _add)


@kernel
def silu_mul(a, thread, threads, barrier):
    """gate * sigmoid(gate) * up."""
    _each_element(a, _silu_mul)


@kernel
def gelu(a, thread, threads, barrier):
    """The tanh form; the second operand is x again and unused."""
    _each_element(a, _gelu)


@kernel
def rope(a, thread, threads, barrier):
    """Arguments: chunk, T, heads, D/2, x, x_token, x_head, positions, cos_sin, y. Strides in bytes; y[T, heads, D] is dense."""
    tokens, heads, half = load_i64(a + 24), load_i64(a + 32), load_i64(a + 40)
    x, x_token, x_head = load_i64(a + 48), load_i64(a + 56), load_i64(a + 64)
    positions, cos_sin, y = load_i64(a + 72), load_i64(a + 80), load_i64(a + 88)
    start, stop = _claimed_rows(a, tokens)
    while start < tokens:
        for t in range(start, stop):
            cosines = cos_sin + load_i32(positions + t * 4) * half * 8
            for head in range(heads):
                source, target = x + t * x_token + head * x_head, y + (t * heads + head) * half * 8
                for i in range(0, half, 16):
                    left, some = half - i, i * 4
                    c, s = load_some(cosines + some, left), load_some(cosines + half * 4 + some, left)
                    p, q = load_some(source + some, left), load_some(source + half * 4 + some, left)
                    store_some(target + some, sub(mul(p, c), mul(q, s)), left)
                    store_some(target + half * 4 + some, add(mul(q, c), mul(p, s)), left)
        start, stop = _claimed_rows(a, tokens)


@kernel
def take_rows(a, thread, threads, barrier):
    """Arguments: chunk, R, H, x, x_stride, rows, y. y[R, H] = x[rows]."""
    count, size, x, x_stride = load_i64(a + 24), load_i64(a + 32), load_i64(a + 40), load_i64(a + 48)
    rows, y = load_i64(a + 56), load_i64(a + 64)
    start, stop = _claimed_rows(a, count)
    while start < count:
        for r in range(start, stop):
            source = x + load_i32(rows + r * 4) * x_stride
            for i in range(0, size, 16):
                store_some(y + (r * size + i) * 4, load_some(source + i * 4, size - i), size - i)
        start, stop = _claimed_rows(a, count)
