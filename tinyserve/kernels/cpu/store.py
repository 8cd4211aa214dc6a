"""Writing keys and values where `attention` will read them."""

from .compiler import kernel
from .memory import load_f32, load_i32, load_i64, store_f16, store_f32
from .team import claim


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
            block = slot // p * load_i64(a + 56) + head * load_i64(a + 64)
            k = load_i64(a + 16) + t * load_i64(a + 24) + head * load_i64(a + 32)
            v = load_i64(a + 88) + t * load_i64(a + 96) + head * load_i64(a + 104)
            key, value = load_i64(a + 40) + block + slot % p * size, load_i64(a + 48) + block + slot % p * d * size
            for j in range(d):
                if size == 4:
                    store_f32(key + j * p * 4, load_f32(k + j * 4))
                    store_f32(value + j * 4, load_f32(v + j * 4))
                else:
                    store_f16(key + j * p * 2, load_f32(k + j * 4))
                    store_f16(value + j * 2, load_f32(v + j * 4))
