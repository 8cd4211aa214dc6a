"""Packed weights: packing loses nothing, every byte is where the layout's text says, and codes stand for the right numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyserve.kernels import layouts

shapes = st.tuples(st.integers(1, 40), st.integers(1, 4), st.integers(0, 2**32 - 1))


def halves(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float16)


@settings(max_examples=25, deadline=None)
@given(shapes)
def test_dense_comes_back(shape):
    n, groups, seed = shape
    matrix = np.random.default_rng(seed).standard_normal((n, groups * 7), np.float32)
    weight = layouts.pack_dense(matrix)
    assert weight.data.shape == (-(-n // 16), groups * 7, 16)
    np.testing.assert_array_equal(layouts.unpack_dense(weight), matrix)
    bits = (matrix.view(np.uint32) >> 16).astype(np.uint16)
    np.testing.assert_array_equal(layouts.unpack_dense(layouts.pack_dense(bits)), bits)


@settings(max_examples=25, deadline=None)
@given(shapes)
def test_int8_comes_back(shape):
    n, groups, seed = shape
    rng = np.random.default_rng(seed)
    codes, scales = rng.integers(-128, 128, (n, groups * 32)).astype(np.int8), halves(rng, n, groups)
    weight = layouts.pack_int8(codes, scales)
    assert weight.codes.shape == (-(-n // 16), groups, 8, 16, 4) and weight.scales.shape == (-(-n // 16), groups, 16)
    for got, want in zip(layouts.unpack_int8(weight), (codes, scales)):
        np.testing.assert_array_equal(got, want)


@settings(max_examples=25, deadline=None)
@given(shapes)
def test_int4_comes_back(shape):
    n, groups, seed = shape
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 16, (n, groups * 32)).astype(np.uint8)
    scales, minimums = halves(rng, n, groups), halves(rng, n, groups)
    weight = layouts.pack_int4(codes, scales, minimums)
    assert weight.codes.shape == (-(-n // 16), groups, 4, 16, 4)
    for got, want in zip(layouts.unpack_int4(weight), (codes, scales, minimums)):
        np.testing.assert_array_equal(got, want)


def test_dense_positions_by_hand():
    matrix = np.arange(17 * 2, dtype=np.float32).reshape(17, 2)  # row r holds 2r, 2r + 1
    data = layouts.pack_dense(matrix).data
    assert data[0, 0, 3] == 6 and data[0, 1, 15] == 31  # tile 0: column first, then row
    assert data[1, 0, 0] == 32 and data[1, 1, 0] == 33  # row 16 opens tile 1
    assert not data[1, :, 1:].any()  # rows past N


def test_int8_positions_by_hand():
    codes = np.zeros((17, 64), np.int8)
    codes[5, 37] = -128  # group 1, column 5 of it: quad 1, second byte
    codes[16, 2] = 127
    scales = np.zeros((17, 2), np.float16)
    scales[5, 1], scales[16, 0] = 0.5, 2
    weight = layouts.pack_int8(codes, scales)
    assert weight.codes[0, 1, 1, 5, 1] == 0 and weight.codes[1, 0, 0, 0, 2] == 255
    assert weight.codes[0, 1, 1, 5, 0] == 128  # a zero weight is the code 128
    assert weight.scales[0, 1, 5] == 0.5 and weight.scales[1, 0, 0] == 2


def test_int4_nibbles_by_hand():
    codes = np.zeros((17, 64), np.uint8)
    codes[2, 32 + 9] = 0xA  # group 1, column 9 = 4 * 2 + 1: byte [2, row, 1], low nibble
    codes[2, 32 + 25] = 0x7  # column 25 = 16 + 9: the same byte, high nibble
    codes[16, 15], codes[16, 16] = 0x3, 0xF  # column 15: byte [3, row, 3] low; column 16: byte [0, row, 0] high
    zeros = np.zeros((17, 2), np.float16)
    packed = layouts.pack_int4(codes, zeros, zeros).codes
    assert packed[0, 1, 2, 2, 1] == 0x7A
    assert packed[1, 0, 3, 0, 3] == 0x03 and packed[1, 0, 0, 0, 0] == 0xF0
    assert np.count_nonzero(packed) == 3


def test_nibbles_pack_like_codes():
    rng = np.random.default_rng(0)
    codes, scales = rng.integers(0, 16, (19, 64)).astype(np.uint8), halves(rng, 19, 2)
    groups = codes.reshape(19, 2, 32)
    packed = layouts.pack_nibbles(groups[..., :16] | groups[..., 16:] << 4, scales, scales)
    np.testing.assert_array_equal(packed.codes, layouts.pack_int4(codes, scales, scales).codes)
    assert (packed.rows, packed.columns) == (19, 64)


def test_dequantize_by_hand():
    bits = np.array([[0x3F80, 0xC040]], np.uint16)  # 1 and -3 in bfloat16
    np.testing.assert_array_equal(layouts.dequantize(layouts.pack_dense(bits)), np.array([[1, -3]], np.float32))
    codes = np.zeros((1, 64), np.int8)
    codes[0, 0], codes[0, 63] = -128, 3
    int8 = layouts.dequantize(layouts.pack_int8(codes, np.array([[0.5, 2]], np.float16)))
    assert int8[0, 0] == -64 and int8[0, 63] == 6 and np.count_nonzero(int8) == 2
    nibbles = np.zeros((1, 64), np.uint8)
    nibbles[0, 31], nibbles[0, 32] = 15, 4
    int4 = layouts.dequantize(layouts.pack_int4(nibbles, np.array([[2, 0.25]], np.float16), np.array([[-8, 1]], np.float16)))
    assert int4[0, 31] == 22 and int4[0, 32] == 2 and int4[0, 0] == -8 and int4[0, 63] == 1


def test_bytes_are_counted():
    half = np.ones((16, 2), np.float16)
    assert layouts.pack_int4(np.zeros((16, 64), np.uint8), half, half).nbytes == 16 * (32 + 8)  # 5 bits a weight
    assert layouts.pack_int8(np.zeros((16, 64), np.int8), half).nbytes == 16 * (64 + 4)
    assert layouts.pack_dense(np.zeros((16, 64), np.uint16)).nbytes == 16 * 64 * 2


@pytest.mark.parametrize("rows", (15, 16, 17))
def test_rows_past_the_last_are_zero(rows):
    half = np.ones((rows, 1), np.float16)
    weight = layouts.pack_int4(np.full((rows, 32), 15, np.uint8), half, half)
    flat = weight.codes.transpose(0, 3, 1, 2, 4).reshape(-1, 16)
    assert (flat[:rows] == 255).all() and not flat[rows:].any()
    assert not weight.scales.swapaxes(1, 2).reshape(-1)[rows:].any()
