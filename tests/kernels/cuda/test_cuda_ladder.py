"""Every rung of the ladder: right at odd sizes, moving exactly what its header says, and free of races."""

import numpy as np
import pytest
from cuda_checks import assert_header, assert_no_races, counted, poisoned

from tinyserve.kernels.cuda.header import ceil, expected
from tinyserve.kernels.cuda.ladder import coalescing, matmul, matvec, practice, reduction, softmax, transpose, vector_add

RNG = np.random.default_rng(3)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("kernel, per_thread, n", [(vector_add.vector_add, 1, 70), (vector_add.vector_add_wide, 4, 132)])
def test_vector_add(kernel, per_thread, n):
    a, b, out = normal(n), normal(n), poisoned(n)
    traffic = counted(kernel, (ceil(n, 32 * per_thread), 32), a, b, out)
    np.testing.assert_array_equal(out, a + b)
    assert_header(kernel, traffic, n=n)


@pytest.mark.parametrize("kernel, rows, columns", [(coalescing.scale_thread_per_row, 32, 16), (coalescing.scale_thread_per_column, 9, 64)])
def test_coalescing(kernel, rows, columns):
    x, out = normal(rows, columns), poisoned(rows, columns)
    traffic = counted(kernel, (ceil(max(rows, columns), 32), 32), x, np.float32(3), out)
    np.testing.assert_array_equal(out, 3 * x)
    assert_header(kernel, traffic, rows=rows, columns=columns)


@pytest.mark.parametrize("kernel", [transpose.transpose_naive, transpose.transpose_tiled, transpose.transpose_padded])
def test_transpose(kernel):
    x, out = normal(64, 32), poisoned(32, 64)
    traffic = counted(kernel, ((1, 2), (32, 8)), x, out)
    np.testing.assert_array_equal(out, x.T)
    assert_header(kernel, traffic, rows=64, columns=32)
    assert_no_races(kernel, ((1, 2), (32, 8)), x, out)
    odd, out = normal(33, 45), poisoned(45, 33)
    kernel[(2, 2), (32, 8)](odd, out)
    np.testing.assert_array_equal(out, odd.T)


@pytest.mark.parametrize("kernel", [reduction.sum_tree, reduction.sum_shuffles])
@pytest.mark.parametrize("n", [1, 300])
def test_reduction(kernel, n):
    x, out = normal(n), poisoned(2)
    traffic = counted(kernel, (2, 128), x, out)
    np.testing.assert_allclose(out.sum(), x.sum(), rtol=1e-5)
    assert_header(kernel, traffic, n=n, c=2)
    assert_no_races(kernel, (2, 128), x, out)


def test_atomic_sum():
    x, out = normal(70), np.zeros(1, np.float32)
    traffic = counted(reduction.sum_atomic, (3, 32), x, out)
    np.testing.assert_allclose(out[0], x.sum(), rtol=1e-5)
    assert_header(reduction.sum_atomic, traffic, n=70)


@pytest.mark.parametrize("kernel", [softmax.softmax_three_passes, softmax.softmax_online])
@pytest.mark.parametrize("columns", [1, 32, 77])
def test_softmax(kernel, columns):
    x, out = 30 * normal(3, columns), poisoned(3, columns)
    x[0, 0] = -np.inf if columns > 1 else x[0, 0]
    traffic = counted(kernel, (3, 32), x, out)
    exact = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, exact / exact.sum(1, keepdims=True), rtol=2e-5, atol=1e-30)
    assert_header(kernel, traffic, rows=3, columns=columns)


@pytest.mark.parametrize("kernel, rows_per_cta, block, dtype", [
    (matvec.matvec_thread_per_row, 32, 32, np.float32), (matvec.matvec_warp_per_row, 4, 128, np.float32),
    (matvec.matvec_float16_wide, 4, 128, np.float16),
])
def test_matvec(kernel, rows_per_cta, block, dtype):
    weight, x, out = normal(34, 64, dtype=dtype), normal(64), poisoned(34)
    traffic = counted(kernel, (ceil(34, rows_per_cta), block), weight, x, out)
    np.testing.assert_allclose(out, weight.astype(np.float64) @ x, rtol=1e-5, atol=1e-5)
    assert_header(kernel, traffic, n=34, k=64)


def test_saxpy():
    x, y = normal(150), normal(150)
    wanted, out = np.float32(3) * x + y, y.copy()
    traffic = counted(practice.saxpy, (2, 32), np.float32(3), x, out)
    np.testing.assert_allclose(out, wanted, rtol=1e-6)
    assert_header(practice.saxpy, traffic, n=150)


@pytest.mark.parametrize("rows, columns", [(64, 32), (33, 45), (1, 1)])
def test_quarter_turn(rows, columns):
    x, out, launch = normal(rows, columns), poisoned(columns, rows), ((ceil(columns, 32), ceil(rows, 32)), (32, 8))
    traffic = counted(practice.quarter_turn, launch, x, out)
    np.testing.assert_array_equal(out, np.rot90(x, -1))
    assert_header(practice.quarter_turn, traffic, rows=rows, columns=columns)
    assert_no_races(practice.quarter_turn, launch, x, out)


@pytest.mark.parametrize("columns", [1, 300])
def test_row_max(columns):
    x, out = normal(2, columns) - 9, poisoned(2)
    traffic = counted(practice.row_max, (2, 128), x, out)
    np.testing.assert_array_equal(out, x.max(1))
    assert_header(practice.row_max, traffic, rows=2, columns=columns)
    assert_no_races(practice.row_max, (2, 128), x, out)


@pytest.mark.parametrize("kernel", [matmul.matmul_naive, matmul.matmul_tiled])
def test_matmul(kernel):
    a, b, out = normal(16, 32), normal(32, 32), poisoned(16, 32)
    traffic = counted(kernel, ((2, 1), (16, 16)), a, b, out)
    np.testing.assert_allclose(out, a @ b.T, rtol=1e-4, atol=1e-5)
    assert_header(kernel, traffic, m=16, n=32, k=32)
    odd, out = normal(5, 32), poisoned(5, 32)
    kernel[(2, 1), (16, 16)](odd, b, out)
    np.testing.assert_allclose(out, odd @ b.T, rtol=1e-4, atol=1e-5)


def test_matmul_on_tensor_cores():
    kernel, (a, b, out) = matmul.matmul_tensor_cores, (normal(64, 64, dtype=np.float16), normal(64, 64, dtype=np.float16), poisoned(64, 64))
    traffic = counted(kernel, ((1, 1), 128), a, b, out)
    np.testing.assert_allclose(out, a.astype(np.float64) @ b.astype(np.float64).T, rtol=1e-5, atol=1e-5)
    assert_header(kernel, traffic, m=64, n=64, k=64)
    assert_no_races(kernel, ((1, 1), 128), a, b, out)


def test_matmul_on_tensor_cores_at_odd_sizes():
    a, b, out = normal(3, 40, dtype=np.float16), normal(70, 40, dtype=np.float16), poisoned(3, 70)
    matmul.matmul_tensor_cores[(2, 1), 128](a, b, out)
    np.testing.assert_allclose(out, a.astype(np.float64) @ b.astype(np.float64).T, rtol=1e-5, atol=1e-5)


def test_headers_give_flops_and_refuse_unknown_sizes():
    assert expected(matmul.matmul_tensor_cores, m=64, n=64, k=32)["flops"] == 2 * 64 * 64 * 32
    with pytest.raises(NameError):
        expected(matmul.matmul_tensor_cores, m=64)
