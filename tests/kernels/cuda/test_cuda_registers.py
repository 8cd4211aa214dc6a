"""Arithmetic on packed registers in the simulator, against NumPy."""

import numpy as np
import pytest

from tinyserve.kernels.cuda import warp

RNG = np.random.default_rng(1)


def halves(register):
    return np.array([register], np.uint32).view(np.float16)


def register(values, dtype):
    return int(np.array(values, dtype).view(np.uint32)[0])


def test_float16_pairs():
    low, high = np.float32(1.0004), np.float32(-7000.3)
    np.testing.assert_array_equal(halves(warp.pack_f16(low, high)), np.array([low, high]).astype(np.float16))
    assert warp.unpack_f16(warp.pack_f16(1.5, -2.0)) == (1.5, -2.0)
    a, b, c = (RNG.standard_normal(2).astype(np.float16) for _ in range(3))
    bits = [register(x, np.float16) for x in (a, b, c)]
    np.testing.assert_array_equal(halves(warp.sub_f16x2(*bits[:2])), a - b)
    np.testing.assert_array_equal(halves(warp.mul_f16x2(*bits[:2])), a * b)
    fused = (a.astype(np.float64) * b + c).astype(np.float16)
    np.testing.assert_array_equal(halves(warp.fma_f16x2(*bits)), fused)


@pytest.mark.parametrize("value, rounded", [
    (1.0, 1.0), (1.00390625, 1.0), (1.01171875, 1.015625), (-3.0e38, -3.00406e38), (np.inf, np.inf),
])
def test_bfloat16_rounds_to_nearest_even(value, rounded):
    low, high = warp.unpack_bf16(warp.pack_bf16(value, -value))
    assert low == pytest.approx(rounded, rel=1e-4) and high == -low


def test_bfloat16_keeps_nan_and_fuses():
    assert np.isnan(warp.unpack_bf16(warp.pack_bf16(np.nan, 0))[0])
    two, three, one = (warp.pack_bf16(value, value) for value in (2.0, 3.0, 1.0))
    assert warp.unpack_bf16(warp.fma_bf16x2(two, three, one)) == (7.0, 7.0)


def test_byte_products():
    a, b = RNG.integers(-128, 128, 4), RNG.integers(-128, 128, 4)
    assert warp.dp4a_s8(register(a, np.int8), register(b, np.int8), -5) == int(a @ b) - 5
    unsigned = a & 255
    assert warp.dp4a_u8s8(register(unsigned, np.uint8), register(b, np.int8), 7) == int(unsigned @ b) + 7


def test_casts_and_bytes():
    assert warp.u32(-1) == 0xFFFFFFFF and warp.i32(0xFFFFFFFF) == -1 and warp.i32(0x7FFFFFFF) == 0x7FFFFFFF
    assert warp.bits_float(warp.float_bits(-0.1)) == np.float32(-0.1)
    assert warp.byte_permute(0x33221100, 0x77665544, 0x6420) == 0x66442200


def test_approximate_functions():
    x = np.float32(1.7)
    got = [warp.exp2(x), warp.rsqrt(x), warp.reciprocal(x)]
    np.testing.assert_allclose(got, [2**1.7, 1.7**-0.5, 1 / 1.7], rtol=1e-6)
    assert warp.exp2(np.float32(-np.inf)) == 0
