"""The oracle itself, against values worked out by hand and against torch.nn.functional, which somebody else wrote."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tinyserve.kernels import select
from tinyserve.kernels.api import OPS
from tinyserve.kernels.layouts import dequantize, pack_dense, pack_int4, pack_int8
from tinyserve.kernels.reference import ReferenceKernels
from tinyserve.kernels.reference.attention import visible
from tinyserve.kernels.reference.linear import quantize_activations
from tinyserve.kernels.reference.sampling import kept_distribution

ops = ReferenceKernels()


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def close(got: torch.Tensor, want: torch.Tensor, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def test_every_op_is_there():
    assert all(callable(getattr(ops, name)) for name in OPS)
    assert select("reference").kernels.name == "reference" and ops.recorder() is None


def test_norms():
    close(ops.rms_norm(torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 2.0]), 0.0), torch.tensor([[3, 8]]) / math.sqrt(12.5))
    x, w, b = randn(5, 24), randn(24, seed=1), randn(24, seed=2)
    close(ops.rms_norm(x, w, 1e-5), F.rms_norm(x, (24,), w, 1e-5))
    close(ops.layer_norm(x, w, b, 1e-5), F.layer_norm(x, (24,), w, b, 1e-5))
    heads = randn(5, 3, 8)
    close(ops.rms_norm(heads, w[:8], 1e-6), F.rms_norm(heads, (8,), w[:8], 1e-6))


def test_activations():
    x, y = randn(4, 33) * 4, randn(4, 33, seed=1)
    close(ops.gelu(x), F.gelu(x, approximate="tanh"))
    close(ops.silu_mul(x, y), F.silu(x) * y)
    close(ops.silu_mul(torch.tensor([[math.log(3.0)]]), torch.tensor([[4.0]])), torch.tensor([[3 * math.log(3.0)]]))
    close(ops.add(x, y), x + y)
    with pytest.raises(ValueError, match="differ"):
        ops.add(x, y[:1])


def test_rope_turns_pairs():
    cos_sin = torch.tensor([[1.0, 1, 0, 0], [0, 1, 1, 0]])  # position 1: pair 0 by a quarter turn, pair 1 not at all
    q = torch.tensor([[[1.0, 2, 3, 4]], [[1, 2, 3, 4]]])
    turned, key = ops.rope(q, 2 * q, torch.tensor([1, 0]), cos_sin)
    close(turned, torch.tensor([[[-3.0, 2, 1, 4]], [[1, 2, 3, 4]]]))
    close(key, 2 * turned)


def test_rope_keeps_relative_angles():
    angles = torch.arange(16.0)[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001])
    cos_sin = torch.cat([angles.cos(), angles.sin()], 1)
    q, k = randn(1, 1, 8), randn(1, 1, 8, seed=1)
    queries, _ = ops.rope(q.expand(3, 1, 8), k.expand(3, 1, 8), torch.tensor([3, 9, 15]), cos_sin)
    _, keys = ops.rope(q.expand(3, 1, 8), k.expand(3, 1, 8), torch.tensor([0, 6, 12]), cos_sin)
    products = (queries * keys).sum((1, 2))
    close(products, products[:1].expand(3), 1e-5)


def test_embed_and_take_rows():
    matrix = randn(17, 5)
    close(ops.embed(torch.tensor([16, 0, 16], dtype=torch.int32), pack_dense(matrix.numpy())), matrix[[16, 0, 16]], 0)
    close(ops.take_rows(matrix, torch.tensor([3, 3], dtype=torch.int32)), matrix[[3, 3]], 0)


def test_linear_dense():
    x, w, b = randn(3, 20), randn(17, 20, seed=1), randn(17, seed=2)
    close(ops.linear(x, pack_dense(w.numpy()), b), F.linear(x.double(), w.double(), b.double()).float())
    with pytest.raises(ValueError, match="20 columns"):
        ops.linear(x[:, 1:], pack_dense(w.numpy()))


def test_activation_rounding_by_hand():
    x = torch.zeros(1, 64)
    x[0, 0], x[0, 1], x[0, 2], x[0, 3], x[0, 4] = 127, 2.5, 3.5, -0.5, -126.7
    codes, scales = quantize_activations(x)
    assert codes[0, 0, :5].tolist() == [127, 2, 4, 0, -127]  # ties go to the even neighbour
    assert scales.tolist() == [[1, 0]] and not codes[0, 1].any()
    x[0, 40] = torch.inf
    assert quantize_activations(x)[1][0].isnan().tolist() == [False, True]


def test_linear_quantized_by_hand():
    x = torch.zeros(1, 64)
    x[0, 0], x[0, 5], x[0, 33] = 127, -3.4, 254  # scales 1 and 2; codes 127, -3 and 127
    codes = np.zeros((2, 64), np.uint8)
    codes[0, 0], codes[0, 5], codes[0, 33], codes[1, 5] = 2, 7, 15, 1
    scales, minimums = np.array([[0.5, 1], [2, 1]], np.float16), np.array([[-1, 0], [0, 0.25]], np.float16)
    got = ops.linear(x, pack_int4(codes, scales, minimums), torch.tensor([0.0, 10.0]))
    first = 0.5 * (2 * 127 - 7 * 3) - (127 - 3) + 2 * (15 * 127)
    second = 2 * -3 + 2 * 0.25 * 127 + 10
    assert got.tolist() == [[first, second]]
    signed = codes.astype(np.int8) - 5
    got = ops.linear(x, pack_int8(signed, scales))
    assert got[0, 0] == 0.5 * (-3 * 127 - 2 * 3) + 2 * 10 * 127


def test_linear_quantized_is_close_to_its_weights():
    rng = np.random.default_rng(0)
    weight = pack_int4(rng.integers(0, 16, (40, 256)).astype(np.uint8), *np.full((2, 40, 8), (0.1), np.float16))
    x = randn(4, 256)
    want = x.double() @ torch.from_numpy(dequantize(weight)).double().T
    assert (ops.linear(x, weight) - want).norm() / want.norm() < 0.01
    x[1, 100] = torch.nan
    assert ops.linear(x, weight).isnan().all(1).tolist() == [False, True, False, False]


def paged(k: torch.Tensor, v: torch.Tensor, block_size: int, seed: int) -> tuple[torch.Tensor, ...]:
    """One sequence stored through `store_kv` in shuffled blocks: (key cache, value cache, table[1, M])."""
    blocks = -(-len(k) // block_size)
    table = 1 + torch.randperm(blocks, generator=torch.Generator().manual_seed(seed)).int()
    caches = ops.new_cache(blocks + 1, block_size, k.shape[1], k.shape[2], "float32")
    at = torch.arange(len(k))
    ops.store_kv(k, v, table[at // block_size] * block_size + at % block_size, *caches)
    return *caches, table[None]


@pytest.mark.parametrize("window", (0, 1, 5, 100))
@pytest.mark.parametrize("rows", (1, 7, 23))
def test_attention_is_torch_attention(rows, window):
    q, k, v = randn(rows, 6, 8), randn(23, 2, 8, seed=1), randn(23, 2, 8, seed=2)
    keys, values, table = paged(k, v, 4, seed=rows)
    got = ops.attention(q, keys, values, table, torch.tensor([0, rows]), torch.tensor([23]), 0.3, window)
    mask = torch.ones(rows, 23, dtype=torch.bool).tril(23 - rows)
    if window:
        mask &= ~torch.ones(rows, 23, dtype=torch.bool).tril(23 - rows - window)
    heads_first = (x.transpose(0, 1)[None] for x in (q, k, v))
    want = F.scaled_dot_product_attention(*heads_first, attn_mask=mask, scale=0.3, enable_gqa=True)[0].transpose(0, 1)
    close(got, want)


def test_attention_by_hand():
    q, k, v = torch.ones(1, 1, 1), torch.tensor([0.0, math.log(3)])[:, None, None], torch.tensor([4.0, 8])[:, None, None]
    keys, values, table = paged(k, v, 1, seed=0)
    close(ops.attention(q, keys, values, table, torch.tensor([0, 1]), torch.tensor([2]), 1.0), torch.tensor([[[7.0]]]))  # 1/4, 3/4


def test_a_row_sees_its_window():
    assert visible(2, 4, 2).tolist() == [[False, True, True, False], [False, False, True, True]]
    assert visible(1, 3).tolist() == [[True, True, True]]


def test_batch_is_each_sequence_alone():
    q = randn(6, 2, 4)
    keys, values = ops.new_cache(8, 2, 1, 4, "float16")
    keys.copy_(randn(*keys.shape, seed=1)), values.copy_(randn(*values.shape, seed=2))
    tables, starts, lengths = torch.tensor([[3, 1], [7, 0], [2, 5]]), torch.tensor([0, 2, 2, 6]), torch.tensor([3, 1, 4])
    got = ops.attention(q, keys, values, tables, starts, lengths, 0.5)
    for s, (a, b) in enumerate(((0, 2), (2, 2), (2, 6))):
        close(ops.attention(q[a:b], keys, values, tables[s : s + 1], torch.tensor([0, b - a]), lengths[s : s + 1], 0.5), got[a:b], 0)
    with pytest.raises(ValueError, match="multiple"):
        ops.attention(randn(1, 3, 4), *ops.new_cache(1, 2, 2, 4, "float32"), tables, starts, lengths, 1.0)


def kept(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0) -> dict[int, float]:
    p, ids = kept_distribution(torch.as_tensor(logits).double(), temperature, top_k, top_p, min_p)
    return dict(zip(ids.tolist(), p.tolist()))


def test_kept_distribution_by_hand():
    logs = np.log([0.4, 0.3, 0.2, 0.1])
    assert kept([3.0, 2, 1], temperature=0.5, top_p=0.8) == {0: 1.0}
    assert kept(logs, top_k=2, top_p=0.5) == {0: 1.0}
    assert kept(logs, top_k=2) == pytest.approx({0: 4 / 7, 1: 3 / 7})
    assert kept(logs, top_p=0.75) == pytest.approx({0: 4 / 9, 1: 3 / 9, 2: 2 / 9})
    assert kept(logs, min_p=0.45) == pytest.approx({0: 4 / 9, 1: 3 / 9, 2: 2 / 9})
    assert kept(logs, temperature=0.5) == pytest.approx({i: p * p / 0.3 for i, p in enumerate((0.4, 0.3, 0.2, 0.1))})
    assert list(kept([1.0, 2, 2, 0], top_k=3)) == [1, 2, 0]  # ties: rising id


def sample(logits, temperature, uniform, top_k=0, top_p=1.0, min_p=0.0) -> list[int]:
    rows = torch.as_tensor(logits, dtype=torch.float32)
    settings = (torch.full((len(rows),), value) for value in (temperature, top_k, top_p, min_p, uniform))
    return ops.sample(rows, *settings).tolist()


def test_sample_inverts_the_distribution():
    logits = np.log([[0.1, 0.4, 0.2, 0.3]])  # falling: 1 (to .4), 3 (to .7), 2 (to .9), 0
    assert [sample(logits, 1.0, u)[0] for u in (0, 0.39, 0.41, 0.69, 0.71, 0.89, 0.91, 1 - 1e-7)] == [1, 1, 3, 3, 2, 2, 0, 0]
    assert sample([[3.0, 2, 1]], 0.5, 0.999, top_p=0.8) == [0]
    assert sample(np.log([[0.4, 0.3, 0.2, 0.1]]), 1.0, 0.999, top_k=2, top_p=0.5) == [0]


def test_sample_at_temperature_zero_takes_the_lowest_best():
    assert sample([[1.0, 5, 5], [7, 7, 7]], 0.0, 0.99) == [1, 0]


@pytest.mark.parametrize("temperature", (0.0, 1.0))
def test_sample_refuses_bad_logits(temperature):
    assert sample([[1.0, torch.nan], [torch.inf, 0], [-torch.inf] * 2, [-torch.inf, 0]], temperature, 0.5) == [-1, -1, -1, 1]


def test_log_softmax():
    x = randn(3, 50) * 10
    close(ops.log_softmax(x), F.log_softmax(x, -1))
    close(ops.log_softmax(torch.zeros(1, 8)), torch.full((1, 8), -math.log(8)))


def test_host_arrays_come_and_go():
    host = np.arange(6, dtype=np.int32)[::2]
    tensor = ops.array(host)
    host[0] = 9
    assert tensor.tolist() == [0, 2, 4] and ops.numpy(tensor).dtype == np.int32
    with pytest.raises(ValueError, match="int3"):
        ops.new_cache(1, 1, 1, 1, "int3")
