"""Groups on their grid: by hand, the error that a group can have at most, clipping, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tinyserve.errors import CorruptCheckpoint, UnsupportedModel
from tinyserve.kernels.layouts import Int4Weight, Int8Weight, dequantize
from tinyserve.quantization.fused import to_kernel
from tinyserve.quantization.grid import Grid, Quantized, round_to_nearest

GRIDS = [Grid(bits, group, symmetric) for bits in (3, 4) for group in (32, 64, 128, -1) for symmetric in (True, False)] + [
    Grid(8, -1), Grid(8, 64)]
matrices = arrays(np.float32, (5, 128), elements=st.floats(-50, 50, width=32, allow_subnormal=False))


def test_symmetric_by_hand():
    """max 7.5 -> scale 1, zero 8: halves go to the even neighbour, 7.5 is clipped to 7."""
    found = round_to_nearest(np.array([[7.5, -7.5, 0.5, 1.5]], np.float32), Grid(4, 4))
    assert found.scales.tolist() == [[1]] and found.zeros.tolist() == [[8]]
    assert found.codes.tolist() == [[15, 0, 8, 10]] and found.dequantize().tolist() == [[7, -8, 0, 2]]


def test_asymmetric_by_hand():
    """-2..5.5 in 15 steps of 0.5, zero 4; in 3 bits 0..7 in 7 steps of 1, zero 0."""
    found = round_to_nearest(np.array([[-2, 5.5, 0, 1.2]], np.float32), Grid(4, 4, symmetric=False))
    assert found.scales.tolist() == [[0.5]] and found.zeros.tolist() == [[4]] and found.codes.tolist() == [[0, 15, 4, 6]]
    found = round_to_nearest(np.array([[3, 7, 1, 6]], np.float32), Grid(3, 2, symmetric=False))
    assert found.zeros.tolist() == [[0, 0]] and found.codes[0, 1] == 7 and found.scales[0, 0] == 1


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@given(matrices)
def test_error_and_kernel_layout(grid, matrix):
    """At most half a step beside what the scale's own rounding moves; the kernels' layout holds the very same numbers."""
    found = round_to_nearest(matrix, grid)
    groups = matrix.reshape(5, -1, found.width)
    reach = 2 * np.abs(groups).max(-1) if grid.symmetric else np.maximum(groups.max(-1), 0) - np.minimum(groups.min(-1), 0)
    step = reach / grid.top
    off = np.abs(found.dequantize() - matrix).reshape(groups.shape).max(-1)
    assert (off <= step * (0.5 if grid.symmetric else 1) + reach * 2**-7 + 2**-14).all()
    weight = to_kernel(found)
    assert isinstance(weight, Int8Weight if grid.bits == 8 else Int4Weight)
    assert (dequantize(weight) == found.dequantize()).all()


def test_foreign_zeros_whose_minimum_float16_cannot_hold_go_to_int8():
    codes = np.tile(np.arange(16, dtype=np.uint8), (2, 4))
    scales = np.array([[0.1, 0.3]] * 2, np.float16)
    tensor = Quantized(codes, scales, np.array([[7, 11]] * 2, np.uint8), 4)
    weight = to_kernel(tensor)
    assert isinstance(weight, Int8Weight) and (dequantize(weight) == tensor.dequantize()).all()


@given(matrices)
def test_clipping_is_never_worse_in_the_weighted_error(matrix):
    weights = np.linspace(0.1, 2, 128)
    for grid in (Grid(3, 64), Grid(4, 128, False)):
        plain, clipped = (round_to_nearest(matrix, grid, each).dequantize() - matrix for each in (None, weights))
        assert ((clipped**2 * weights).sum() <= (plain**2 * weights).sum() * (1 + 1e-5) + 1e-12)


@pytest.mark.parametrize(("grid", "columns", "reason"), [
    (Grid(4, 96), 128, "groups of 96 do not divide"), (Grid(5, 32), 64, "5 symmetric bits"), (Grid(8, 32, False), 64, "8 asymmetric bits"),
    (Grid(4, 0), 64, "groups of 0")])
def test_refused_by_name(grid, columns, reason):
    with pytest.raises(UnsupportedModel, match=f"'layer.q'.*{reason}"):
        round_to_nearest(np.ones((2, columns), np.float32), grid, name="layer.q")


def test_values_are_refused_by_name():
    for value, error in ((np.nan, CorruptCheckpoint), (np.inf, CorruptCheckpoint), (1e8, UnsupportedModel)):
        with pytest.raises(error, match="'layer.q'"):
            round_to_nearest(np.array([[value, 1]], np.float32), Grid(4, 2), name="layer.q")


def test_the_kernels_refuse_what_they_cannot_run():
    with pytest.raises(UnsupportedModel, match="'q'.*multiples of 32"):
        to_kernel(round_to_nearest(np.ones((2, 48), np.float32), Grid(4, 16)), "q")
    mixed = Quantized(np.ones((1, 64), np.uint8), np.ones((1, 2), np.float16), np.ones((1, 2), np.uint8), 4, np.arange(64) % 2)
    with pytest.raises(UnsupportedModel, match="'q'.*act-order"):
        to_kernel(mixed, "q")
    far = Quantized(np.full((1, 32), 255, np.uint8), np.ones((1, 1), np.float16), np.zeros((1, 1), np.uint8), 8)
    with pytest.raises(UnsupportedModel, match="'q'.*outside INT8"):
        to_kernel(far, "q")
