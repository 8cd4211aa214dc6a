"""Writing keys and values where `attention` will read them."""

from . import memory, simd
from .compiler import inline, kernel
from .linear import rounded
from .memory import load_f32, load_i32, load_i64, store_f16, store_f32
from .simd import broadcast
from .team import claim

_codes = memory.stack(64)


@inline
def _store_int8(x, d, to, step, scale_at):
    """x[D] as codes round(127 x / max|x|), `step` bytes apart, and max|x| / 127 (NaN where x is not finite) at scale_at."""
    zero, codes = broadcast(simd.f32(0)), _codes()
    largest = poison = zero
    for j in range(0, d, 16):
        v = memory.load_some(x + j * 4, d - j)
        largest = simd.vmax(simd.vabs(v), largest)
        poison = simd.fma(v, zero, poison)
    most = simd.max_lanes(largest)
    store_f32(scale_at, most / simd.f32(127) + simd.sum_lanes(poison))
    inverse = broadcast(simd.f32(127) / most if most > simd.f32(1e-36) else simd.f32(0))  # 127 / 1e-37 is inf
    for j in range(0, d, 16):
        memory.store_as_i8x16(codes, simd.to_i32(rounded(simd.mul(memory.load_some(x + j * 4, d - j), inverse))))
        for i in range(min(16, d - j)):
            memory.store_i8(to + (j + i) * step, memory.load_u8(codes + i))


@inline
def _store(x, d, to, step, size, scale_at):
    """x[D] to elements of `size` bytes that lie `step` bytes apart."""
    if size == 1:
        _store_int8(x, d, to, step, scale_at)
    elif size == 2:
        for j in range(d):
            store_f16(to + j * step, load_f32(x + j * 4))
    else:
        for j in range(d):
            store_f32(to + j * step, load_f32(x + j * 4))


@kernel
def store_kv(a, thread, threads, barrier):
    """Arguments: k, k_token, k_head, keys, values, block bytes, head bytes, element bytes, slots, v, v_token, v_head, T, Hk, D, P."""
    size, slots, tokens = load_i64(a + 72), load_i64(a + 80), load_i64(a + 112)
    heads, d, p = load_i64(a + 120), load_i64(a + 128), load_i64(a + 136)
    while True:
        t = claim(a)
        if t >= tokens:
            break
        slot = load_i32(slots + t * 4)
        for head in range(heads):
            block, at = slot // p * load_i64(a + 56) + head * load_i64(a + 64), slot % p
            keys, values = load_i64(a + 40) + block, load_i64(a + 48) + block
            k = load_i64(a + 16) + t * load_i64(a + 24) + head * load_i64(a + 32)
            v = load_i64(a + 88) + t * load_i64(a + 96) + head * load_i64(a + 104)
            _store(k, d, keys + at * size, p * size, size, keys + d * p + at * 4)
            _store(v, d, values + at * d * size, size, size, values + d * p + at * 4)
