"""Exercise checks: the stub fails, the reference passes, and every planted wrong version is caught with the reason named."""

import numpy as np
import pytest
import torch

from tinyserve.kernels.cuda import simulate
from tinyserve.lab.checks import ch00, ch01, ch02, ch03, ch04

simulate()
from numba import cuda, float32, int32  # noqa: E402

from tinyserve.kernels.cuda.attention.one_warp import LOG2_E, paged_one_warp  # noqa: E402
from tinyserve.kernels.cuda.warp import exp2, warp_sum  # noqa: E402

EXERCISES = [(ch00, name) for name in ("tpot", "decode_bound", "price")] + [
    (ch01, name) for name in ("greedy", "itl", "intensity", "ids_of")] + [
    (ch02, name) for name in ("kv_bytes", "store", "attend")] + [(ch03, name) for name in ("bank_passes", "fragment_a")] + [
    (ch04, name) for name in ("online_step", "merge", "dequantize")]
IDS = [f"{module.__name__[-4:]}.{name}" for module, name in EXERCISES]


def stub(*arguments, **named):
    ...


def raising(*arguments, **named):
    raise KeyError("oops")


@pytest.mark.parametrize("module, name", EXERCISES, ids=IDS)
def test_a_stub_is_not_yet_right_and_the_reference_takes_its_place(module, name):
    verdict = getattr(module, name)(stub)
    assert not verdict.passed and repr(verdict).startswith(f"{name}: not yet.")
    assert verdict.use is getattr(module, f"reference_{name}")


@pytest.mark.parametrize("module, name", EXERCISES, ids=IDS)
def test_the_reference_passes_and_is_kept(module, name):
    reference = getattr(module, f"reference_{name}")

    def mine(*arguments, **named):
        return reference(*arguments, **named)

    verdict = getattr(module, name)(mine)
    assert verdict.passed and verdict.use is mine, verdict


@pytest.mark.parametrize("module, name", EXERCISES, ids=IDS)
def test_an_exception_is_an_answer_and_not_a_traceback(module, name):
    verdict = getattr(module, name)(raising)
    assert not verdict.passed and "KeyError" in verdict.message


def tpot_counts_the_first(e2e, ttft, tokens):
    return (e2e - ttft) / tokens


def bound_forgets_the_batch(weights, bandwidth, batch=1):
    return bandwidth / weights


def price_by_the_minute(dollars, speed):
    return dollars / (60 * speed) * 1e6


def greedy_takes_the_last(logits):
    return len(logits) - 1 - int(np.argmax(logits[::-1]))


def itl_counts_the_first(times):
    return list(times[:1]) + ch01.reference_itl(times)


def intensity_in_bits(tokens, bits):
    return 2 * tokens / bits


def ids_take_the_first_that_fits(vocabulary, text):
    ids, at = [], 0
    while at < len(text):
        ids.append(next(i for i, piece in enumerate(vocabulary) if text.startswith(piece, at)))
        at += len(vocabulary[ids[-1]])
    return ids


def kv_bytes_counts_query_heads(config, tokens, size=2):
    return 2 * config.layers * config.heads * config.head_dim * size * tokens


def kv_bytes_forgets_values(config, tokens, size=2):
    return config.layers * config.kv_heads * config.head_dim * size * tokens


def store_off_by_one_block(k, v, slots, keys, values):
    ch02.reference_store(k, v, (slots + keys.shape[1]) % (keys.shape[0] * keys.shape[1]), keys, values)


def store_swaps_block_and_offset(k, v, slots, keys, values):
    size = keys.shape[1]
    for i, slot in enumerate(slots.tolist()):
        keys[slot % keys.shape[0], slot // keys.shape[0] % size] = k[i]
        values[slot % keys.shape[0], slot // keys.shape[0] % size] = v[i]


def store_writes_the_whole_block(k, v, slots, keys, values):
    for i, slot in enumerate(slots.tolist()):
        keys[slot // keys.shape[1]] = k[i]
        values[slot // keys.shape[1]] = v[i]


def store_mixes_keys_and_values(k, v, slots, keys, values):
    ch02.reference_store(v, k, slots, keys, values)


def attend_looks_ahead(q, keys, values, tables, starts, lengths, scale, window=0):
    y = torch.empty_like(q)
    for s, context in enumerate(lengths.tolist()):
        where = torch.arange(context)
        blocks, offsets = tables[s].long()[where // keys.shape[1]], where % keys.shape[1]
        k, v = (cache[blocks, offsets].repeat_interleave(q.shape[1] // cache.shape[2], 1) for cache in (keys, values))
        rows = slice(int(starts[s]), int(starts[s + 1]))
        y[rows] = torch.einsum("hqk,khd->qhd", (torch.einsum("qhd,khd->hqk", q[rows], k) * scale).softmax(-1), v)
    return y


def attend_reads_the_whole_block(q, keys, values, tables, starts, lengths, scale, window=0):
    size = keys.shape[1]
    return ch02.reference_attend(q, keys, values, tables, starts, (lengths + size - 1) // size * size, scale)


def attend_forgets_the_scale(q, keys, values, tables, starts, lengths, scale, window=0):
    return ch02.reference_attend(q, keys, values, tables, starts, lengths, 1.0)


def attend_interleaves_heads(q, keys, values, tables, starts, lengths, scale, window=0):
    group = q.shape[1] // keys.shape[2]
    order = [kv + g * keys.shape[2] for kv in range(keys.shape[2]) for g in range(group)]
    y = torch.empty_like(q)
    y[:, order] = ch02.reference_attend(q[:, order], keys, values, tables, starts, lengths, scale)
    return y


def attend_ignores_the_table(q, keys, values, tables, starts, lengths, scale, window=0):
    straight = torch.arange(tables.numel(), dtype=torch.int32).reshape(tables.shape)
    return ch02.reference_attend(q, keys, values, straight, starts, lengths, scale)


def step_forgets_to_rescale(state, score, value):
    m, total, a = state
    higher = max(m, score)
    weight = np.exp(score - higher)
    return higher, total + weight, a + weight * value


def step_rescales_the_sum_only(state, score, value):
    new = ch04.reference_online_step(state, score, value)
    return new[0], new[1], state[2] + np.exp(score - new[0]) * value


def step_without_a_maximum(state, score, value):
    return max(state[0], score), state[1] + np.exp(score), state[2] + np.exp(score) * value


def merge_adds(one, other):
    return max(one[0], other[0]), one[1] + other[1], one[2] + other[2]


def merge_takes_means(one, other):
    return max(one[0], other[0]), 2.0, one[2] / one[1] + other[2] / other[1]


def merge_of_nothing_is_nan(one, other):
    m = max(one[0], other[0])
    e, f = np.exp(one[0] - m), np.exp(other[0] - m)
    return m, one[1] * e + other[1] * f, one[2] * e + other[2] * f


def nibbles_in_order(word, scale, minimum):
    return [scale * (word >> 4 * i & 15) + minimum for i in range(8)]


def zero_point_off_by_one(word, scale, minimum):
    return [w + scale for w in ch04.reference_dequantize(word, scale, minimum)]


def passes_without_broadcast(words):
    return max(sum(word % 32 == bank for word in words) for bank in range(32))


def passes_count_banks(words):
    return len({word % 32 for word in words})


def passes_count_sectors(words):
    return len({word // 8 for word in words})


def fragment_swaps_row_and_k(lane, item):
    return ch03.reference_fragment_a(lane, item)[::-1]


def fragment_swaps_the_middle_registers(lane, item):
    return lane // 4 + 8 * (item // 4), 2 * (lane % 4) + item % 2 + 8 * (item // 2 % 2)


def fragment_of_b(lane, item):
    return 2 * (lane % 4) + item % 2 + 8 * (item // 2), lane // 4


PLANTED = [
    (ch03.bank_passes, passes_without_broadcast), (ch03.bank_passes, passes_count_banks), (ch03.bank_passes, passes_count_sectors),
    (ch03.fragment_a, fragment_swaps_row_and_k), (ch03.fragment_a, fragment_swaps_the_middle_registers), (ch03.fragment_a, fragment_of_b),
    (ch04.online_step, step_forgets_to_rescale), (ch04.online_step, step_rescales_the_sum_only),
    (ch04.online_step, step_without_a_maximum), (ch04.merge, merge_adds), (ch04.merge, merge_takes_means),
    (ch04.merge, merge_of_nothing_is_nan), (ch04.dequantize, nibbles_in_order), (ch04.dequantize, zero_point_off_by_one),
    (ch00.tpot, tpot_counts_the_first), (ch00.decode_bound, bound_forgets_the_batch), (ch00.price, price_by_the_minute),
    (ch01.greedy, greedy_takes_the_last), (ch01.itl, itl_counts_the_first), (ch01.intensity, intensity_in_bits),
    (ch01.ids_of, ids_take_the_first_that_fits), (ch02.kv_bytes, kv_bytes_counts_query_heads), (ch02.kv_bytes, kv_bytes_forgets_values),
    (ch02.store, store_off_by_one_block), (ch02.store, store_swaps_block_and_offset), (ch02.store, store_writes_the_whole_block),
    (ch02.store, store_mixes_keys_and_values), (ch02.attend, attend_looks_ahead), (ch02.attend, attend_reads_the_whole_block),
    (ch02.attend, attend_forgets_the_scale), (ch02.attend, attend_interleaves_heads), (ch02.attend, attend_ignores_the_table)]


@pytest.mark.parametrize("check, wrong", PLANTED, ids=lambda thing: thing.__name__)
def test_a_planted_wrong_version_is_caught(check, wrong):
    verdict = check(wrong)
    assert not verdict.passed and verdict.message


@cuda.jit
def empty_kernel(q, key_cache, value_cache, table, context, scale, out):
    pass


@cuda.jit
def no_rescale(q, key_cache, value_cache, table, context, scale, out):
    lane, size = cuda.threadIdx.x, key_cache.shape[1]
    query, top, total, result = q[lane] * scale * float32(LOG2_E), float32(-3.0e38), float32(0), float32(0)
    for p in range(context):
        block = table[p // size]
        score = warp_sum(query * key_cache[block, p % size, lane])
        top = max(top, score)
        total, result = total + exp2(score - top), result + exp2(score - top) * value_cache[block, p % size, lane]
    out[lane] = result / total


@cuda.jit
def a_block_too_many(q, key_cache, value_cache, table, context, scale, out):
    size = key_cache.shape[1]
    _walk(q, key_cache, value_cache, table, (context + size) // size * size, scale, out)


@cuda.jit
def ignores_the_table(q, key_cache, value_cache, table, context, scale, out):
    straight = cuda.local.array(16, int32)
    for i in range(16):
        straight[i] = 1 + i
    _walk(q, key_cache, value_cache, straight, context, scale, out)


@cuda.jit(device=True)
def _walk(q, key_cache, value_cache, table, context, scale, out):
    lane, size = cuda.threadIdx.x, key_cache.shape[1]
    query, top, total, result = q[lane] * scale * float32(LOG2_E), float32(-3.0e38), float32(0), float32(0)
    for p in range(context):
        block = table[p // size]
        score = warp_sum(query * key_cache[block, p % size, lane])
        higher = max(top, score)
        total = total * exp2(top - higher) + exp2(score - higher)
        result = result * exp2(top - higher) + exp2(score - higher) * value_cache[block, p % size, lane]
        top = higher
    out[lane] = result / total


@cuda.jit
def reads_everything_twice(q, key_cache, value_cache, table, context, scale, out):
    _walk(q, key_cache, value_cache, table, context, scale, out)
    _walk(q, key_cache, value_cache, table, context, scale, out)


@cuda.jit
def every_lane_writes_all(q, key_cache, value_cache, table, context, scale, out):
    _walk(q, key_cache, value_cache, table, context, scale, out)
    out[0] = out[cuda.threadIdx.x] if cuda.threadIdx.x == 0 else out[0]


@pytest.mark.parametrize("wrong, words", [
    (stub, "put @cuda.jit"), (empty_kernel, "never written"), (no_rescale, "elements are wrong"), (a_block_too_many, "context"),
    (ignores_the_table, "elements are wrong"), (reads_everything_twice, "at most"), (every_lane_writes_all, "no barrier between"),
], ids=lambda thing: getattr(thing, "__name__", ""))
def test_a_wrong_decode_kernel_is_refused_with_the_reason(wrong, words):
    verdict = ch04.paged_decode(wrong)
    assert not verdict.passed and words in verdict.message and verdict.use is paged_one_warp, verdict


def test_a_right_decode_kernel_passes():
    verdict = ch04.paged_decode(paged_one_warp)
    assert verdict.passed and verdict.use is paged_one_warp, verdict
