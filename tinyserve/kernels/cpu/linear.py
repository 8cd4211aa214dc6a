"""Matrix multiplication by packed weights: y[T, N] = x[T, K] @ W[N, K].T + bias.

The unit of work is one tile of 16 output rows: its weights are read once for up to 64 tokens. For one token that is a
matrix-vector product at the speed of memory; for many the same loop is a matrix multiply at the speed of the dot unit.
Order of the float operations, for every output, whatever T is:
  INT4   y = fma(minimum_g, s_g * sum_g, fma(float(dot_g), scale_g * s_g, y))   for groups g = 0, 1, 2, …
  INT8   y = fma(float(dot_g - 128 sum_g), scale_g * s_g, y)
  dense  y = fma(w_k, x_k, y)                                                     for k = 0, 1, 2, …
where s_g is the activation scale of the group, sum_g the sum of its INT8 codes, dot_g the integer dot product.
"""

from ..layouts import GROUP
from . import memory, simd
from .compiler import inline, kernel, template
from .dot import dot_small, dot_wide
from .memory import load_f16x16, load_f32, load_f32x16, load_i32, load_i64, load_u8x64, store_f32x16
from .simd import add_i32, broadcast, broadcast_i32, fma, high_nibbles, low_nibbles, mul, sub_i32, to_f32, zero_i32x16
from .team import claim, wait_for_all

BLOCK = 64  # tokens that share one pass over a tile's weights
SCALES = 16  # bytes that describe one group of one row of activations
ROWS_EACH = 4  # up to this many rows every thread quantizes its own copy, which is cheaper than meeting at the barrier
_stack_tile = memory.stack(BLOCK * 64)


@inline
def quantize_row(x, codes, scales, groups, stride):
    """One row of activations to INT8. Group g: its 32 codes at codes + g * stride * 32; at scales + g * stride * 16 its scale,
    scale * sum (both float32) and sum (int32)."""
    for g in range(groups):
        scale, total = round_to_int8(x + g * GROUP * 4, GROUP, codes)
        memory.store_f32(scales, scale)
        memory.store_f32(scales + 4, scale * simd.f32(total))
        memory.store_i32(scales + 8, total)
        codes += stride * GROUP
        scales += stride * SCALES


@inline
def round_to_int8(x, d, codes):
    """x[D] -> codes round(127 x / max|x|), ties to even; returns (max|x| / 127, NaN where x is not finite; the sum of the codes)."""
    zero, total = broadcast(simd.f32(0)), zero_i32x16()
    largest = poison = zero  # 0 * x is NaN where x is not finite: a bad value must reach the output, not be rounded away
    for j in range(0, d, 16):
        v = load_f32x16(x + j * 4)
        largest = simd.vmax(simd.vabs(v), largest)
        poison = simd.fma(v, zero, poison)
    most = simd.max_lanes(largest)
    inverse = broadcast(simd.f32(127) / most if most > simd.f32(1e-36) else simd.f32(0))  # 127 / 1e-37 is inf
    for j in range(0, d, 16):
        v = simd.to_i32(_rounded(mul(load_f32x16(x + j * 4), inverse)))
        memory.store_as_i8x16(codes + j, v)
        total = simd.add_i32(total, v)
    return most / simd.f32(127) + simd.sum_lanes(poison), simd.sum_lanes_i32(total)


@inline
def _rounded(v):
    """To the nearest integer, ties to even, within -127..127 (adding 1.5 * 2^23 leaves no bits for a fraction)."""
    magic = broadcast(simd.f32(12582912))
    v = simd.sub(simd.add(v, magic), magic)
    return simd.vmin(simd.vmax(v, broadcast(simd.f32(-127))), broadcast(simd.f32(127)))


@inline
def _int4_tile(tile, scales, minimums, groups, x, x_scales, stride, tokens, y):
    """Accumulate one tile into y[tokens, 16]; x and x_scales are the quantized activations, `stride` tokens a group."""
    for g in range(groups):
        c0, c1, c2, c3 = load_u8x64(tile), load_u8x64(tile + 64), load_u8x64(tile + 128), load_u8x64(tile + 192)
        l0, l1, l2, l3 = low_nibbles(c0), low_nibbles(c1), low_nibbles(c2), low_nibbles(c3)
        h0, h1, h2, h3 = high_nibbles(c0), high_nibbles(c1), high_nibbles(c2), high_nibbles(c3)
        scale, minimum = load_f16x16(scales), load_f16x16(minimums)
        for t in range(tokens):
            q = x + t * GROUP
            even = dot_small(zero_i32x16(), l0, load_i32(q))
            odd = dot_small(zero_i32x16(), l1, load_i32(q + 4))
            even = dot_small(even, l2, load_i32(q + 8))
            odd = dot_small(odd, l3, load_i32(q + 12))
            even = dot_small(even, h0, load_i32(q + 16))
            odd = dot_small(odd, h1, load_i32(q + 20))
            even = dot_small(even, h2, load_i32(q + 24))
            odd = dot_small(odd, h3, load_i32(q + 28))
            s = x_scales + t * SCALES
            total = fma(to_f32(add_i32(even, odd)), mul(scale, broadcast(load_f32(s))), load_f32x16(y + t * 64))
            store_f32x16(y + t * 64, fma(minimum, broadcast(load_f32(s + 4)), total))
        tile += 256
        scales += 32
        minimums += 32
        x += stride * GROUP
        x_scales += stride * SCALES


@inline
def _int8_tile(tile, scales, minimums, groups, x, x_scales, stride, tokens, y):
    for g in range(groups):
        c0, c1, c2, c3 = load_u8x64(tile), load_u8x64(tile + 64), load_u8x64(tile + 128), load_u8x64(tile + 192)
        c4, c5, c6, c7 = load_u8x64(tile + 256), load_u8x64(tile + 320), load_u8x64(tile + 384), load_u8x64(tile + 448)
        scale = load_f16x16(scales)
        for t in range(tokens):
            q = x + t * GROUP
            even = dot_wide(zero_i32x16(), c0, load_i32(q))
            odd = dot_wide(zero_i32x16(), c1, load_i32(q + 4))
            even = dot_wide(even, c2, load_i32(q + 8))
            odd = dot_wide(odd, c3, load_i32(q + 12))
            even = dot_wide(even, c4, load_i32(q + 16))
            odd = dot_wide(odd, c5, load_i32(q + 20))
            even = dot_wide(even, c6, load_i32(q + 24))
            odd = dot_wide(odd, c7, load_i32(q + 28))
            s = x_scales + t * SCALES
            centred = sub_i32(add_i32(even, odd), broadcast_i32(load_i32(s + 8) << 7))
            total = fma(to_f32(centred), mul(scale, broadcast(load_f32(s))), load_f32x16(y + t * 64))
            store_f32x16(y + t * 64, total)
        tile += 512
        scales += 32
        x += stride * GROUP
        x_scales += stride * SCALES


@inline
def _quantized_input(a, thread, threads, barrier):
    """Quantize x[T, K] to where this thread will read it; returns (codes, scales)."""
    x, x_stride, tokens, groups = load_i64(a + 16), load_i64(a + 24), load_i64(a + 32), load_i64(a + 40)
    codes, scales = load_i64(a + 112), load_i64(a + 120)
    if tokens <= ROWS_EACH:
        codes += thread * tokens * groups * GROUP
        scales += thread * tokens * groups * SCALES
        for t in range(tokens):
            quantize_row(x + t * x_stride, codes + t * GROUP, scales + t * SCALES, groups, tokens)
        return codes, scales
    for t in range(thread, tokens, threads):
        quantize_row(x + t * x_stride, codes + t * GROUP, scales + t * SCALES, groups, tokens)
    wait_for_all(threads, barrier)
    return codes, scales


@inline
def store_tile(a, tile, first, tokens, block):
    """block[tokens, 16] + bias -> y[first:first + tokens, 16 * tile:], leaving out rows past N."""
    rows, bias, y, y_stride = load_i64(a + 48), load_i64(a + 88), load_i64(a + 96), load_i64(a + 104)
    y += first * y_stride + tile * 64
    if bias:
        shift = load_f32x16(bias + tile * 64)
        for t in range(tokens):
            store_f32x16(block + t * 64, simd.add(load_f32x16(block + t * 64), shift))
    if rows - tile * 16 >= 16:
        for t in range(tokens):
            store_f32x16(y + t * y_stride, load_f32x16(block + t * 64))
    else:
        for t in range(tokens):
            for lane in range(rows - tile * 16):
                memory.store_f32(y + t * y_stride + lane * 4, load_f32(block + t * 64 + lane * 4))


@template
def _every_tile(a, thread, threads, barrier, tile_function, code_bytes):
    """Claim tiles and give each to `tile_function`, up to 64 tokens at a time; `code_bytes` a tile and group."""
    x, x_scales = _quantized_input(a, thread, threads, barrier)
    tokens, groups, chunk = load_i64(a + 32), load_i64(a + 40), load_i64(a + 128)
    tiles = (load_i64(a + 48) + 15) // 16
    block = _stack_tile()
    while True:
        start = claim(a) * chunk
        if start >= tiles:
            break
        for tile in range(start, min(start + chunk, tiles)):
            at = tile * groups
            for first in range(0, tokens, BLOCK):
                count = min(BLOCK, tokens - first)
                for t in range(count):
                    store_f32x16(block + t * 64, broadcast(simd.f32(0)))
                tile_function(load_i64(a + 56) + at * code_bytes, load_i64(a + 64) + at * 32, load_i64(a + 72) + at * 32,
                              groups, x + first * GROUP, x_scales + first * SCALES, tokens, count, block)
                store_tile(a, tile, first, count, block)


@kernel
def linear_int4(a, thread, threads, barrier):
    """Arguments: x, x_stride, T, groups, N, codes, scales, minimums, -, bias, y, y_stride, x codes, x scales, chunk."""
    _every_tile(a, thread, threads, barrier, _int4_tile, 256)


@kernel
def linear_int8(a, thread, threads, barrier):
    """Arguments as `linear_int4`, minimums unused."""
    _every_tile(a, thread, threads, barrier, _int8_tile, 512)
