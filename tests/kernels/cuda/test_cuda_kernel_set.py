"""The op set in the simulator: every op against the CPU kernels, a toy model through the engine, and what is refused."""

import numpy as np
import pytest
from cuda_checks import TOLERANCE, TorchInSimulator, assert_header, counted

from tinyserve.engine.engine import Engine, EngineConfig
from tinyserve.kernels import layouts
from tinyserve.kernels.cpu.kernel_set import CpuKernels
from tinyserve.kernels.cuda.arguments import BadArgument
from tinyserve.kernels.cuda.kernel_set import CudaKernels, simulated_kernels
from tinyserve.kernels.cuda.kv_int8 import store_kv_int8
from tinyserve.models.batch import ForwardBatch
from tinyserve.models.config import ModelConfig
from tinyserve.models.decoder import Decoder, DecoderWeights, LayerWeights, Linear, Norm
from tinyserve.models.rope import rope_table
from tinyserve.text.params import SamplingParams

CPU, SIM = CpuKernels(threads=1), simulated_kernels()
CONFIG = ModelConfig(architecture="llama", layers=1, hidden=32, heads=2, kv_heads=1, head_dim=16, ffn=64, vocab=64, context_length=64,
                     eps=1e-5, tied=True)


def normal(*shape, seed=0, scale=1.0):
    return (scale * np.random.default_rng([seed, *shape]).standard_normal(shape)).astype(np.float32)


def matrix(kind, n, k, seed=0):
    rng = np.random.default_rng([seed, n, k])
    if kind == "float32":
        return layouts.pack_dense(normal(n, k, seed=seed, scale=k**-0.5))
    if kind == "bfloat16":
        return layouts.pack_dense((normal(n, k, seed=seed, scale=k**-0.5).view(np.uint32) >> 16).astype(np.uint16))
    scales = rng.uniform(0.005, 0.01, (n, k // 32)).astype(np.float16)
    if kind == "int8":
        return layouts.pack_int8(rng.integers(-127, 128, (n, k)).astype(np.int8), scales)
    scales *= np.float16(8)
    return layouts.pack_int4(rng.integers(0, 16, (n, k)).astype(np.uint8), scales, (-7.5 * scales).astype(np.float16))


@pytest.mark.parametrize("name, arguments", [
    ("rms_norm", (normal(3, 40), normal(40, seed=1), 1e-5)), ("rms_norm", (normal(3, 2, 16), normal(16, seed=1), 1e-5)),
    ("layer_norm", (normal(3, 40), normal(40, seed=1), normal(40, seed=2), 1e-5)), ("add", (normal(3, 40), normal(3, 40, seed=1))),
    ("silu_mul", (normal(3, 80)[:, :40], normal(3, 80)[:, 40:])), ("gelu", (normal(3, 40),)),
    ("take_rows", (normal(5, 16), np.array([4, 0], np.int32))), ("log_softmax", (normal(3, 50),)),
])
def test_ops_agree_with_the_cpu(name, arguments):
    np.testing.assert_allclose(getattr(SIM, name)(*arguments), getattr(CPU, name)(*arguments), rtol=3e-5, atol=3e-6)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8", "int4"])
def test_products_and_embeddings_agree_with_the_cpu(kind):
    weight = matrix(kind, 20, 64)
    mine, bias = SIM.weight(weight), normal(20, seed=3)
    for tokens in (1, 3, 17):
        x = normal(tokens, 64, seed=4)
        np.testing.assert_allclose(SIM.linear(x, mine, bias), CPU.linear(x, weight, bias), rtol=2e-5, atol=2e-5)
    ids = np.array([19, 0, 7], np.int32)
    np.testing.assert_allclose(SIM.embed(ids, mine), CPU.embed(ids, weight), rtol=1e-6, atol=1e-6)
    assert SIM.linear(normal(0, 64), mine).shape == (0, 20) and mine.nbytes > 0


@pytest.mark.parametrize("form", ["float32", "float16"])
def test_attention_agrees_with_the_cpu(form):
    """Prefill, a chunk, decode and a verification in one batch; float16 rows go through the tensor cores."""
    head_dim, block, rows, lengths = 32, 4, np.array([5, 3, 1]), np.array([5, 9, 6], np.int32)
    starts = np.concatenate([[0], np.cumsum(rows)]).astype(np.int32)
    tables = np.array([[1, 2, 0], [3, 4, 5], [6, 7, 0]], np.int32)
    q, k, v = normal(9, 4, head_dim), normal(20, 2, head_dim, seed=1), normal(20, 2, head_dim, seed=2)
    slots = [tables[s, at // block] * block + at % block for s, at in enumerate(map(np.arange, lengths))]
    slots = np.concatenate(slots).astype(np.int32)
    outputs = []
    for ops, kind in ((CPU, np.float32), (SIM, form)):
        caches = ops.new_cache(8, block, 2, head_dim, "float32" if ops is CPU else form)
        ops.store_kv(k.astype(kind), v.astype(kind), slots, *caches)
        outputs.append(ops.attention(q.astype(kind), *caches, tables, starts, lengths, head_dim**-0.5, 4))
    assert outputs[1].dtype == form
    np.testing.assert_allclose(outputs[1].astype(np.float32), outputs[0], **TOLERANCE[form])


def test_caches_in_int8():
    """Rounded once when stored; attention then equals attention over what was stored. Other slots stay as they were."""
    k, v, q = normal(7, 3, 32), normal(7, 3, 32, seed=1), normal(2, 6, 32, seed=2)
    k[2, 1] = 0
    caches, slots = SIM.new_cache(3, 4, 3, 32, "int8"), np.array([4, 5, 6, 7, 8, 9, 10], np.int32)
    assert caches[0].shape == (3, 4, 3, 32)
    rows = [SIM._slots(cache) for cache in caches]
    kernel = store_kv_int8("float32", 3, 32)
    traffic = counted(kernel, (1, 128), k.reshape(7, -1), v.reshape(7, -1), slots, *rows)
    assert_header(kernel, traffic, T=7, C=96, Hk=3, nbytes=4)
    seen = []
    for row, source in zip(rows, (k, v)):
        assert (row[:4] == 0).all() and (row[11:] == 0).all()
        scales = np.ascontiguousarray(row[4:11, 96:108]).view(np.float32)[..., None]
        np.testing.assert_array_equal(scales[..., 0], np.abs(source).max(2) / np.float32(127))
        seen.append(np.ascontiguousarray(row[4:11, :96]).view(np.int8).reshape(7, 3, 32) * scales)
        assert (np.abs(seen[-1] - source) <= 0.502 * scales).all()
    tables, starts, lengths = np.array([[1, 2]], np.int32), np.array([0, 2], np.int32), np.array([7], np.int32)
    out = SIM.attention(q, *caches, tables, starts, lengths, 0.2)
    plain = CPU.new_cache(3, 4, 3, 32, "float32")
    CPU.store_kv(*seen, slots, *plain)
    np.testing.assert_allclose(out, CPU.attention(q, *plain, tables, starts, lengths, 0.2), rtol=2e-5, atol=2e-6)


def test_sampling_agrees_with_the_cpu():
    logits, ones = normal(4, 50, scale=2), np.ones(4, np.float32)
    options = [np.array([0, 1, 0.7, 1], np.float32), np.array([0, 5, 0, 0], np.int32), np.array([1, 1, 0.8, 1], np.float32), ones * 0.01]
    uniforms = np.array([0.5, 0.3, 0.9, 0.1], np.float32)
    np.testing.assert_array_equal(SIM.sample(logits, *options, uniforms), CPU.sample(logits, *options, uniforms))


def decoder(ops, kind):
    """A one-layer model with the same random weights on any kernel set."""
    def norm(seed):
        return Norm(ops.array(1 + normal(CONFIG.hidden, seed=seed, scale=0.1)))

    def linear(n, k, seed):
        return Linear(ops.weight(matrix(kind, n, k, seed)))
    embedding = ops.weight(matrix(kind, CONFIG.vocab, CONFIG.hidden, 1))
    layer = LayerWeights(norm(2), (linear(64, 32, 3),), linear(32, 32, 4), norm(5), (linear(128, 32, 6),), linear(32, 64, 7))
    return Decoder(CONFIG, DecoderWeights(embedding, (layer,), norm(8), embedding, cos_sin=ops.array(rope_table(CONFIG, 64))), ops)


def generate(ops, kind):
    """Two prompts, greedy, in chunks of at most 4 tokens a step."""
    engine = Engine(decoder(ops, kind), ops, EngineConfig(max_model_len=64, num_blocks=17, block_size=4, max_num_batched_tokens=4))
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, detokenize=False)
    for name, prompt in (("a", [5, 9, 2, 61, 33, 17]), ("b", [7, 30])):
        engine.add(name, prompt, params)
    tokens = {"a": [], "b": []}
    while engine.has_work:
        for progress in engine.step():
            tokens[progress.sequence.request.id] += [token.token_id for token in progress.tokens]
    return tokens


@pytest.mark.full
@pytest.mark.parametrize("kind", ["float32", "int8", "int4"])
def test_a_toy_model_generates_the_tokens_of_the_cpu(kind):
    assert generate(SIM, kind) == generate(CPU, kind)


@pytest.mark.parametrize("form", ["float32", "float16", "bfloat16"])
def test_the_op_set_on_tensors(form):
    """The code that runs on a GPU, up to the launches: a prompt, then three more tokens, in every element format."""
    memory, logits = TorchInSimulator(), []
    for ops in (CPU, CudaKernels(memory, form)):
        model, caches = decoder(ops, "int4"), [ops.new_cache(4, 4, 1, 16, "float32" if ops is CPU else form)]
        for start, stop in ((0, 4), (4, 7)):
            out = ops.numpy(model.forward(three_tokens(ops, start, stop), caches))
        logits.append(out.astype(np.float32))
        ids = ops.sample(ops.array(logits[-1]), *(ops.array(np.zeros(3, kind)) for kind in (np.float32, np.int32)),
                         ops.array(np.ones(3, np.float32)), *(ops.array(np.zeros(3, np.float32)) for _ in range(2)))
        np.testing.assert_array_equal(ops.numpy(ids), logits[-1].argmax(1))
        assert np.isfinite(ops.numpy(ops.log_softmax(ops.array(logits[-1])))).all()
    scale = np.abs(logits[0]).max()
    np.testing.assert_allclose(logits[1], logits[0], atol=scale * {"float32": 1e-4, "float16": 5e-2, "bfloat16": 2e-1}[form])


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8"])
def test_weights_and_caches_as_tensors(kind):
    ops = CudaKernels(TorchInSimulator(), "float16")
    weight = matrix(kind, 16, 32)
    ids = ops.array(np.array([3, 15], np.int32))
    exact = layouts.dequantize(weight)
    np.testing.assert_allclose(ops.numpy(ops.embed(ids, ops.weight(weight))), exact[[3, 15]], atol=1e-3)
    x = ops.embed(ids, ops.weight(weight))
    np.testing.assert_allclose(ops.numpy(ops.linear(x, ops.weight(weight))), exact[[3, 15]] @ exact.T, atol=0.1 if kind == "int8" else 2e-2)
    k, caches = ops.array(normal(1, 2, 16)), ops.new_cache(2, 4, 2, 16, "int8")
    ops.store_kv(k, k, ops.array(np.array([5], np.int32)), *caches)
    places = [ops.array(np.array(x, np.int32)) for x in ([[0, 1]], [0, 1], [6])]
    assert np.isfinite(ops.numpy(ops.attention(k, *caches, *places, 0.25))).all()


def three_tokens(ops, start, stop):
    ids, at = np.array([3, 1, 4, 1, 5, 9, 2], np.int32), np.arange(start, stop, dtype=np.int32)
    batch = (ids[start:stop].copy(), at, at + 4, np.array([[1, 2]], np.int32), np.array([0, len(at)], np.int32),
             np.array([stop], np.int32), np.arange(len(at), dtype=np.int32))
    return ForwardBatch(*map(ops.array, batch))


def test_a_verification_of_three_tokens():
    """Three rows at the end of a context of seven, all their logits wanted."""
    logits = []
    for ops in (CPU, SIM):
        model, caches = decoder(ops, "int4"), [ops.new_cache(4, 4, 1, 16, "float32")]
        for start, stop in ((0, 4), (4, 7)):
            out = ops.numpy(model.forward(three_tokens(ops, start, stop), caches))
        logits.append(out)
    assert logits[1].shape == (3, 64)
    np.testing.assert_allclose(logits[1], logits[0], rtol=1e-4, atol=1e-4)


CACHES = SIM.new_cache(4, 4, 2, 16, "float32")
TABLE, STARTS, LENGTHS = np.array([[1, 2]], np.int32), np.array([0, 1], np.int32), np.array([6], np.int32)


@pytest.mark.parametrize("call, words", [
    (lambda: SIM.rms_norm(normal(2, 12), normal(12), 1e-5), "x has 12 columns"),
    (lambda: SIM.rms_norm(normal(2, 16), normal(8), 1e-5), "weight or bias has shape"),
    (lambda: SIM.add(normal(2, 16), normal(2, 8)), "add: shapes"),
    (lambda: SIM.gelu(normal(2, 16).astype(np.float64)), "x is float64"),
    (lambda: SIM.silu_mul(normal(16, 8).T, normal(16, 8).T), "neighbouring values"),
    (lambda: SIM.linear(normal(2, 24), SIM.weight(matrix("float32", 8, 32))), "x has 24 columns"),
    (lambda: SIM.embed(np.array([8], np.int32), SIM.weight(matrix("float32", 8, 32))), "ids holds 8..8"),
    (lambda: SIM.take_rows(normal(2, 16), np.array([1])), "rows is int64"),
    (lambda: SIM.attention(normal(1, 3, 16), *CACHES, TABLE, STARTS, LENGTHS, 1.0), "not a multiple of the cache's 2"),
    (lambda: SIM.attention(normal(1, 2, 48), *SIM.new_cache(4, 4, 2, 48, "float32"), TABLE, STARTS, LENGTHS, 1.0), "heads of 48"),
    (lambda: SIM.attention(normal(1, 2, 32), *CACHES, TABLE, STARTS, LENGTHS, 1.0), "q has heads of 32, the cache of 16"),
    (lambda: SIM.attention(normal(1, 2, 16), *CACHES, TABLE + 3, STARTS, LENGTHS, 1.0), "block_tables holds 4..5"),
    (lambda: SIM.attention(normal(1, 2, 16), *CACHES, TABLE, STARTS, LENGTHS + 3, 1.0), "context_lengths holds 9..9"),
    (lambda: SIM.store_kv(normal(1, 2, 16), normal(1, 2, 16), np.array([16], np.int32), *CACHES), "slots holds 16..16"),
    (lambda: SIM.store_kv(normal(1, 1, 16), normal(1, 1, 16), np.array([0], np.int32), *CACHES), "k has heads"),
    (lambda: SIM.new_cache(4, 3, 2, 16, "float32"), "power of two"), (lambda: SIM.new_cache(4, 4, 2, 16, "int3"), "KV dtype"),
])
def test_wrong_arguments_are_refused_by_name(call, words):
    with pytest.raises(BadArgument, match=words):
        call()
