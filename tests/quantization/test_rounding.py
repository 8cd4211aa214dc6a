"""Round to nearest: values worked out by hand, and the error that a group can have at most."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tinyserve.errors import CorruptCheckpoint, TinyserveError, UnsupportedModel
from tinyserve.kernels.layouts import dequantize, unpack_dense, unpack_int4, unpack_int8
from tinyserve.quantization.blocks import from_q4_0, from_q4_1, from_q8_0
from tinyserve.quantization.rounding import DTYPES, pack, to_bfloat16, to_int4, to_int8


def row(*values):
    """One group: these values, then zeros."""
    return np.array([[*values, *[0.0] * (32 - len(values))]], np.float32)


def test_int8_by_hand():
    codes, scales = unpack_int8(to_int8(row(127, -127, 63.5, 1.4, -1.6, 0.5, 1.5)))
    assert scales.tolist() == [[1.0]]
    assert codes[0, :8].tolist() == [127, -127, 64, 1, -2, 0, 2, 0]  # halves go to the even neighbour


def test_int4_by_hand():
    weight = to_int4(row(15, -15, 0, 1.4, -14))
    codes, scales, minimums = unpack_int4(weight)
    assert scales.tolist() == [[2.0]] and minimums.tolist() == [[-15.0]]
    assert codes[0, :6].tolist() == [15, 0, 8, 8, 0, 8]  # (0 + 15) / 2 = 7.5 -> 8, (-14 + 15) / 2 = 0.5 -> 0
    assert dequantize(weight)[0, :5].tolist() == [15, -15, 1, 1, -15]


def test_bfloat16_by_hand():
    values = np.array([1.0, 1.00390625, 1.01171875, -2.0, 0.0, 3.4e38], np.float32)  # 1 + 1/256 and 1 + 3/256 lie half way
    assert to_bfloat16(values).tolist() == [0x3F80, 0x3F80, 0x3F82, 0xC000, 0, 0x7F80]


def test_a_group_of_equal_values_and_of_zeros():
    for value in (0.0, 0.375, -3.0):
        matrix = np.full((3, 64), value, np.float32)
        assert (dequantize(to_int4(matrix)) == value).all()
        assert np.abs(dequantize(to_int8(matrix)) - value).max() <= abs(value) * 2**-10


def test_blocks_by_hand():
    nibbles = (np.arange(16) | (15 - np.arange(16)) << 4).astype(np.uint8)

    def half(value):
        return np.array([value], np.float16).view(np.uint8)

    ours = dequantize(from_q4_1(np.concatenate([half(0.5), half(-1), nibbles])[None]))[0]
    assert ours.tolist() == [0.5 * i - 1 for i in range(16)] + [0.5 * (15 - i) - 1 for i in range(16)]
    ours = dequantize(from_q4_0(np.concatenate([half(0.25), nibbles])[None]))[0]
    assert ours.tolist() == [0.25 * (i - 8) for i in range(16)] + [0.25 * (7 - i) for i in range(16)]
    codes = np.arange(-128, 128, 8).astype(np.int8)
    assert dequantize(from_q8_0(np.concatenate([half(2), codes.view(np.uint8)])[None]))[0].tolist() == (2.0 * codes).tolist()


@pytest.mark.parametrize(("kind", "size", "at"), [(from_q4_1, 20, 0), (from_q4_1, 20, 2), (from_q4_0, 18, 0), (from_q8_0, 34, 0)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scales_that_are_not_finite_are_refused_by_name(kind, size, at, value):
    block = np.zeros((1, size), np.uint8)
    block[0, at:at + 2] = np.array([value], np.float16).view(np.uint8)
    with pytest.raises(CorruptCheckpoint, match="'blk.3'"):
        kind(block, "blk.3")


def test_a_q4_0_scale_whose_minimum_overflows_is_refused():
    block = np.zeros((1, 18), np.uint8)
    block[0, :2] = np.array([9000], np.float16).view(np.uint8)
    with pytest.raises(CorruptCheckpoint, match="too large"):
        from_q4_0(block)


matrices = st.tuples(st.integers(1, 20), st.integers(1, 3)).flatmap(lambda size: arrays(
    np.float32, (size[0], 32 * size[1]), elements=st.floats(-2000, 2000, width=32, allow_subnormal=False)))


def by_group(matrix):
    return matrix.reshape(len(matrix), -1, 32)


@given(matrices)
def test_int8_error(matrix):
    """At most half a step, plus what float16 makes of the scale: 127 times its rounding for the largest code."""
    error, largest = by_group(np.abs(dequantize(pack(matrix, "int8")) - matrix)).max(-1), np.abs(by_group(matrix)).max(-1)
    step = largest / 127
    assert (error <= step * (0.5 + 127 * 2**-11) + 127 * 2**-24).all()


@given(matrices)
def test_int4_error(matrix):
    """At most half a step, plus the rounding of scale (15 times) and minimum in float16."""
    groups = by_group(matrix)
    error, least, spread = by_group(np.abs(dequantize(pack(matrix, "int4")) - matrix)).max(-1), groups.min(-1), np.ptp(groups, axis=-1)
    assert (error <= spread / 30 + spread * 2**-11 + np.abs(least) * 2**-10 + 16 * 2**-24).all()


@given(matrices)
def test_bfloat16_is_torchs(matrix):
    import torch

    theirs = torch.from_numpy(matrix).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert (unpack_dense(pack(matrix, "bfloat16")) == theirs).all()


@given(matrices, st.sampled_from(["int8", "int4"]))
def test_rounding_again_changes_little_and_order_of_rows_nothing(matrix, dtype):
    whole = dequantize(pack(matrix, dtype))
    assert (dequantize(pack(matrix[::-1], dtype)) == whole[::-1]).all()
    assert np.abs(dequantize(pack(whole, dtype)) - whole).max() <= np.abs(matrix).max() * (0.002 if dtype == "int8" else 0.07) + 1e-3


@pytest.mark.parametrize("value", [70_000.0 * 127, 1e38])
def test_values_too_large_for_a_float16_scale_are_refused(value):
    matrix = row(value, -value)
    for dtype in ("int8", "int4"):
        with pytest.raises(TinyserveError, match="'w'.*too large"):
            pack(matrix, dtype, "w")
    assert np.isfinite(dequantize(pack(matrix, "float32"))).all()


def test_columns_that_fill_no_group_are_refused_for_integers_only():
    matrix = np.ones((4, 40), np.float32)
    for dtype in DTYPES:
        if dtype.startswith("int"):
            with pytest.raises(UnsupportedModel, match="40 columns.*float32 or bfloat16"):
                pack(matrix, dtype)
        else:
            assert (dequantize(pack(matrix, dtype)) == 1).all()


def test_nan_and_infinity_are_refused_by_name():
    for dtype in DTYPES:
        for value in (np.nan, np.inf):
            with pytest.raises(CorruptCheckpoint, match="'w' holds NaN or infinity"):
                pack(row(1, value), dtype, "w")
