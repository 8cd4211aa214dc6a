"""exp, sigmoid and tanh on vectors: our own, because every math library rounds differently and every processor has another one."""

from . import simd
from .compiler import inline
from .simd import add, broadcast, div, fma, mul, sub, to_i32


@inline
def exp(x):
    """e^x for finite or -inf x: x = n ln 2 + r, |r| <= ln 2 / 2; Taylor polynomial of degree 7 in r (relative error below
    2e-7), times 2^n. Below -87 the result is 0 and above 88 it stays at e^88; NaN gives NaN."""
    bounded = simd.vmin(simd.vmax(x, broadcast(simd.f32(-87))), broadcast(simd.f32(88)))
    magic = broadcast(simd.f32(12582912))
    n = sub(add(mul(bounded, broadcast(simd.f32(1.4426950408889634))), magic), magic)
    r = fma(n, broadcast(simd.f32(-0.693359375)), bounded)
    r = fma(n, broadcast(simd.f32(2.12194440e-4)), r)
    p = broadcast(simd.f32(1 / 5040))
    p = fma(p, r, broadcast(simd.f32(1 / 720)))
    p = fma(p, r, broadcast(simd.f32(1 / 120)))
    p = fma(p, r, broadcast(simd.f32(1 / 24)))
    p = fma(p, r, broadcast(simd.f32(1 / 6)))
    p = fma(p, r, broadcast(simd.f32(0.5)))
    p = fma(p, r, broadcast(simd.f32(1)))
    p = fma(p, r, broadcast(simd.f32(1)))
    result = simd.times_power_of_two(p, to_i32(n))
    return simd.where_less(x, broadcast(simd.f32(-87)), broadcast(simd.f32(0)), simd.keep_nan(x, result))


@inline
def sigmoid(x):
    """1 / (1 + e^-x)."""
    one = broadcast(simd.f32(1))
    return div(one, add(one, exp(sub(broadcast(simd.f32(0)), x))))


@inline
def tanh(x):
    """1 - 2 / (e^2x + 1)."""
    one = broadcast(simd.f32(1))
    return sub(one, div(broadcast(simd.f32(2)), add(exp(add(x, x)), one)))


@inline
def log(x):
    """ln x for x a normal positive number: a guess from the exponent bits, then two Halley steps on our own exp."""
    guess = simd.to_f32(simd.sub_i32(simd.bits_of(x), simd.broadcast_i32(0x3F800000)))
    y = mul(guess, broadcast(simd.f32(8.262958405176314e-08)))  # ln 2 / 2^23
    for _ in range(2):
        e = exp(y)
        step = div(sub(x, e), add(x, e))
        y = add(y, add(step, step))
    return y
