"""The timings of the ladder, at toy sizes in the simulator with a clock of our own: results are checked, rates follow from the time."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from tinyserve.kernels.cuda import simulate

simulate()
from tinyserve.bench import cuda_ladder  # noqa: E402
from tinyserve.kernels.cuda import simulator  # noqa: E402, F401  (installs the quick lanes)
from tinyserve.kernels.cuda.catalog import LADDER  # noqa: E402

TOY = {"n": 256, "side": 32, "product": 64}


def test_every_rung_is_checked_and_timed():
    rows = cuda_ladder.measure(TOY, lambda call: 1e-6)
    rungs = [build.name for build in LADDER if build.module != "ladder.practice"]
    assert [row["kernel"] for row in rows] == ["a copy", *rungs]
    add, product = rows[1], rows[-1]
    assert add["µs"] == pytest.approx(1) and add["GB/s"] == pytest.approx(12 * 256 / 1e3) and add["Gflop/s"] == ""
    assert add["of a copy"] == pytest.approx(12 * 256 / (2 * 2 * 256 * 4)) and product["Gflop/s"] == pytest.approx(2 * 64**3 / 1e3)


def test_a_wrong_result_is_not_timed(monkeypatch):
    job = next(cuda_ladder.jobs(**TOY))
    monkeypatch.setattr(cuda_ladder, "jobs", lambda **sizes: [dataclasses.replace(job, expected=job.expected + 1)])
    with pytest.raises(cuda_ladder.WrongResult, match="vector_add is wrong on this device"):
        cuda_ladder.measure(TOY, lambda call: 1e-6)


def test_the_clock_divides_by_the_launches(monkeypatch):
    from numba import cuda

    class Event:
        record = synchronize = lambda self: None

        def elapsed_time(self, other):
            return 20.0  # ms

    calls = []
    monkeypatch.setattr(cuda, "event", Event)
    assert cuda_ladder.seconds(lambda: calls.append(1)) == pytest.approx(20e-3 / cuda_ladder.LAUNCHES)
    assert len(calls) == 1 + cuda_ladder.REPEATS * cuda_ladder.LAUNCHES


def test_sums_of_each_cta_are_those_of_its_own_elements():
    tree = next(job for job in cuda_ladder.jobs(**TOY) if job.kernel.py_func.__name__ == "sum_tree")
    x = tree.arguments[0]
    np.testing.assert_allclose(tree.expected, [x[:128].sum(), x[128:].sum()], rtol=1e-6)


def test_without_a_gpu_it_says_so():
    from tinyserve.bench.machine import gpu

    if not gpu().startswith("none"):
        pytest.skip("there is a GPU here")
    done = subprocess.run([sys.executable, "-m", "tinyserve.bench.cuda_ladder"], capture_output=True, text=True)
    assert done.returncode == 2 and "no CUDA device" in done.stderr
