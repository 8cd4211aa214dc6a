"""Quantized products: the layout, the rounding of activations, and both kernels against the same integers in NumPy."""

import numpy as np
import pytest
from cuda_checks import TOLERANCE, assert_header, assert_no_races, counted, from_format, poisoned, poisoned_format, to_format

from tinyserve.kernels import layouts
from tinyserve.kernels.cuda.elements import FORMATS
from tinyserve.kernels.cuda.header import ceil
from tinyserve.kernels.cuda.kernel_set import simulated_kernels
from tinyserve.kernels.cuda.linear import activations, packing
from tinyserve.kernels.cuda.linear.dense import dense
from tinyserve.kernels.cuda.linear.embed import embed
from tinyserve.kernels.cuda.linear.fetch import scale_bytes
from tinyserve.kernels.cuda.linear.matmul import matmul
from tinyserve.kernels.cuda.linear.matvec import matvec

RNG = np.random.default_rng(7)
NO_BIAS, NO_ORDER = np.zeros(0, np.float32), np.zeros(0, np.int32)


def weight(bits, n, k, group):
    """A random weight as (packed, W in float64)."""
    scales = RNG.uniform(0.01, 0.02, (n, k // group)).astype(np.float16)
    if bits == 8:
        codes = RNG.integers(-127, 128, (n, k)).astype(np.int8)
        return packing.pack_int8(codes, scales, group), codes * np.repeat(scales.astype(np.float64), group, 1)
    codes, minimums = RNG.integers(0, 16, (n, k)).astype(np.uint8), RNG.uniform(-0.2, 0, scales.shape).astype(np.float16)
    matrix = codes * np.repeat(scales.astype(np.float64), group, 1) + np.repeat(minimums.astype(np.float64), group, 1)
    return packing.pack_int4(codes, scales, minimums, group), matrix


def quantized(x):
    """x[T, K] through the kernel -> (codes, scales, what they stand for)."""
    tokens, k = x.shape
    blocks = ceil(k, 128)
    codes, scales = poisoned(tokens, blocks, 4, 8, dtype=np.uint32), poisoned(tokens, 4 * blocks, 2)
    kernel = activations.quantize("float32", False)
    traffic = counted(kernel, (ceil(tokens * blocks * 16, 128), 128), x, NO_ORDER, codes, scales)
    assert_header(kernel, traffic, T=tokens, K=k, nbytes=4, reordered=0)
    natural = codes.view(np.int8).reshape(tokens, blocks, 4, 4, 2, 4).transpose(0, 1, 3, 4, 2, 5).reshape(tokens, -1)
    np.testing.assert_allclose(scales[..., 1], scales[..., 0] * natural.reshape(tokens, -1, 32).sum(2), rtol=1e-6)
    return codes, scales, natural[:, :k] * np.repeat(scales[..., 0].astype(np.float64), 32, 1)[:, :k]


def test_activations_round_to_nearest_even_per_group():
    x = RNG.standard_normal((3, 160)).astype(np.float32)
    x[1, 32:64] = 0
    _, _, seen = quantized(x)
    groups = x.reshape(3, -1, 32)
    scale = np.abs(groups).max(2, keepdims=True) / np.float32(127)
    exact = np.rint(groups * np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)) * scale
    np.testing.assert_allclose(seen, exact.reshape(3, -1), atol=2e-7)


def test_an_activation_that_is_not_finite_reaches_the_output():
    x = np.ones((1, 32), np.float32)
    x[0, 5] = np.nan
    _, scales, _ = quantized(x)
    assert np.isnan(scales[0, 0, 0])


@pytest.mark.parametrize("bits, group", [(4, 32), (4, 64), (4, 128), (8, 32), (8, 64), (8, 128)])
@pytest.mark.parametrize("n, k, tokens", [(8, 128, 1), (13, 640, 3)])
def test_matvec(bits, group, n, k, tokens):
    packed, matrix = weight(bits, n, k, group)
    codes, scales, seen = quantized(RNG.standard_normal((tokens, k)).astype(np.float32))
    bias = RNG.standard_normal(n).astype(np.float32) if tokens > 1 else NO_BIAS
    out, kernel = poisoned(tokens, n), matvec(bits, group, tokens, "float32")
    traffic = counted(kernel, (ceil(n, 8), 128), packed.codes, packed.scales, codes, scales, bias, out)
    np.testing.assert_allclose(out, seen @ matrix.T + (bias if len(bias) else 0), rtol=1e-5, atol=1e-5)
    sizes = {"N": n, "K": k, "T": tokens, "bits": bits, "scale_bytes": scale_bytes(bits, group), "biased": len(bias) > 0, "nbytes": 4}
    assert_header(kernel, traffic, **sizes)


def test_matvec_reads_little_more_than_the_weights():
    packed, _ = weight(4, 64, 1024, 32)
    codes, scales, _ = quantized(RNG.standard_normal((1, 1024)).astype(np.float32))
    out = poisoned(1, 64)
    traffic = counted(matvec(4, 32, 1, "float32"), (8, 128), packed.codes, packed.scales, codes, scales, NO_BIAS, out)
    moved = 32 * (traffic.distinct_read_sectors + traffic.write_sectors)
    assert moved <= 1.05 * (packed.nbytes + codes.nbytes + scales.nbytes + out.nbytes)


def test_matvec_has_no_races():
    packed, _ = weight(4, 8, 128, 32)
    codes, scales, _ = quantized(RNG.standard_normal((2, 128)).astype(np.float32))
    assert_no_races(matvec(4, 32, 2, "float32"), (1, 128), packed.codes, packed.scales, codes, scales, NO_BIAS, poisoned(2, 8))


@pytest.mark.parametrize("bits, group", [(4, 32), (4, 128), (8, 32), (8, 128)])
@pytest.mark.parametrize("n, k, tokens", [(40, 128, 16), (13, 256, 21)])
def test_matmul(bits, group, n, k, tokens):
    packed, matrix = weight(bits, n, k, group)
    codes, scales, seen = quantized(RNG.standard_normal((tokens, k)).astype(np.float32))
    bias = RNG.standard_normal(n).astype(np.float32) if tokens > 16 else NO_BIAS
    row_tiles = ceil(tokens, 16)
    out, kernel = poisoned(tokens, n), matmul(bits, group, row_tiles, "float32")
    traffic = counted(kernel, ((ceil(n, 32), 1), 128), packed.codes, packed.scales, codes, scales, bias, out)
    np.testing.assert_allclose(out, seen @ matrix.T + (bias if len(bias) else 0), rtol=1e-5, atol=1e-5)
    assert_header(kernel, traffic, N=n, K=k, T=tokens, nbytes=4)


@pytest.mark.parametrize("form", FORMATS)
def test_act_order_gathers_the_activations(form):
    """GPTQ with g_idx: columns of a group lie apart in W, and together in the packed weight."""
    k, group = 128, 32
    codes, group_of = RNG.integers(0, 16, (9, k)).astype(np.uint8), RNG.permutation(np.repeat(np.arange(4), group))
    scales, zeros = RNG.uniform(0.01, 0.02, (9, 4)).astype(np.float16), RNG.integers(0, 16, (9, 4))
    minimums = (-scales * zeros).astype(np.float16)
    matrix = codes * scales[:, group_of].astype(np.float64) + minimums[:, group_of]
    together, order = packing.by_group(codes, group_of)
    ops = simulated_kernels()
    weight = ops.upload(packing.pack_int4(together, scales, minimums, group, order))
    x = to_format(RNG.standard_normal((2, k)), form)
    out = from_format(ops.linear(x, weight), form)
    np.testing.assert_allclose(out, from_format(x, form) @ matrix.T, atol=0.05 * np.abs(out).max())
    plain = ops.upload(packing.pack_int4(together, scales, minimums, group))
    np.testing.assert_array_equal(ops.linear(x, weight), ops.linear(np.ascontiguousarray(x[:, order]), plain))


@pytest.mark.parametrize("form", ["float16", "bfloat16"])
def test_results_in_half_precision(form):
    packed, matrix = weight(4, 9, 128, 32)
    codes, scales, seen = quantized(RNG.standard_normal((2, 128)).astype(np.float32))
    for kernel, launch in ((matvec(4, 32, 2, form), (2, 128)), (matmul(4, 32, 1, form), (1, 128))):
        out = poisoned_format(form, 2, 9)
        kernel[launch](packed.codes, packed.scales, codes, scales, NO_BIAS, out)
        np.testing.assert_allclose(from_format(out, form), seen @ matrix.T, **TOLERANCE[form])


def test_layouts_of_the_op_set_are_repacked_without_rounding():
    k = 96
    codes, scales = RNG.integers(0, 16, (20, k)).astype(np.uint8), RNG.uniform(0.01, 0.02, (20, 3)).astype(np.float16)
    int4 = layouts.pack_int4(codes, scales, -scales)
    int8 = layouts.pack_int8(RNG.integers(-127, 128, (20, k)).astype(np.int8), scales)
    x, xs, seen = quantized(np.eye(k, dtype=np.float32)[:8])
    for source in (int4, int8):
        packed, out = packing.pack(source), poisoned(8, 20)
        matvec(packed.bits, 32, 8, "float32")[3, 128](packed.codes, packed.scales, x, xs, NO_BIAS, out)
        np.testing.assert_allclose(out, layouts.dequantize(source)[:, :8].T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bits, group", [(4, 32), (4, 128), (8, 32), (8, 64)])
def test_embed(bits, group):
    packed, matrix = weight(bits, 19, 256, group)
    ids, out = np.array([18, 0, 7], np.int32), poisoned(3, 256)
    traffic = counted(embed(bits, group, "float32"), (2, 128), packed.codes, packed.scales, ids, out)
    np.testing.assert_allclose(out, matrix[ids], rtol=1e-6, atol=1e-6)
    assert_header(embed(bits, group, "float32"), traffic, T=3, K=256, scale_bytes=4 if bits == 4 else 2, nbytes=4)


@pytest.mark.parametrize("form, weight_form", [
    ("float32", "float32"), ("float32", "bfloat16"), ("float16", "float16"), ("bfloat16", "bfloat16"),
])
def test_dense(form, weight_form):
    x, w = to_format(RNG.standard_normal((3, 72)), form), to_format(RNG.standard_normal((5, 72)), weight_form)
    out = poisoned_format(form, 3, 5)
    bias = RNG.standard_normal(5).astype(np.float32)
    traffic = counted(dense(form, weight_form), ((2, 3), 128), x, w, bias, out)
    np.testing.assert_allclose(from_format(out, form), from_format(x, form) @ from_format(w, weight_form).T + bias, **TOLERANCE[form])
    sizes = {"nbytes": FORMATS[form].nbytes, "weight_nbytes": FORMATS[weight_form].nbytes, "biased": 1}
    assert_header(dense(form, weight_form), traffic, T=3, N=5, K=72, **sizes)
