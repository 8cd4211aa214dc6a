"""Matrix multiplication by float32 or bfloat16 weights: y[T, N] = x[T, K] @ W[N, K].T + bias.

y = fma(w_k, x_k, y) for k = 0, 1, 2, … in float32, each output in its own lane, so the bits do not depend on T. One token runs
four tiles at once and many tokens eight tokens a tile: enough independent sums to hide the latency of a fused multiply-add.
"""

from . import memory, simd
from .compiler import inline, kernel, template
from .linear import store_tile
from .memory import load_f32, load_i64, store_f32x16
from .simd import broadcast, fma
from .team import claim

_stack_block = memory.stack(8 * 64)


@inline
def _load_float32(address):
    return memory.load_f32x16(address)


@inline
def _load_bfloat16(address):
    return memory.load_bf16x16(address)


@template
def _eight_tokens(load, step, w, x, x_stride, last, columns, y):
    """One tile times tokens 0..7 (those past `last` repeat it; the caller drops them) -> y[8, 16]."""
    x1, x2, x3 = x + min(1, last) * x_stride, x + min(2, last) * x_stride, x + min(3, last) * x_stride
    x4, x5, x6 = x + min(4, last) * x_stride, x + min(5, last) * x_stride, x + min(6, last) * x_stride
    x7 = x + min(7, last) * x_stride
    y0 = y1 = y2 = y3 = y4 = y5 = y6 = y7 = broadcast(simd.f32(0))
    for k in range(columns):
        v, at = load(w + k * step), k * 4
        y0 = fma(v, broadcast(load_f32(x + at)), y0)
        y1 = fma(v, broadcast(load_f32(x1 + at)), y1)
        y2 = fma(v, broadcast(load_f32(x2 + at)), y2)
        y3 = fma(v, broadcast(load_f32(x3 + at)), y3)
        y4 = fma(v, broadcast(load_f32(x4 + at)), y4)
        y5 = fma(v, broadcast(load_f32(x5 + at)), y5)
        y6 = fma(v, broadcast(load_f32(x6 + at)), y6)
        y7 = fma(v, broadcast(load_f32(x7 + at)), y7)
    store_f32x16(y, y0)
    store_f32x16(y + 64, y1)
    store_f32x16(y + 128, y2)
    store_f32x16(y + 192, y3)
    store_f32x16(y + 256, y4)
    store_f32x16(y + 320, y5)
    store_f32x16(y + 384, y6)
    store_f32x16(y + 448, y7)


@template
def _four_tiles(load, step, w, last, x, columns, y):
    """Tiles 0..3 (those past `last` repeat it) times one token -> y[4, 16]."""
    tile = columns * step
    w1, w2, w3 = w + min(1, last) * tile, w + min(2, last) * tile, w + min(3, last) * tile
    y0 = y1 = y2 = y3 = broadcast(simd.f32(0))
    for k in range(columns):
        v, at = broadcast(load_f32(x + k * 4)), k * step
        y0 = fma(load(w + at), v, y0)
        y1 = fma(load(w1 + at), v, y1)
        y2 = fma(load(w2 + at), v, y2)
        y3 = fma(load(w3 + at), v, y3)
    store_f32x16(y, y0)
    store_f32x16(y + 64, y1)
    store_f32x16(y + 128, y2)
    store_f32x16(y + 192, y3)


@template
def _every_tile(a, load, step):
    """Claim tiles and multiply them; `step` bytes hold one column of a tile."""
    x, x_stride, tokens, columns = load_i64(a + 16), load_i64(a + 24), load_i64(a + 32), load_i64(a + 40)
    weights, chunk = load_i64(a + 56), load_i64(a + 128)
    tiles, tile_bytes = (load_i64(a + 48) + 15) // 16, columns * step
    block = _stack_block()
    while True:
        start = claim(a) * chunk
        if start >= tiles:
            break
        stop = min(start + chunk, tiles)
        if tokens == 1:
            for tile in range(start, stop, 4):
                _four_tiles(load, step, weights + tile * tile_bytes, stop - 1 - tile, x, columns, block)
                for i in range(min(4, stop - tile)):
                    store_tile(a, tile + i, 0, 1, block + i * 64)
            continue
        for tile in range(start, stop):
            for first in range(0, tokens, 8):
                last = min(7, tokens - first - 1)
                _eight_tokens(load, step, weights + tile * tile_bytes, x + first * x_stride, x_stride, last, columns, block)
                store_tile(a, tile, first, last + 1, block)


@kernel
def linear_float32(a, thread, threads, barrier):
    """Arguments: x, x_stride, T, K, N, weights, -, -, -, bias, y, y_stride, -, -, chunk."""
    _every_tile(a, _load_float32, 64)


@kernel
def linear_bfloat16(a, thread, threads, barrier):
    """Arguments as `linear_float32`."""
    _every_tile(a, _load_bfloat16, 32)
