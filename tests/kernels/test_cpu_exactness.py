"""E0: a row's bits depend on the row, never on what else is in the call, on threads, chunks, blocks, or on replaying."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import FORMATS, floats, ints, paged, random_weight, sequence

from tinyserve.kernels.cpu.kernel_set import CpuKernels

KERNELS = {threads: CpuKernels(threads) for threads in (1, 2, 3)}
WEIGHTS = {(kind, n): random_weight(kind, n, 96) for kind in FORMATS for n in (17, 130)}
ROWS = floats(70, 96, scale=2)
quick = settings(max_examples=30, deadline=None)
some_rows = st.lists(st.integers(0, 69), min_size=1, max_size=70)
any_threads = st.sampled_from(sorted(KERNELS))


def equal(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))


@pytest.mark.parametrize("n", (17, 130))
@pytest.mark.parametrize("kind", FORMATS)
def test_linear_rows_stand_alone(kind, n):
    weight, bias = WEIGHTS[kind, n], floats(n, seed=1)
    alone = np.concatenate([KERNELS[1].linear(ROWS[i : i + 1], weight, bias) for i in range(70)])

    @quick
    @given(some_rows, any_threads)
    def check(rows, threads):
        equal(KERNELS[threads].linear(ROWS[rows], weight, bias), alone[rows])

    check()


@pytest.mark.parametrize("kind", FORMATS)
def test_linear_for_every_number_of_rows(kind):
    weight = WEIGHTS[kind, 130]
    whole = KERNELS[1].linear(ROWS, weight)
    for count in range(1, 71):
        equal(KERNELS[1 + count % 3].linear(ROWS[:count], weight), whole[:count])


@pytest.mark.parametrize("n", (17, 130))
@pytest.mark.parametrize("kind", FORMATS)
def test_linear_outputs_stand_alone(kind, n):
    """A fused weight (qkv, gate and up) gives the bits of its parts: outputs depend on their own weight row only."""
    wide = random_weight(kind, 16 + n, 96, seed=3)
    parts = {name: getattr(wide, name)[1:] for name in ("data", "codes", "scales", "minimums") if hasattr(wide, name)}
    tail = type(wide)(**parts, rows=n, columns=96)
    for rows in (1, 3, 20):
        equal(KERNELS[2].linear(ROWS[:rows], tail), np.ascontiguousarray(KERNELS[1].linear(ROWS[:rows], wide)[:, 16:]))


@quick
@given(some_rows, any_threads)
def test_row_wise_ops_stand_alone(rows, threads):
    one, many, taken = KERNELS[1], KERNELS[threads], ROWS[rows]
    gain, shift = floats(96, seed=1), floats(96, seed=2)
    for op in (lambda ops, x: ops.rms_norm(x, gain, 1e-5), lambda ops, x: ops.layer_norm(x, gain, shift, 1e-5),
               lambda ops, x: ops.silu_mul(x, x), lambda ops, x: ops.gelu(x), lambda ops, x: ops.add(x, x),
               lambda ops, x: ops.log_softmax(x)):
        equal(op(many, taken), op(one, ROWS)[rows])


@quick
@given(some_rows, any_threads, st.sampled_from([(0.0, 0, 1.0, 0.0), (0.8, 0, 1.0, 0.0), (1.2, 20, 0.9, 0.01)]))
def test_sampling_stands_alone(rows, threads, setting):
    uniforms = np.linspace(0, 0.999, 70, dtype=np.float32)

    def draw(ops, picked):
        temperature, top_k, top_p, min_p = (np.full(len(picked), x) for x in setting)
        return ops.sample(ROWS[picked], temperature, top_k, top_p, min_p, uniforms[picked])

    np.testing.assert_array_equal(draw(KERNELS[threads], rows), draw(KERNELS[1], list(range(70)))[rows])


def attend(sequences, block_size=16, threads=1, dtype="float32", window=0, seed=0):
    """The outputs of one call, one array a sequence."""
    ops = KERNELS[threads]
    case = paged(ops, sequences, max(16, block_size) if dtype == "int8" else block_size, dtype, window, seed)
    return np.split(ops.attention(*case.arguments(), 0.3, window), case.query_start[1:-1])


def tail(whole, begin, end):
    """The chunk of rows begin..end-1 of a whole prompt: its keys and values end where it does."""
    q, k, v = whole
    return q[begin:end], k[:end], v[:end]


LONG = sequence(600, 600, 4, 2, 16, seed=11)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 599), max_size=6, unique=True), any_threads, st.sampled_from((1, 4, 16, 64)),
       st.sampled_from(((0, "float32"), (0, "float16"), (70, "float32"), (0, "int8"), (70, "int8"))))
def test_attention_over_any_chunks(cuts, threads, block_size, kind):
    window, dtype = kind
    edges = [0, *sorted(cuts), 600]
    chunks = [attend([tail(LONG, a, b)], block_size, threads, dtype, window)[0] for a, b in zip(edges, edges[1:])]
    equal(np.concatenate(chunks), attend([LONG], 16, 1, dtype, window)[0])


WIDE = sequence(600, 600, 6, 2, 64, seed=12)  # of this head size, a row by itself is read straight from the cache


@pytest.mark.parametrize("prompt", (LONG, WIDE), ids=("D16", "D64"))
@pytest.mark.parametrize("dtype", ("float32", "float16", "int8"))
@pytest.mark.parametrize("window", (0, 100))
def test_decode_is_prefill(window, dtype, prompt):
    whole = attend([prompt], dtype=dtype, window=window)[0]
    for block_size in (4, 32):
        for p in (0, 1, 15, 16, 63, 64, 254, 255, 256, 257, 511, 512, 599):
            equal(attend([tail(prompt, p, p + 1)], block_size, 2, dtype, window)[0], whole[p : p + 1])
    for rows in range(1, 40):  # across the number of rows where the way of sharing out changes
        equal(attend([tail(prompt, 590 - rows, 590)], 16, 3, dtype, window)[0], whole[590 - rows : 590])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 300)), min_size=1, max_size=6), any_threads,
       st.sampled_from((1, 8, 32)), st.integers(0, 1000), st.sampled_from(((4, 2, 16), (3, 1, 20), (2, 2, 64))))
def test_attention_in_any_company(shapes, threads, block_size, seed, heads):
    sequences = [sequence(rows, rows + past, *heads, seed=i) for i, (rows, past) in enumerate(shapes)]
    together = attend(sequences, block_size, threads, seed=seed)
    for one, got in zip(sequences, together):
        equal(got, attend([one])[0])


@pytest.mark.parametrize("threads", sorted(KERNELS))
@pytest.mark.parametrize("tokens", (1, 3, 20))
@pytest.mark.parametrize("kind", FORMATS)
def test_replay_is_eager(kind, tokens, threads):
    """A step of several ops, recorded once and replayed on new contents, against the same ops called one by one."""
    ops = KERNELS[threads]
    weight, narrow, gain = random_weight(kind, 96, 96, seed=7), random_weight(kind, 96, 64, seed=8), floats(96, seed=1)
    x, slots, positions = np.zeros((tokens, 96), np.float32), np.zeros(tokens, np.int32), np.zeros(tokens, np.int32)
    starts, lengths, tables = ints(0, tokens), ints(tokens), np.arange(1, 5, dtype=np.int32)[None]
    angles = np.concatenate([np.cos(floats(64, 8)), np.sin(floats(64, 8))], 1)

    def step(caches):
        h = x
        for keys, values in caches:
            qkv = ops.linear(ops.rms_norm(h, gain, 1e-5), weight)
            q, k = ops.rope(qkv[:, :64].reshape(tokens, 4, 16), qkv[:, 64:80].reshape(tokens, 1, 16), positions, angles)
            ops.store_kv(k, qkv[:, 80:].reshape(tokens, 1, 16), slots, keys, values)
            mixed = ops.attention(q, keys, values, tables, starts, lengths, 0.25)
            h = ops.add(h, ops.linear(mixed.reshape(tokens, 64), narrow))
            h = ops.layer_norm(ops.add(h, ops.silu_mul(ops.linear(h, weight), h)), gain, gain, 1e-5)
        return ops.log_softmax(ops.take_rows(h, np.zeros(1, np.int32)))

    def layers():
        return [ops.new_cache(5, 16, 1, 16, "float16") for _ in range(3)]

    eager, recorded = layers(), layers()
    replay = ops.recorder().record(lambda: step(recorded))
    for round_ in range(3):
        x[:] = floats(tokens, 96, seed=round_)
        positions[:] = np.arange(tokens) + round_ * tokens
        slots[:], lengths[0] = 16 + positions, (round_ + 1) * tokens
        equal(replay(), step(eager))
        for mine, wanted in zip(eager, recorded):
            np.testing.assert_array_equal(mine, wanted)
