"""GPTQ, AWQ and SmoothQuant on one matrix: by hand, and what each may never lose."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyserve.errors import CorruptCheckpoint
from tinyserve.quantization.gptq import gptq, inverse_factor
from tinyserve.quantization.grid import Grid, round_to_nearest
from tinyserve.quantization.inputs import InputStatistics, output_error
from tinyserve.quantization.scaling import awq_scales, smooth_scales

seeds = st.integers(0, 10**6)


def case(seed, rows=12, columns=64):
    """A matrix and inputs that are correlated and differ in size by column."""
    draw = np.random.default_rng(seed)
    mix = draw.standard_normal((columns, columns)) * np.exp(draw.standard_normal(columns))
    seen = InputStatistics(columns)
    for _ in range(3):
        seen.add((draw.standard_normal((100, columns)) @ mix).astype(np.float32))
    return draw.standard_normal((rows, columns)).astype(np.float32), seen


def error(found, matrix, gram, scales=1):
    return output_error(found.dequantize() / scales - matrix, gram)


def test_a_4x4_by_hand():
    """Inputs 0 and 1 always come with x1 = x0 / 2, almost: H = [[4, 2], [2, 1 + 1/4]] twice, block by block. Rounding column 0 off by e
    (rounded - exact) then asks column 1 to change by -2/1.25 e = -1.6 e."""
    block = np.array([[4, 2], [2, 1.25]])
    gram = np.kron(np.eye(2), block)
    upper = inverse_factor(gram, damping=0)
    assert np.allclose(upper.T @ upper, np.linalg.inv(gram)) and np.allclose(upper, np.triu(upper))
    assert np.allclose(upper[0, 1] / upper[0, 0], -2 / 1.25)
    # Each row holds 7.5, so that its scale is 1 (zero 8). Row 0, columns 0 and 1: 1.25 -> 1, 2.2 becomes 2.2 + 1.6 * 0.25 = 2.6 -> 3,
    # where plain rounding says 2. Row 1: 0.75 -> 1, 2.7 becomes 2.7 - 0.4 = 2.3 -> 2, plain rounding says 3. Columns 2, 3: 7.5 -> 7 by the
    # clip, 0 becomes 1.6 * 0.5 = 0.8 -> 1.
    rows = [[1.25, 2.2, 7.5, 0], [0.75, 2.7, 7.5, 0], [0, 0, 7.5, 0], [-1.25, -2.2, 7.5, 0]]
    found = gptq(np.array(rows, np.float32), gram, Grid(4, -1), damping=0)
    assert found.dequantize().tolist() == [[1, 3, 7, 1], [1, 2, 7, 1], [0, 0, 7, 1], [-1, -3, 7, 1]]
    assert round_to_nearest(np.array(rows, np.float32), Grid(4, -1)).dequantize()[:2, :2].tolist() == [[1, 2], [1, 3]]


@pytest.mark.parametrize("act_order", [False, True])
@given(seeds)
def test_never_worse_than_rounding_row_by_row(act_order, seed):
    matrix, seen = case(seed)
    for grid in (Grid(4, 32), Grid(3, 16, False), Grid(4, -1)):
        plain = error(round_to_nearest(matrix, grid), matrix, seen.gram)
        found = error(gptq(matrix, seen.gram, grid, act_order=act_order), matrix, seen.gram)
        assert (found <= plain * (1 + 1e-5)).all() and found.sum() < plain.sum()


def test_act_order_without_static_groups_says_whose_each_column_is():
    matrix, seen = case(3)
    found = gptq(matrix, seen.gram, Grid(4, 16), act_order=True, static_groups=False, clip=True)
    assert sorted(found.groups.tolist()) == sorted(list(range(4)) * 16)
    first = np.argsort(-np.diag(seen.gram), kind="stable")[:16]
    assert (found.groups[first] == 0).all()
    assert error(found, matrix, seen.gram).sum() < error(round_to_nearest(matrix, Grid(4, 16)), matrix, seen.gram).sum()


def test_blocks_change_nothing():
    """300 columns pass through three blocks; a plain loop over all columns gives the same codes."""
    matrix, seen = case(5, rows=4, columns=300)
    plain, upper = round_to_nearest(matrix, Grid(4, -1)), inverse_factor(seen.gram)
    left, codes = matrix.astype(np.float64), np.zeros(matrix.shape, int)
    for j in range(300):
        scale = plain.scales[:, 0].astype(np.float64)
        codes[:, j] = np.clip(np.rint(left[:, j] / scale) + 8, 0, 15)
        left[:, j + 1:] -= np.outer((left[:, j] - (codes[:, j] - 8) * scale) / upper[j, j], upper[j, j + 1:])
    assert (gptq(matrix, seen.gram, Grid(4, -1)).codes == codes).mean() > 0.99


def test_independent_inputs_leave_plain_rounding():
    matrix, _ = case(1)
    assert (gptq(matrix, np.eye(64), Grid(4, 32)).codes == round_to_nearest(matrix, Grid(4, 32)).codes).all()


def test_columns_never_fed_and_bad_sums():
    matrix, seen = case(2)
    gram = seen.gram.copy()
    gram[:, 5] = gram[5] = 0
    assert np.isfinite(gptq(matrix, gram, Grid(4, 32)).dequantize()).all()
    assert np.isfinite(gptq(matrix, gram * 0, Grid(4, 32)).dequantize()).all()
    with pytest.raises(CorruptCheckpoint, match="'q'.*singular"):
        gptq(matrix, -np.eye(64), Grid(4, 32), name="q")
    with pytest.raises(CorruptCheckpoint, match="'q'.*NaN"):
        gptq(matrix * np.nan, gram, Grid(4, 32), name="q")
    with pytest.raises(CorruptCheckpoint, match="'q'.*not finite"):
        gptq(matrix, gram * np.nan, Grid(4, 32), name="q")
    with pytest.raises(CorruptCheckpoint, match="not finite"):
        seen.add(np.full((1, 64), np.inf, np.float32))


@given(seeds)
def test_awq_is_never_worse_than_rounding_with_clipping(seed):
    matrix, seen = case(seed)
    for grid in (Grid(4, 32, False), Grid(3, 32)):
        scales = awq_scales(matrix, seen.gram, seen.mean, grid)
        found = error(round_to_nearest(matrix * scales, grid, np.diag(seen.gram) / scales**2), matrix, seen.gram, scales)
        plain = error(round_to_nearest(matrix, grid, np.diag(seen.gram)), matrix, seen.gram)
        assert found.sum() <= plain.sum() * (1 + 1e-5)
        assert scales.max() * scales.min() == pytest.approx(1, rel=1e-4)


def test_awq_saves_the_column_that_counts():
    """One column with inputs a hundred times larger: it decides the outputs, so its scale must grow."""
    matrix, gram, mean = case(4)[0], np.eye(64), np.ones(64)
    gram[7, 7], mean[7] = 1e4, 100
    scales = awq_scales(matrix, gram, mean, Grid(4, 64))
    assert scales[7] > np.delete(scales, 7).max()


def test_smooth_scales_by_hand():
    """max|x| 16, max|w| 4 and strength 1/2: 4 / 2 = 2, so both have 8 afterwards; an input that is never fed keeps its column."""
    assert smooth_scales(np.array([16.0, 0]), np.array([[4, 1], [-1, 1]], np.float32)).tolist() == [2, 1]
    assert smooth_scales(np.array([16.0]), np.array([[4]], np.float32), strength=1).tolist() == [16]


def test_statistics_by_hand():
    seen = InputStatistics(2)
    seen.add(np.array([[1, -2]], np.float32))
    seen.add(np.array([[3, 0]], np.float32))
    assert seen.gram.tolist() == [[5, -1], [-1, 2]] and seen.mean.tolist() == [2, 1] and seen.largest.tolist() == [3, 2]
