"""Writing keys and values where `attention` will read them."""

import numpy as np

from . import memory
from .compiler import inline, kernel
from .linear import round_to_int8
from .memory import load_f32, load_i32, load_i64, store_f16, store_f32
from .team import claim

_SIGNS = np.int32(-2139062144)  # 0x80808080: adds 128 to each of four bytes


@inline
def _store_int8(k, v, d, p, at, keys, values):
    """One head of one token to offset `at` of its block, as `attention_int8` describes it."""
    value = values + at * d
    store_f32(keys + d * p + at * 4, round_to_int8(k, d, value)[0])  # the value's place serves as scratch
    for j in range(0, d, 4):
        memory.store_i32(keys + j * p + at * 4, load_i32(value + j) ^ _SIGNS)
    store_f32(values + d * p + at * 4, round_to_int8(v, d, value)[0])


@inline
def _store(x, d, to, step, size):
    """x[D] to elements of `size` bytes that lie `step` bytes apart."""
    if size == 2:
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
            if size == 1:
                _store_int8(k, v, d, p, at, keys, values)
            else:
                _store(k, d, keys + at * size, p * size, size)
                _store(v, d, values + at * d * size, size, size)
