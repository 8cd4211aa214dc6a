"""Norms, rotations, activations and cache writes in every element format, at odd row counts, against float64."""

import numpy as np
import pytest
from cuda_checks import TOLERANCE, assert_header, assert_no_races, counted, from_format, poisoned_format, to_format

from tinyserve.kernels.cuda import elementwise, norms
from tinyserve.kernels.cuda.elements import FORMATS
from tinyserve.kernels.cuda.header import ceil

RNG = np.random.default_rng(5)
EVERY = pytest.mark.parametrize("form", FORMATS)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@EVERY
@pytest.mark.parametrize("rows, columns", [(1, 8), (3, 72), (2, 1032)])
def test_rms_norm(form, rows, columns):
    x, weight, out = to_format(normal(rows, columns), form), normal(1, columns), poisoned_format(form, rows, columns)
    kernel = norms.rms_norm(form)
    traffic = counted(kernel, (rows, 128), x, weight, np.float32(1e-5), out)
    exact = from_format(x, form)
    exact = exact / np.sqrt((exact**2).mean(1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(from_format(out, form), exact, **TOLERANCE[form])
    assert_header(kernel, traffic, T=rows, H=columns, nbytes=FORMATS[form].nbytes)


def test_rms_norm_has_no_races():
    assert_no_races(norms.rms_norm("float32"), (2, 128), normal(2, 72), normal(1, 72), np.float32(0), normal(2, 72))


@EVERY
@pytest.mark.parametrize("rows, heads, head_dim", [(1, 1, 16), (5, 3, 32), (3, 2, 64)])
def test_rope(form, rows, heads, head_dim):
    x, out = to_format(normal(rows, heads * head_dim), form), poisoned_format(form, rows, heads * head_dim)
    positions, angles = RNG.integers(0, 9, rows).astype(np.int32), RNG.uniform(0, 7, (9, head_dim // 2))
    cos_sin = np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    kernel = elementwise.rope(form)
    traffic = counted(kernel, (ceil(rows * heads * head_dim, 16 * 128), 128), x, positions, cos_sin, out)
    a, b = np.split(from_format(x, form).reshape(rows, heads, head_dim), 2, axis=2)
    c, s = np.split(cos_sin[positions][:, None].astype(np.float64), 2, axis=2)
    exact = np.concatenate([a * c - b * s, b * c + a * s], 2).reshape(rows, -1)
    np.testing.assert_allclose(from_format(out, form), exact, **TOLERANCE[form])
    assert_header(kernel, traffic, T=rows, heads=heads, D=head_dim, nbytes=FORMATS[form].nbytes)


EXACT = {
    "silu_mul": lambda x, y: x / (1 + np.exp(-x)) * y,
    "add": lambda x, y: x + y,
    "gelu": lambda x, y: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


@EVERY
@pytest.mark.parametrize("operation", EXACT)
def test_pointwise(operation, form):
    both = to_format(3 * normal(5, 80), form)
    x, y, out = both[:, :40], both[:, 40:], poisoned_format(form, 5, 40)
    kernel = elementwise.pointwise(operation, form)
    traffic = counted(kernel, (1, 128), x, y, out)
    np.testing.assert_allclose(from_format(out, form), EXACT[operation](from_format(x, form), from_format(y, form)), **TOLERANCE[form])
    assert_header(kernel, traffic, T=5, F=40, nbytes=FORMATS[form].nbytes)


def test_pointwise_survives_large_values():
    x = np.array([[-200, 200, -90, 90, 0, 1, -1, 88]], np.float32)
    out = poisoned_format("float32", 1, 8)
    for operation in ("silu_mul", "gelu"):
        elementwise.pointwise(operation, "float32")[1, 128](x, x, out)
        np.testing.assert_allclose(out, EXACT[operation](x.astype(np.float64), x.astype(np.float64)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form, cache_form", [
    ("float32", "float32"), ("float32", "float16"), ("float16", "float16"), ("bfloat16", "bfloat16"),
])
def test_store_kv_writes_its_slots_and_no_other(form, cache_form):
    k, v = to_format(normal(3, 32), form), to_format(normal(3, 32), form)
    key_cache, value_cache = poisoned_format(cache_form, 7, 32), poisoned_format(cache_form, 7, 32)
    slots = np.array([6, 0, 3], np.int32)
    kernel = elementwise.store_kv(form, cache_form)
    traffic = counted(kernel, (1, 128), k, v, slots, key_cache, value_cache)
    for cache, source in ((key_cache, k), (value_cache, v)):
        np.testing.assert_allclose(from_format(cache, cache_form)[slots], from_format(source, form), **TOLERANCE[cache_form])
        assert np.isnan(from_format(cache, cache_form)[[1, 2, 4, 5]]).all()
    assert_header(kernel, traffic, T=3, C=32, nbytes=FORMATS[form].nbytes, cache_nbytes=FORMATS[cache_form].nbytes)


@EVERY
def test_layer_norm(form):
    x, weight, bias, out = to_format(2 + normal(3, 72), form), normal(1, 72), normal(1, 72), poisoned_format(form, 3, 72)
    traffic = counted(norms.layer_norm(form), (3, 128), x, weight, bias, np.float32(1e-5), out)
    exact = from_format(x, form)
    exact = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5) * weight + bias
    np.testing.assert_allclose(from_format(out, form), exact, **TOLERANCE[form])
    assert_header(norms.layer_norm(form), traffic, T=3, H=72, nbytes=FORMATS[form].nbytes)


@pytest.mark.parametrize("size", [1, 130])
def test_log_softmax(size):
    x, out = 20 * normal(2, size), poisoned_format("float32", 2, size)
    traffic = counted(norms.log_softmax, (2, 128), x, out)
    exact = x - x.max(1, keepdims=True).astype(np.float64)
    np.testing.assert_allclose(out, exact - np.log(np.exp(exact).sum(1, keepdims=True)), rtol=1e-5, atol=1e-5)
    assert_header(norms.log_softmax, traffic, S=2, V=size)


@pytest.mark.parametrize("form, out_form", [("float32", "float32"), ("bfloat16", "float32"), ("float16", "bfloat16")])
def test_take_rows(form, out_form):
    x, rows, out = to_format(normal(5, 16), form), np.array([4, 0, 4], np.int32), poisoned_format(out_form, 3, 16)
    traffic = counted(elementwise.take_rows(form, out_form), (1, 128), x, rows, out)
    np.testing.assert_allclose(from_format(out, out_form), from_format(x, form)[rows], **TOLERANCE[out_form])
    sizes = {"nbytes": FORMATS[form].nbytes, "out_nbytes": FORMATS[out_form].nbytes}
    assert_header(elementwise.take_rows(form, out_form), traffic, R=3, H=16, **sizes)
