"""`use`: a learner's own op runs inside the real kernel set, on torch tensors, and is gone afterwards."""

import numpy as np
import pytest
import torch
from kernel_cases import floats, ints, paged, random_weight, sequence

from tinyserve.errors import InvalidRequest
from tinyserve.kernels import overridden, select, use
from tinyserve.kernels.api import OPS
from tinyserve.kernels.reference import ReferenceKernels


def test_an_op_of_ones_own():
    ops, seen = select("cpu"), []

    def doubled(x, y):
        seen.append((type(x), x.dtype, tuple(x.shape)))
        return 2 * (x.double() + y)

    x = floats(2, 3)
    with use(add=doubled):
        got = ops.add(x, x)
        assert overridden() and isinstance(got, np.ndarray) and got.dtype == np.float32
        np.testing.assert_allclose(got, 4 * x, rtol=1e-6)
        np.testing.assert_array_equal(ops.gelu(x), select("cpu").kernels.gelu(x))
    assert seen == [(torch.Tensor, torch.float32, (2, 3))] and not overridden()
    np.testing.assert_array_equal(ops.add(x, x), 2 * x)


def test_tensors_are_views_of_the_arrays():
    ops, keys = select("cpu"), {}

    def only_the_first(k, v, slots, key_cache, value_cache):
        key_cache[0, 0] = k[0].to(key_cache.dtype)
        keys["strides"] = key_cache.stride()

    caches = ops.new_cache(3, 4, 2, 8, "float16")
    k = floats(2, 2, 8)
    with use(store_kv=only_the_first):
        assert ops.store_kv(k, k, ints(5, 6), *caches) is None
    np.testing.assert_array_equal(caches[0][0, 0], k[0].astype(np.float16))
    assert not caches[0][1].any() and not caches[1].any()
    assert keys["strides"] == tuple(s // 2 for s in caches[0].strides)


def test_inner_use_wins_and_outer_returns():
    ops, x = select("cpu"), floats(1, 2)
    with use(gelu=lambda x: x + 1, add=lambda x, y: x):
        with use(gelu=lambda x: x + 2):
            np.testing.assert_array_equal(ops.gelu(x), x + np.float32(2))
            np.testing.assert_array_equal(ops.add(x, 2 * x), x)
        np.testing.assert_array_equal(ops.gelu(x), x + np.float32(1))


def test_an_error_inside_restores():
    with pytest.raises(ZeroDivisionError), use(gelu=lambda x: 1 / 0):
        select("cpu").gelu(floats(1, 2))
    assert not overridden()


def test_a_wrong_name_is_refused():
    with pytest.raises(InvalidRequest, match="no op named 'atention'.*attention"), use(atention=lambda: None):
        pass
    assert not overridden()
    with pytest.raises(InvalidRequest, match="'tpu'"):
        select("tpu")


def test_reference_gets_its_own_tensors():
    x = torch.ones(1, 2)
    with use(gelu=lambda given: given + x):
        assert select("reference").gelu(x) is not x and torch.equal(select("reference").gelu(x), 2 * x)


def every_op(ops, dtype: str) -> dict[str, np.ndarray]:
    """Each op once on the CPU set's arrays, by name."""
    x, gain, weight = floats(5, 64, scale=2), floats(64, seed=1), random_weight("int4", 33, 64)
    angles, heads = floats(9, 16), x.reshape(5, 4, 16)
    caches, case = ops.new_cache(4, 4, 4, 16, dtype), paged(ops, [sequence(3, 20, 4, 2, 16)], 4, dtype)
    plain = [np.full(5, value, np.float32) for value in (0.0, 1.0, 0.0, 0.5)]
    ops.store_kv(heads, heads, ints(0, 3, 4, 9, 15), *caches)
    return {
        "embed": ops.embed(ints(0, 32), weight), "rms_norm": ops.rms_norm(x, gain, 1e-5),
        "layer_norm": ops.layer_norm(x, gain, gain, 1e-5), "add": ops.add(x, x),
        "rope": ops.rope(heads, heads, ints(0, 1, 2, 3, 8), angles)[1],
        "silu_mul": ops.silu_mul(x[:, :32], x[:, 32:]), "gelu": ops.gelu(x), "linear": ops.linear(x, weight, gain[:33]),
        "take_rows": ops.take_rows(x, ints(4, 4)), "store_kv": caches[0], "attention": ops.attention(*case.arguments(), 0.2),
        "sample": ops.sample(x, plain[0], np.zeros(5, np.int32), *plain[1:]), "log_softmax": ops.log_softmax(x),
    }


@pytest.mark.parametrize("dtype", ("float32", "float16"))
def test_every_op_may_be_the_references(dtype):
    ops = select("cpu")
    want = every_op(ops, dtype)
    assert set(want) == set(OPS)
    for name in OPS:
        with use(**{name: getattr(ReferenceKernels(), name)}):
            got = every_op(ops, dtype)[name]
        assert isinstance(got, np.ndarray) and got.dtype == want[name].dtype
        np.testing.assert_allclose(got, want[name], rtol=1e-5, atol=1e-4)
