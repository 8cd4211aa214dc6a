"""The judge passes right kernels and names what is wrong with planted wrong ones."""

import subprocess
import sys

import numpy as np
import pytest
from numba import cuda, float32, int32

from tinyserve.kernels.cuda.ladder import transpose
from tinyserve.kernels.cuda.simulator import judge

X = np.random.default_rng(1).standard_normal((32, 32)).astype(np.float32)
LAUNCH = (1, 1), (32, 8)


@cuda.jit
def no_barrier(x, out):
    tile = cuda.shared.array((32, 33), float32)
    for row in range(cuda.threadIdx.y, 32, 8):
        tile[row, cuda.threadIdx.x] = x[row, cuda.threadIdx.x]
    for row in range(cuda.threadIdx.y, 32, 8):
        out[row, cuda.threadIdx.x] = tile[cuda.threadIdx.x, row]


@cuda.jit
def one_row_short(x, out):
    for row in range(cuda.threadIdx.y, 31, 8):
        out[row, cuda.threadIdx.x] = x[cuda.threadIdx.x, row]


@cuda.jit
def one_row_too_many(x, out):
    for row in range(cuda.threadIdx.y, 33, 8):
        out[row, cuda.threadIdx.x] = x[cuda.threadIdx.x, row]


@cuda.jit
def no_transpose(x, out):
    for row in range(cuda.threadIdx.y, 32, 8):
        out[row, cuda.threadIdx.x] = x[row, cuda.threadIdx.x]


@pytest.mark.parametrize("kernel, limits, words", [
    (no_barrier, {}, "no barrier between"), (one_row_short, {}, "32 of 1024 elements are wrong; element (31, 0) was never written"),
    (one_row_too_many, {}, "used index (0, 32) of 'x'"), (no_transpose, {}, "elements are wrong; element (0, 1) is"),
    (transpose.transpose_naive, {"write_sectors": 128}, "write sectors: 1024, at most 128"),
    (transpose.transpose_tiled, {"bank_conflicts": 0}, "bank conflicts: 992, at most 0"),
])
def test_wrong_kernels_are_refused_with_the_reason(kernel, limits, words):
    findings = judge(kernel, LAUNCH, (X, np.zeros((32, 32), np.float32)), {1: X.T}, limits=limits)
    assert any(words in finding for finding in findings), findings


def test_a_right_kernel_passes():
    limits = {"bank_conflicts": 0, "write_sectors": 128}
    assert judge(transpose.transpose_padded, LAUNCH, (X, np.zeros((32, 32), np.float32)), {1: X.T}, limits=limits) == []


@cuda.jit
def in_order_of_arrival(x, out):
    count = cuda.shared.array(1, int32)
    if cuda.threadIdx.x == 0:
        count[0] = 0
    cuda.syncthreads()
    out[cuda.atomic.add(count, 0, 1)] = x[0, cuda.threadIdx.x]


def test_a_result_that_depends_on_the_order_is_refused():
    finding, = judge(in_order_of_arrival, (1, 32), (X, np.zeros(32, np.float32)), {1: X[0]})
    assert "order in which threads run" in finding


@cuda.jit
def count_and_spoil(x, counts):
    cuda.atomic.add(counts, 0, 1000001)
    x[cuda.threadIdx.x] = 0


def test_integers_are_compared_exactly_outputs_may_start_anywhere_and_inputs_stay():
    x, counts = np.ones(32, np.float32), np.zeros(1, np.int32)
    findings = judge(count_and_spoil, (1, 32), (x, counts), {1: np.array([32_000_000])}, initial={1: np.zeros(1)})
    assert "is 32000032, it should be 32000000" in findings[0] and "Argument 0 is an input, and it was changed." in findings[1]
    assert not judge(transpose.transpose_naive, LAUNCH, (X, np.zeros((32, 32), np.float32)), {1: X.T}, initial={1: X})


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_simulating_in_a_process_that_compiles_is_refused():
    pytest.importorskip("numba_cuda")
    done = run("import numba.cuda.dispatcher\nfrom tinyserve.kernels.cuda import simulate\nsimulate()")
    assert "WrongMode" in done.stderr and "start" in done.stderr.lower() or "new one" in done.stderr


def test_the_tools_need_the_simulator_and_the_package_imports_nothing():
    done = run("import tinyserve.kernels.cuda, sys\nassert 'numba' not in sys.modules\nimport tinyserve.kernels.cuda.simulator")
    assert "WrongMode" in done.stderr and "simulate()" in done.stderr
