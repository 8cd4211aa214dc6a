"""Every CPU op against the oracle: odd sizes, strided rows, extreme values, poisoned buffers and guard bands."""

import numpy as np
import pytest
import torch
from kernel_cases import FORMATS, GuardedKernels, floats, ints, paged, random_weight, sequence, strided

from tinyserve.kernels.layouts import dequantize
from tinyserve.kernels.reference import ReferenceKernels
from tinyserve.kernels.reference.sampling import kept_distribution

ORACLE = ReferenceKernels()
# Largest error allowed, as a share of the row's largest value (float32 sums, our own exp; 0: the same bits).
TOLERANCES = {
    "embed": 0, "take_rows": 0, "store_kv": 0, "add": 0, "rms_norm": 1e-6, "layer_norm": 2e-6, "rope": 3e-7,
    "silu_mul": 1e-6, "gelu": 1e-6, "linear float32": 3e-6, "linear bfloat16": 3e-6, "linear int8": 1e-6, "linear int4": 1e-6,
    "attention": 3e-6, "attention of large scores": 3e-4, "log_softmax": 1e-6,
}
SMALLEST = 1e-40  # below float32's normal numbers
SIZES = (1, 7, 16, 33, 576)


@pytest.fixture(scope="module")
def guarded():
    return GuardedKernels(threads=2)


@pytest.fixture
def ops(guarded):
    yield guarded
    guarded.check_bands()


def tensors(*arrays):
    return [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in arrays]


def agree(name: str, got: np.ndarray, want: torch.Tensor, size: np.ndarray | None = None) -> None:
    """Equal where not finite; elsewhere within the op's tolerance of `size` (default: the row's largest value)."""
    want = want.numpy()
    assert got.shape == want.shape and got.dtype == want.dtype
    if not got.size:
        return
    finite = np.isfinite(want)
    np.testing.assert_array_equal(np.where(finite, 0, got), np.where(finite, 0, want))
    size = np.abs(np.where(finite, want, 0)).max(-1, keepdims=True) if size is None else np.abs(size)
    error = np.abs(np.where(finite, got, 0) - np.where(finite, want, 0))
    assert (error <= TOLERANCES[name] * size + SMALLEST).all(), f"{name}: {(error / np.maximum(size, SMALLEST)).max():.2e}"


def same(ops, name: str, *arguments, label: str = "", size: np.ndarray | None = None) -> None:
    agree(label or name, getattr(ops, name)(*arguments), getattr(ORACLE, name)(*tensors(*arguments)), size)


def same_linear(ops, kind: str, x, weight, bias=None) -> None:
    """Errors as a share of |x| |w|, which bounds every sum on the way to an output."""
    size = np.linalg.norm(x.astype(np.float64), axis=1)[:, None] * np.linalg.norm(dequantize(weight), axis=1)
    same(ops, "linear", x, weight, bias, label=f"linear {kind}", size=size + (0 if bias is None else np.abs(bias)))


@pytest.mark.parametrize("h", SIZES)
@pytest.mark.parametrize("rows", (0, 1, 5, 70))
def test_norms(ops, rows, h):
    x, weight, bias = floats(rows, h, scale=3) + 1, floats(h, seed=1), floats(h, seed=2)
    for given in (x, strided(x)):
        same(ops, "rms_norm", given, weight, 1e-5)
        if h > 1:
            same(ops, "layer_norm", given, weight, bias, 1e-5)


def test_norms_of_heads(ops):
    x, weight, bias = floats(9, 3, 20), floats(20, seed=1), floats(20, seed=2)
    for given in (x, strided(x)):
        same(ops, "rms_norm", given, weight, 1e-6)
        same(ops, "layer_norm", given, weight, bias, 1e-6)


def test_norm_of_zeros_and_large_numbers(ops):
    x = np.zeros((3, 40), np.float32)
    x[1], x[2, 0] = 1e15, 1e-15
    same(ops, "rms_norm", x, np.ones(40, np.float32), 1e-6)


@pytest.mark.parametrize("h", SIZES)
@pytest.mark.parametrize("rows", (0, 1, 70))
def test_elements(ops, rows, h):
    x, y = floats(rows, h, scale=4), floats(rows, h, seed=1)
    for a, b in ((x, y), (strided(x), strided(y, 1, 1))):
        same(ops, "add", a, b)
        same(ops, "silu_mul", a, b, size=a * b)
        same(ops, "gelu", a, size=a)


def test_gate_and_up_are_halves_of_one_row(ops):
    rows = floats(6, 2 * 50)
    same(ops, "silu_mul", rows[:, :50], rows[:, 50:])


def test_elements_of_heads(ops):
    same(ops, "add", floats(4, 3, 10), floats(4, 3, 10, seed=1))


def test_activations_far_out(ops):
    x = np.array([[0, -0.0, 1e-30, -1e-30, 20, -20, 60, -60, 200, -200, 1e12, -1e12, 1e30]], np.float32).T.copy()
    same(ops, "silu_mul", x, np.ones_like(x), size=x)
    same(ops, "gelu", x, size=x)
    bad = np.array([[np.nan, 1, np.inf]], np.float32)
    assert np.isnan(ops.gelu(bad)[0, 0]) and np.isnan(ops.silu_mul(bad, bad)[0, 0])
    assert ops.gelu(bad)[0, 2] == np.inf and np.isfinite(ops.gelu(bad)[0, 1])


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("n, k", ((1, 32), (17, 96), (40, 576)))
def test_embed(ops, kind, n, k):
    ids = np.random.default_rng(0).integers(0, n, 9).astype(np.int32)
    ids[-1] = n - 1
    weight = random_weight(kind, n, k)
    same(ops, "embed", ids, weight)
    same(ops, "embed", ids[:0], weight)


def test_take_rows(ops):
    x = floats(9, 21)
    for rows in (ints(8, 0, 0), ints(), np.arange(9, dtype=np.int32)):
        same(ops, "take_rows", x, rows)
        same(ops, "take_rows", strided(x), rows)


@pytest.mark.parametrize("d", (2, 6, 32, 80))
@pytest.mark.parametrize("tokens", (0, 1, 33))
def test_rope(ops, tokens, d):
    angles = np.arange(50)[:, None] * 10000.0 ** (-np.arange(d // 2) / (d // 2))
    cos_sin = np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    positions = np.random.default_rng(0).integers(0, 50, tokens).astype(np.int32)
    q, k = floats(tokens, 6, d), floats(tokens, 2, d, seed=1)
    for a, b in ((q, k), (strided(q), strided(k))):
        want = ORACLE.rope(*tensors(a, b, positions, cos_sin))
        for got, expected in zip(ops.rope(a, b, positions, cos_sin), want):
            agree("rope", got, expected)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("n, k", ((1, 32), (16, 64), (17, 96), (130, 576)))
@pytest.mark.parametrize("tokens", (0, 1, 2, 4, 5, 8, 9, 65))
def test_linear(ops, kind, n, k, tokens):
    x, weight, bias = floats(tokens, k, scale=2), random_weight(kind, n, k), floats(n, seed=1)
    same_linear(ops, kind, x, weight)
    same_linear(ops, kind, strided(x), weight, bias)


@pytest.mark.parametrize("kind", ("float32", "bfloat16"))
def test_dense_linear_has_no_groups(ops, kind):
    for k in (1, 3, 35):
        same_linear(ops, kind, floats(3, k), random_weight(kind, 19, k))


@pytest.mark.parametrize("kind", ("int8", "int4"))
def test_activation_groups(ops, kind):
    """Zero groups, ties between two codes, one giant among small numbers, and numbers near the ends of float32."""
    x = np.zeros((6, 96), np.float32)
    x[0, 32:64] = np.arange(32) - 15.5
    x[0, 32] = 127
    x[1] = floats(96) * 1e-3
    x[1, 40] = 1e6
    x[2], x[3], x[4, 5] = floats(96, seed=1) * 1e-30, floats(96, seed=2) * 1e30, 3e-38
    same_linear(ops, kind, x, random_weight(kind, 33, 96))


@pytest.mark.parametrize("bad", (np.nan, np.inf, -np.inf))
@pytest.mark.parametrize("kind", FORMATS)
def test_linear_shows_bad_rows(ops, kind, bad):
    x = floats(6, 96)
    x[4, 37] = bad
    got = ops.linear(x, random_weight(kind, 33, 96))
    assert not np.isfinite(got[4]).any() and np.isfinite(np.delete(got, 4, 0)).all()


@pytest.mark.parametrize("dtype", ("float32", "float16"))
@pytest.mark.parametrize("p", (1, 4, 16, 32))
def test_store_kv(ops, p, dtype):
    k, v = floats(7, 2, 10), floats(7, 2, 10, seed=1)
    slots = np.random.default_rng(p).permutation(p * 9)[:7].astype(np.int32)
    mine, wanted = ops.new_cache(9, p, 2, 10, dtype), ORACLE.new_cache(9, p, 2, 10, dtype)
    ops.store_kv(strided(k), v, slots, *mine)
    ORACLE.store_kv(*tensors(k, v, slots), *wanted)
    for got, want in zip(mine, wanted):
        np.testing.assert_array_equal(got, want.numpy())


def as_int8(x: np.ndarray) -> np.ndarray:
    """x[T,Hk,D] as an INT8 cache holds it: codes round(127 x / max|x|) of a head, times max|x| / 127."""
    largest = np.abs(x).max(-1, keepdims=True)
    codes = np.rint(x * (np.float32(127) / np.where(largest > 0, largest, np.float32(1))))
    return codes * (largest / np.float32(127))


def test_store_kv_int8_by_hand(ops):
    k = np.zeros((2, 2, 16), np.float32)
    k[0, 0, :5], k[1, 0, -4:], k[1, 1, 3] = [127, -63.4, 0.5, 2.5, 1], [1, -2, 0.25, 0], np.inf
    keys, values = ops.new_cache(2, 16, 2, 16, "int8")
    ops.store_kv(k, 2 * k, ints(19, 0), keys, values)
    codes = np.zeros((2, 16), np.int8)  # of head 0; halves go to the even code
    codes[0, :5], codes[1, -4:] = [127, -63, 0, 2, 1], [64, -127, 16, 0]
    np.testing.assert_array_equal(values[1, 3, 0], codes[0])
    np.testing.assert_array_equal(values[0, 0, 0], codes[1])
    assert not values[1, 3, 1].any() and not values[0, 1:].any() and not values[1, :3].any() and not values[1, 4:].any()
    in_memory = keys.transpose(2, 0, 3, 1).reshape(2, 2, 4, 16, 4)  # [head, block, D/4, position, 4]
    np.testing.assert_array_equal(in_memory[0, 1, :, 3].ravel().view(np.uint8), codes[0].view(np.uint8) ^ 128)
    np.testing.assert_array_equal(in_memory[0, 0, :, 0].ravel().view(np.uint8), codes[1].view(np.uint8) ^ 128)


@pytest.mark.parametrize("block_size, head_dim", ((8, 64), (16, 20)))
def test_an_int8_cache_of_another_shape_is_refused(ops, block_size, head_dim):
    with pytest.raises(ValueError, match="multiple of 16"):
        ops.new_cache(2, block_size, 1, head_dim, "int8")


@pytest.mark.parametrize("block_size", (16, 32))
@pytest.mark.parametrize("heads, kv_heads, d", ((1, 1, 32), (3, 1, 64), (8, 2, 64), (6, 2, 16), (8, 1, 80)))
@pytest.mark.parametrize("window", (0, 50))
def test_attention_int8(ops, block_size, heads, kv_heads, d, window):
    shapes = [(1, 1), (3, 3), (1, 40), (5, 70), (1, 300)]
    for extra in ([], [(50, 61)]):
        sequences = [sequence(r, n, heads, kv_heads, d, seed=i) for i, (r, n) in enumerate(shapes + extra)]
        got = ops.attention(*paged(ops, sequences, block_size, "int8", window).arguments(), 0.2, window)
        rounded = paged(ops, [tuple(map(as_int8, parts)) for parts in sequences], block_size, window=window)
        agree("attention", got, ORACLE.attention(*rounded.tensors(), 0.2, window))
        assert np.isfinite(got).all()


def attention_agrees(ops, sequences, block_size, dtype="float32", window=0, scale=0.2, label="attention"):
    case = paged(ops, sequences, block_size, dtype, window)
    got = ops.attention(*case.arguments(), scale, window)
    agree(label, got, ORACLE.attention(*case.tensors(), scale, window))
    assert np.isfinite(got).all()


@pytest.mark.parametrize("block_size", (1, 4, 16, 32, 64))
@pytest.mark.parametrize("heads, kv_heads, d", ((1, 1, 4), (3, 1, 64), (4, 4, 20), (6, 2, 16), (8, 1, 80)))
def test_attention(ops, block_size, heads, kv_heads, d):
    shapes = [(1, 1), (3, 3), (1, 40), (5, 70), (2, 65)]  # few rows: splits are shared out
    sequences = [sequence(r, n, heads, kv_heads, d, seed=i) for i, (r, n) in enumerate(shapes)]
    attention_agrees(ops, sequences, block_size)
    attention_agrees(ops, sequences + [sequence(50, 61, heads, kv_heads, d, seed=9)], block_size, "float16")


@pytest.mark.parametrize("window", (1, 3, 64, 300))
@pytest.mark.parametrize("rows, length", ((1, 600), (7, 300), (40, 520), (33, 33)))
def test_attention_windows(ops, window, rows, length):
    attention_agrees(ops, [sequence(rows, length, 4, 2, 16), sequence(1, 2, 4, 2, 16, seed=5)], 16, window=window)


@pytest.mark.parametrize("length", (255, 256, 257, 513, 1100))
def test_attention_over_splits(ops, length):
    for rows in (1, 16, 17):
        attention_agrees(ops, [sequence(rows, length, 3, 1, 32)], 16)


def test_attention_of_large_scores(ops):
    """Scores in the thousands (float32 rounds them to 1e-4): one position takes all, and nothing overflows."""
    for rows in (2, 20):
        attention_agrees(ops, [sequence(rows, 300, 2, 1, 16)], 16, scale=50.0, label="attention of large scores")


def test_attention_rows_may_be_strided(ops):
    case = paged(ops, [sequence(5, 9, 4, 2, 16)], 4)
    plain = ops.attention(*case.arguments(), 0.25)
    case.q = strided(case.q)
    np.testing.assert_array_equal(ops.attention(*case.arguments(), 0.25), plain)


def test_a_sequence_without_rows_is_passed_over(ops):
    shapes = [(2, 5), (0, 7), (1, 3)]
    attention_agrees(ops, [sequence(r, n, 2, 1, 16, seed=i) for i, (r, n) in enumerate(shapes)], 4)
    attention_agrees(ops, [sequence(r * 20, n * 20, 2, 1, 16, seed=i) for i, (r, n) in enumerate(shapes)], 4)


@pytest.mark.parametrize("dtype", ("float32", "int8"))
@pytest.mark.parametrize("rows", (1, 3, 30))
@pytest.mark.parametrize("which", (0, 1))
def test_a_bad_key_or_value_harms_only_who_sees_it(ops, rows, which, dtype):
    sequences = [sequence(rows, 300, 4, 2, 64), sequence(rows, 50, 4, 2, 64, seed=5)]
    sequences[0][1 + which][299, 1] = np.nan  # the last position, key/value head 1 (query heads 2 and 3)
    case = paged(ops, sequences, 16, dtype)
    bad = np.isnan(ops.attention(*case.arguments(), 0.25)).any(-1)
    assert bad[rows - 1].tolist() == [False, False, True, True] and bad.sum() == 2


def test_log_softmax(ops):
    for size in (1, 5, 16, 1000, 49152):
        same(ops, "log_softmax", floats(3, size, scale=8))
    logits = floats(4, 21)
    logits[0, 3], logits[1, 7], logits[2] = -np.inf, np.nan, logits[2] + 1e4
    same(ops, "log_softmax", strided(logits))


def as_float32(*values: float) -> list[float]:
    return [float(np.float32(value)) for value in values]


def draw(ops, logits, temperature, top_k, top_p, min_p, uniforms):
    rows = len(logits)
    settings = [np.full(rows, x, np.float32) for x in (temperature, top_p, min_p)]
    return ops.sample(logits, settings[0], np.full(rows, top_k, np.int32), *settings[1:], uniforms.astype(np.float32))


@pytest.mark.parametrize("size", (1, 5, 33, 1000, 49152))
@pytest.mark.parametrize("temperature, top_k, top_p, min_p", (
    (1.0, 0, 1.0, 0.0), (0.7, 0, 1.0, 0.0), (1.0, 3, 1.0, 0.0), (1.0, 0, 0.9, 0.0), (1.3, 0, 1.0, 0.05), (0.8, 40, 0.95, 0.02),
    (1.0, 1, 1.0, 0.0), (1.0, 0, 1e-6, 0.0), (1.0, 0, 1.0, 1.0), (1.0, 100000, 0.5, 0.0)))
def test_sample_draws_from_the_oracles_distribution(ops, size, temperature, top_k, top_p, min_p):
    logits = np.round(floats(4, size, scale=2) * 8).astype(np.float32) / 8  # many ties
    uniforms = np.array([0, 0.3, 0.77, 1 - 2**-24])
    ids = draw(ops, logits, temperature, top_k, top_p, min_p, uniforms)
    for row, token, u in zip(logits, ids, uniforms):
        p, order = kept_distribution(torch.from_numpy(row), *as_float32(temperature), top_k, *as_float32(top_p, min_p))
        at = order.tolist().index(token)
        above = p[:at].sum()
        assert above - 1e-5 <= u <= above + p[at] + 1e-5


def test_sample_order_of_ties(ops):
    logits = np.zeros((4, 40), np.float32)
    uniforms = np.array([0, 0.26, 0.51, 0.99])
    assert draw(ops, logits, 1.0, 4, 1.0, 0.0, uniforms).tolist() == [0, 1, 2, 3]
    assert draw(ops, logits, 1.0, 0, 1.0, 0.0, uniforms).tolist() == [0, 10, 20, 39]


def test_sampling_order_of_the_cuts(ops):
    assert draw(ops, np.array([[3, 2, 1]], np.float32), 0.5, 0, 0.8, 0.0, np.array([0.999])).tolist() == [0]
    logs = np.log(np.array([[0.4, 0.3, 0.2, 0.1]], np.float32))
    assert draw(ops, logs, 1.0, 2, 0.5, 0.0, np.array([0.999])).tolist() == [0]
    uniforms = np.array([0.0, 0.5, 0.56, 0.58, 0.99])
    assert draw(ops, np.repeat(logs, 5, 0), 1.0, 2, 1.0, 0.0, uniforms).tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("size", (1, 16, 17, 4099))
def test_greedy_takes_the_lowest_best(ops, size):
    logits = np.round(floats(5, size))
    assert draw(ops, logits, 0.0, 0, 1.0, 0.0, np.full(5, 0.9)).tolist() == logits.argmax(1).tolist()


@pytest.mark.parametrize("temperature", (0.0, 0.9))
def test_sample_refuses_bad_logits(ops, temperature):
    logits = floats(5, 40)
    logits[1, 30], logits[2, 3], logits[3], logits[4, 1:] = np.nan, np.inf, -np.inf, -np.inf
    ids = draw(ops, logits, temperature, 0, 1.0, 0.0, np.full(5, 0.5))
    assert ids[0] >= 0 and ids[1:].tolist() == [-1, -1, -1, 0]


def test_wrong_shapes_are_refused(ops):
    with pytest.raises(ValueError, match="96 columns"):
        ops.linear(floats(2, 64), random_weight("int4", 4, 96))
    with pytest.raises(ValueError, match="differ"):
        ops.add(floats(2, 4), floats(3, 4))
    with pytest.raises(ValueError, match="multiple"):
        ops.attention(floats(1, 3, 8), *ops.new_cache(2, 4, 2, 8, "float32"), ints(1)[None], ints(0, 1), ints(1), 1.0)
    with pytest.raises(ValueError, match="new_cache"):
        ops.store_kv(floats(1, 2, 8), floats(1, 2, 8), ints(0), floats(2, 4, 2, 8), floats(2, 4, 2, 8))
    with pytest.raises(ValueError, match="power of two"):
        ops.new_cache(2, 12, 2, 8, "float32")
    with pytest.raises(ValueError, match="int32"):
        ops.take_rows(floats(2, 4), np.array([0]))
    with pytest.raises(ValueError, match="float32"):
        ops.log_softmax(floats(2, 4).astype(np.float64))
