"""Exercise checks: the stub fails, the reference passes, and every planted wrong version is caught with the reason named."""

import numpy as np
import pytest
import torch

from tinyserve.lab.checks import ch00, ch01, ch02

EXERCISES = [(ch00, name) for name in ("tpot", "decode_bound", "price")] + [
    (ch01, name) for name in ("greedy", "itl", "intensity", "ids_of")] + [(ch02, name) for name in ("kv_bytes", "store", "attend")]
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


PLANTED = [
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
