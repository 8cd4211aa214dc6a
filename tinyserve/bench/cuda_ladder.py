"""Times chapter 03's kernels on a GPU: `python -m tinyserve.bench.cuda_ladder` prints a table and writes a record.

It needs a process of its own, where `numba.cuda` is the real compiler. Each result is checked before it is timed.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import TinyserveError
from ..kernels.cuda.header import ceil
from . import machine
from .records import Record

SIZES = {"n": 2**24, "side": 4096, "product": 1024}
REPEATS, LAUNCHES = 15, 10


class WrongResult(TinyserveError, RuntimeError):
    """A kernel's result on this device is not what NumPy says."""


@dataclass(frozen=True)
class Job:
    """One kernel with its launch, the host arrays (the output last), what the output must hold, and the least bytes to move."""

    kernel: Any
    launch: tuple
    arguments: tuple
    expected: np.ndarray
    nbytes: int
    flops: int = 0


def jobs(n: int, side: int, product: int) -> Iterator[Job]:
    """The ladder from its first rung: vectors of n, matrices of side x side, products of `product` cubed (multiples of 64)."""
    from ..kernels.cuda.ladder import coalescing, matmul, matvec, reduction, softmax, transpose, vector_add

    random = np.random.default_rng(0)
    a, b = random.random((2, n), np.float32)
    for kernel, each in ((vector_add.vector_add, 1), (vector_add.vector_add_wide, 4)):
        yield Job(kernel, (ceil(n, 256 * each), 256), (a, b, np.zeros_like(a)), a + b, 12 * n)
    x = random.standard_normal((side, side), np.float32)
    for kernel in (coalescing.scale_thread_per_row, coalescing.scale_thread_per_column):
        yield Job(kernel, (ceil(side, 32), 32), (x, np.float32(3), np.zeros_like(x)), np.float32(3) * x, 2 * x.nbytes)
    for kernel in (transpose.transpose_naive, transpose.transpose_tiled, transpose.transpose_padded):
        yield Job(kernel, ((ceil(side, 32),) * 2, (32, 8)), (x, np.zeros_like(x)), x.T, 2 * x.nbytes)
    total = a.sum(dtype=np.float64)
    yield Job(reduction.sum_atomic, (ceil(n, 256), 256), (a, np.zeros(1, np.float32)), total[None], a.nbytes)
    ctas = min(1024, ceil(n, 128))
    sums = [a[np.arange(n) // 128 % ctas == cta].sum(dtype=np.float64) for cta in range(ctas)]
    for kernel in (reduction.sum_tree, reduction.sum_shuffles):
        yield Job(kernel, (ctas, 128), (a, np.zeros(ctas, np.float32)), np.array(sums), a.nbytes)
    weights = np.exp(x - x.max(1, keepdims=True))
    for kernel in (softmax.softmax_three_passes, softmax.softmax_online):
        yield Job(kernel, (side, 32), (x, np.zeros_like(x)), weights / weights.sum(1, keepdims=True), 2 * x.nbytes)
    dense, vector = np.abs(x), np.abs(x[0])
    for kernel, weight, rows in ((matvec.matvec_thread_per_row, dense, 128), (matvec.matvec_warp_per_row, dense, 4),
                                 (matvec.matvec_float16_wide, dense.astype(np.float16), 4)):
        yield Job(kernel, (ceil(side, rows), 128), (weight, vector, np.zeros(side, np.float32)), weight.astype(np.float32) @ vector,
                  weight.nbytes, 2 * side * side)
    p, q = random.random((2, product, product), np.float32)
    for kernel, grid, block, dtype in ((matmul.matmul_naive, 16, (16, 16), np.float32), (matmul.matmul_tiled, 16, (16, 16), np.float32),
                                       (matmul.matmul_tensor_cores, 64, 128, np.float16)):
        left, right = p.astype(dtype), q.astype(dtype)
        yield Job(kernel, ((product // grid,) * 2, block), (left, right, np.zeros_like(p)),
                  left.astype(np.float32) @ right.T.astype(np.float32), 2 * left.nbytes + p.nbytes, 2 * product**3)


def seconds(call: Callable[[], None]) -> float:
    """The median time of one call by CUDA events, LAUNCHES of them at once; warmed up (and compiled) before."""
    from numba import cuda

    call()
    times = []
    for _ in range(REPEATS):
        start, stop = cuda.event(), cuda.event()
        start.record()
        for _ in range(LAUNCHES):
            call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / LAUNCHES / 1e3)
    return statistics.median(times)


def measure(sizes: dict[str, int] = SIZES, clock: Callable[[Callable[[], None]], float] = seconds) -> list[dict[str, Any]]:
    """A row a kernel: µs, GB/s of the least bytes, their share of a plain copy's, and Gflop/s of products. Raises `WrongResult`."""
    from numba import cuda

    source = cuda.to_device(np.zeros(2 * sizes["n"], np.float32))
    target = cuda.device_array_like(source)
    copy = 2 * source.nbytes / clock(lambda: target.copy_to_device(source))
    rows = [{"kernel": "a copy", "µs": 2 * source.nbytes / copy * 1e6, "GB/s": copy / 1e9, "of a copy": 1.0, "Gflop/s": ""}]
    for job in jobs(**sizes):
        *inputs, out = (cuda.to_device(x) if isinstance(x, np.ndarray) else x for x in job.arguments)
        job.kernel[job.launch](*inputs, out)
        if not np.allclose(out.copy_to_host(), job.expected, rtol=2e-3, atol=1e-4):
            raise WrongResult(f"{job.kernel.py_func.__name__} is wrong on this device, so nothing was timed.")
        took = clock(lambda: job.kernel[job.launch](*inputs, out))
        rows.append({"kernel": job.kernel.py_func.__name__, "µs": took * 1e6, "GB/s": job.nbytes / took / 1e9,
                     "of a copy": job.nbytes / took / copy, "Gflop/s": job.flops / took / 1e9 if job.flops else ""})
    return rows


def main() -> int:
    """0 when a record was written, 2 where there is no GPU."""
    from numba import cuda

    if not cuda.is_available():
        print("There is no CUDA device here, so nothing was timed.", file=sys.stderr)
        return 2
    rows = measure()
    name = cuda.get_current_device().name
    protocol = {**SIZES, "clock": "CUDA events", "repeats": REPEATS, "launches a repeat": LAUNCHES, "cache": "warm"}
    record = Record("cuda-ladder", rows, protocol, machine={"gpu": name.decode() if isinstance(name, bytes) else name}, **machine.commit())
    print(record.save().name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
