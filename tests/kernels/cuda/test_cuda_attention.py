"""Attention kernels over paged, poisoned caches against float64, with ragged batches, grouped heads, windows and short contexts."""

import numpy as np
import pytest
from cuda_checks import TOLERANCE, assert_header, assert_no_races, counted, from_format, poisoned, poisoned_format, to_format

from tinyserve.kernels.cuda.attention.decode import first_seen, paged_decode
from tinyserve.kernels.cuda.attention.flash import flash_prefill
from tinyserve.kernels.cuda.attention.merge import merge_splits
from tinyserve.kernels.cuda.attention.naive import attention_naive
from tinyserve.kernels.cuda.attention.one_warp import paged_one_warp
from tinyserve.kernels.cuda.attention.online import attention_online
from tinyserve.kernels.cuda.elements import FORMATS
from tinyserve.kernels.cuda.header import ceil
from tinyserve.kernels.cuda.simulator import find_races

RNG = np.random.default_rng(11)
LOG2_E = 1.4426950408889634


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


class Batch:
    """Sequences of (rows, context) over a shuffled paged cache whose unused slots are NaN; block 0 is nobody's."""

    def __init__(self, sequences, heads, key_heads, head_dim, form, cache_form=None, block=4):
        self.sequences, self.heads, self.key_heads, self.head_dim, self.block = sequences, heads, key_heads, head_dim, block
        self.form, self.cache_form = form, cache_form or form
        rows, self.lengths = np.array(sequences, np.int32).T.copy()
        self.query_start = np.concatenate([[0], np.cumsum(rows)]).astype(np.int32)
        self.q = to_format(normal(rows.sum(), heads * head_dim), form)
        counts = [ceil(context, block) for _, context in sequences]
        blocks = RNG.permutation(np.arange(1, sum(counts) + 3)).astype(np.int32)
        self.tables = np.zeros((len(sequences), max(counts) + 1), np.int32)
        self.caches = [poisoned_format(self.cache_form, (len(blocks) + 1) * block, key_heads * head_dim) for _ in range(2)]
        for s, count in enumerate(counts):
            self.tables[s, :count], blocks = blocks[:count], blocks[count:]
            slots = self.slots(s)
            for cache in self.caches:
                cache[slots] = to_format(normal(len(slots), key_heads * head_dim), self.cache_form)

    def slots(self, s):
        positions = np.arange(self.lengths[s])
        return self.tables[s, positions // self.block] * self.block + positions % self.block

    def exact(self, window=0):
        q = from_format(self.q, self.form).reshape(-1, self.heads, self.head_dim)
        out = np.empty_like(q)
        for s, (rows, context) in enumerate(self.sequences):
            k, v = (from_format(cache[self.slots(s)], self.cache_form).reshape(context, self.key_heads, self.head_dim)
                    for cache in self.caches)
            k, v = (np.repeat(x, self.heads // self.key_heads, 1) for x in (k, v))
            for i in range(rows):
                position, row = context - rows + i, self.query_start[s] + i
                seen = slice(first_seen(position, window), position + 1)
                scores = np.einsum("hd,khd->hk", q[row], k[seen]) / np.sqrt(self.head_dim)
                weights = np.exp(scores - scores.max(1, keepdims=True))
                out[row] = np.einsum("hk,khd->hd", weights / weights.sum(1, keepdims=True), v[seen])
        return out.reshape(len(q), -1)

    @property
    def scale(self):
        return np.float32(LOG2_E / np.sqrt(self.head_dim))

    @property
    def group(self):
        return self.heads // self.key_heads


def decode(batch, split, window=0, most=1):
    """Decode and merge; returns out and both kernels' traffic."""
    splits, rows = ceil(int(batch.lengths.max()), split), len(batch.q)
    partial = poisoned(rows, splits, batch.heads, batch.head_dim)
    weights = poisoned(rows, splits, batch.heads, 2)
    out = poisoned_format(batch.form, len(batch.q), batch.heads * batch.head_dim)
    first = paged_decode(batch.form, batch.cache_form, batch.head_dim, batch.group, batch.block, split)
    launch = (splits, batch.key_heads, rows), 128
    places = batch.query_start, batch.lengths
    one = counted(first, launch, batch.q, *batch.caches, batch.tables, *places, batch.scale, window, most, partial, weights)
    second = merge_splits(batch.form, batch.head_dim, split)
    launch = ceil(rows * batch.heads * batch.head_dim // 8, 128), 128
    two = counted(second, launch, partial, weights, *places, window, most, out)
    return out, (first, one), (second, two)


@pytest.mark.parametrize("form, cache_form, heads, key_heads, head_dim, split", [
    ("float32", "float32", 6, 2, 64, 8), ("float32", "float16", 2, 2, 16, 16), ("float16", "float16", 4, 1, 128, 16),
    ("bfloat16", "bfloat16", 2, 1, 32, 8), ("float16", "float16", 2, 2, 256, 16),
])
def test_paged_decode(form, cache_form, heads, key_heads, head_dim, split):
    batch = Batch([(1, 1), (1, 19), (1, 16)], heads, key_heads, head_dim, form, cache_form)
    out, (first, one), (second, two) = decode(batch, split)
    np.testing.assert_allclose(from_format(out, form), batch.exact(), **TOLERANCE[form])
    filled, every = sum(ceil(context, split) for _, context in batch.sequences), 3 * ceil(19, split)
    sizes = {"Hk": key_heads, "Hq": heads, "G": batch.group, "D": head_dim, "nbytes": FORMATS[form].nbytes}
    assert_header(first, one, L=36, P=filled, C=every, cache_nbytes=FORMATS[cache_form].nbytes, **sizes)
    assert_header(second, two, rows=3, **sizes)


@pytest.mark.parametrize("window", [0, 4])
def test_paged_decode_of_several_rows(window):
    batch = Batch([(3, 16), (1, 1), (5, 5), (2, 30)], 2, 1, 16, "float32")
    out, *_ = decode(batch, 8, window, most=8)
    np.testing.assert_allclose(out, batch.exact(window), **TOLERANCE["float32"])


@pytest.mark.parametrize("window", [1, 5, 100])
def test_paged_decode_with_a_window(window):
    batch = Batch([(1, 30), (1, 3)], 2, 1, 32, "float32")
    out, *_ = decode(batch, 8, window)
    np.testing.assert_allclose(out, batch.exact(window), **TOLERANCE["float32"])


def test_decode_reads_the_cache_once_and_little_else():
    batch = Batch([(1, 512)], 3, 1, 64, "float16", block=16)
    _, (_, one), (_, two) = decode(batch, 256)
    ideal = 2 * 512 * 64 * 2 + batch.q.nbytes + len(batch.q) * 3 * 64 * 2
    moved = 32 * sum(part.distinct_read_sectors + part.write_sectors for part in (one, two))
    assert moved <= 1.05 * ideal, moved / ideal


def test_sequences_without_rows_or_context():
    batch = Batch([(0, 0), (2, 3), (0, 5), (1, 6), (0, 0)], 2, 1, 32, "float16")
    out, *_ = decode(batch, 4, most=8)
    np.testing.assert_allclose(from_format(out, "float16"), batch.exact(), **TOLERANCE["float16"])
    out, kernel, launch, arguments = flash(batch)
    kernel[launch](*arguments)
    np.testing.assert_allclose(from_format(out, "float16"), batch.exact(), **TOLERANCE["float16"])


def test_decode_has_no_races():
    with find_races() as found:
        decode(Batch([(1, 21), (1, 3)], 2, 1, 16, "float32"), 8)
    assert not found.races, found.report()


def test_decode_leaves_longer_chunks_to_flash():
    batch = Batch([(2, 7), (1, 6)], 1, 1, 16, "float32")
    out, *_ = decode(batch, 8, most=1)
    assert np.isnan(out[:2]).all() and not np.isnan(out[2]).any()


def test_decode_does_not_depend_on_the_rest_of_the_batch():
    batch = Batch([(1, 21), (1, 9)], 2, 1, 16, "float32")
    together, *_ = decode(batch, 8)
    batch.sequences, batch.lengths, batch.query_start = batch.sequences[:1], batch.lengths[:1], batch.query_start[:2]
    batch.q, batch.tables = batch.q[:1], batch.tables[:1]
    alone, *_ = decode(batch, 8)
    np.testing.assert_array_equal(alone, together[:1])


def flash(batch, window=0, fewest=1):
    most = max(rows for rows, _ in batch.sequences)
    out = poisoned_format(batch.form, len(batch.q), batch.heads * batch.head_dim)
    kernel = flash_prefill(batch.form, batch.head_dim, batch.group, batch.block)
    launch = (ceil(most * batch.group, 64), batch.key_heads, len(batch.sequences)), 128
    arguments = batch.q, *batch.caches, batch.tables, batch.query_start, batch.lengths, batch.scale, window, fewest, out
    return out, kernel, launch, arguments


def key_tiles(batch, window):
    """Key tiles that the CTAs of one key head visit."""
    keys, total = 4096 // batch.head_dim, 0
    for rows, context in batch.sequences:
        for first_row in range(0, rows * batch.group, 64):
            first = first_seen(context - rows + first_row // batch.group, window)
            last = context - rows + min(rows - 1, (first_row + 63) // batch.group) + 1
            total += ceil(last, keys) - first // keys
    return total


@pytest.mark.parametrize("form, heads, key_heads, head_dim, window, sequences", [
    ("float16", 1, 1, 64, 0, [(1, 1)]), ("float16", 2, 1, 64, 0, [(33, 70), (3, 5), (1, 66)]), ("bfloat16", 3, 1, 32, 0, [(5, 9)]),
    ("bfloat16", 2, 2, 64, 0, [(7, 70)]), ("float16", 1, 1, 128, 0, [(40, 40)]), ("float16", 1, 1, 64, 20, [(70, 130)]),
])
def test_flash_prefill(form, heads, key_heads, head_dim, window, sequences):
    batch = Batch(sequences, heads, key_heads, head_dim, form)
    out, kernel, launch, arguments = flash(batch, window)
    traffic = counted(kernel, launch, *arguments)
    np.testing.assert_allclose(from_format(out, form), batch.exact(window), **TOLERANCE[form])
    assert_header(kernel, traffic, tiles=key_tiles(batch, window), rows=len(batch.q), G=batch.group, D=head_dim, Hk=key_heads)


def test_flash_prefill_has_no_races():
    batch = Batch([(3, 70)], 1, 1, 64, "float16")
    _, kernel, launch, arguments = flash(batch)
    assert_no_races(kernel, launch, *arguments)


def test_flash_leaves_short_sequences_to_decode():
    batch = Batch([(1, 7), (4, 6)], 1, 1, 64, "float16")
    out, kernel, launch, arguments = flash(batch, fewest=2)
    kernel[launch](*arguments)
    assert np.isnan(out[:1]).all() and not np.isnan(out[1:]).any()


def test_chunks_give_the_bits_of_a_whole_prompt():
    whole = Batch([(70, 70)], 1, 1, 64, "float16")
    out, kernel, launch, arguments = flash(whole)
    kernel[launch](*arguments)
    q = whole.q
    whole.sequences, whole.lengths, whole.query_start, whole.q = [(6, 70)], whole.lengths, np.array([0, 6], np.int32), q[64:].copy()
    chunk, kernel, launch, arguments = flash(whole)
    kernel[launch](*arguments)
    np.testing.assert_array_equal(chunk, out[64:])


@pytest.mark.parametrize("rows, keys", [(1, 1), (5, 5), (3, 40)])
@pytest.mark.parametrize("kind", ["naive", "online"])
def test_the_plain_forms(kind, rows, keys):
    q, k, v, out = normal(rows, 64), normal(keys, 64), normal(keys, 64), poisoned(rows, 64)
    kernel = attention_naive if kind == "naive" else attention_online(64)
    scratch = (poisoned(rows, keys),) if kind == "naive" else ()
    traffic = counted(kernel, (rows, 32), q, k, v, np.float32(0.125), *scratch, out)
    scores = q.astype(np.float64) @ k.T / 8
    scores[np.arange(keys)[None] > keys - rows + np.arange(rows)[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(out, weights / weights.sum(1, keepdims=True) @ v, **TOLERANCE["float32"])
    pairs = sum(keys - rows + i + 1 for i in range(rows))
    assert_header(kernel, traffic, pairs=pairs, D=64, T=rows)


@pytest.mark.parametrize("context, size", [(1, 4), (13, 4), (6, 1), (9, 16)])
def test_one_warp_over_a_block_table(context, size):
    table = 1 + RNG.permutation(context + 2)[:ceil(context, size) + 1].astype(np.int32)
    caches = [poisoned(context + 4, size, 32) for _ in range(2)]
    where = table[np.arange(context) // size], np.arange(context) % size
    q, k, v, out = normal(32), normal(context, 32), normal(context, 32), poisoned(32)
    caches[0][where], caches[1][where] = k, v
    traffic = counted(paged_one_warp, (1, 32), q, *caches, table, np.int32(context), np.float32(0.3), out)
    weights = np.exp((scores := k.astype(np.float64) @ q * 0.3) - scores.max())
    np.testing.assert_allclose(out, weights / weights.sum() @ v, **TOLERANCE["float32"])
    assert_header(paged_one_warp, traffic, context=context)


def test_naive_attention_has_no_races():
    assert_no_races(attention_naive, (2, 32), normal(2, 64), normal(9, 64), normal(9, 64), np.float32(1), poisoned(2, 9), poisoned(2, 64))
