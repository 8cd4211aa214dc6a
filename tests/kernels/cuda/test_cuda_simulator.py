"""The traffic counter counts what is there, and the race detector finds the races that were planted (and no others)."""

import numpy as np
import pytest
from numba import cuda, float32, uint8

from tinyserve.kernels.cuda import warp
from tinyserve.kernels.cuda.simulator import KernelFault, count_traffic, find_races, record_steps, shuffled_lanes
from tinyserve.kernels.cuda.simulator.traffic import shared_passes

X = np.arange(1024, dtype=np.float32)


@cuda.jit
def copy_strided(x, out, stride):
    i = cuda.grid(1)
    out[i] = x[i * stride]


@pytest.mark.parametrize("stride, sectors", [(1, 4), (2, 8), (8, 32), (16, 32)])
def test_sectors_show_coalescing(stride, sectors):
    with count_traffic() as counter:
        copy_strided[2, 32](X, np.zeros(64, np.float32), stride)
    counts = counter.last
    assert (counts.global_reads, counts.global_read_bytes, counts.read_sectors) == (64, 256, 2 * sectors)
    assert (counts.global_writes, counts.write_sectors) == (64, 8)
    assert counts.read_efficiency == pytest.approx(4 / sectors)


@cuda.jit
def copy_wide(x, out):
    i = 4 * cuda.grid(1)
    warp.store128(out, i, warp.load128(x, i))


def test_wide_accesses_count_once_and_move_the_same_bytes():
    with count_traffic() as counter:
        copy_wide[1, 32](X, np.zeros(128, np.float32))
    assert counter.last.counts == {
        "global_reads": 32, "global_read_bytes": 512, "global_writes": 32, "global_write_bytes": 512, "read_sectors": 16,
        "write_sectors": 16, "distinct_read_sectors": 16,
    }
    assert "global reads" in counter.last.table()


@cuda.jit
def columns(x, out, padding):
    tile = cuda.shared.array(32 * 33, float32)
    lane = cuda.threadIdx.x
    for row in range(32):
        tile[row * (32 + padding) + lane] = x[row * 32 + lane]
    cuda.syncthreads()
    for row in range(32):
        out[row * 32 + lane] = tile[lane * (32 + padding) + row]


@pytest.mark.parametrize("padding, conflicts", [(0, 32 * 31), (1, 0)])
def test_bank_conflicts_of_a_transpose(padding, conflicts):
    out = np.zeros(1024, np.float32)
    with count_traffic() as counter:
        columns[1, 32](X, out, padding)
    np.testing.assert_array_equal(out.reshape(32, 32), X.reshape(32, 32).T)
    assert counter.last.bank_conflicts == conflicts
    assert counter.last.barriers == 1 and counter.last.shared_reads == counter.last.shared_writes == 1024
    line = next(line for line, counts in counter.last.by_line.items() if counts["shared_reads"])
    assert counter.last.by_line[line]["bank_conflicts"] == conflicts


@pytest.mark.parametrize("accesses, expected", [
    ([(4 * i, 4) for i in range(32)], (1, 1)), ([(0, 4)] * 32, (1, 1)), ([(8 * i, 4) for i in range(32)], (2, 1)),
    ([(8 * i, 8) for i in range(32)], (2, 2)), ([(16 * i, 16) for i in range(32)], (4, 4)), ([(i, 1) for i in range(32)], (1, 1)),
    ([(128 * i, 16) for i in range(32)], (32, 4)),
])
def test_passes_of_shared_memory(accesses, expected):
    assert shared_passes(accesses) == expected


@cuda.jit
def reverse(x, out, with_barrier):
    buffer = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    buffer[i] = x[i]
    if with_barrier:
        cuda.syncthreads()
    out[i] = buffer[63 - i]


@cuda.jit
def reuse_too_soon(x, out):
    buffer = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    for turn in range(2):
        buffer[i] = x[i + turn]
        cuda.syncthreads()
        out[i] = buffer[63 - i]


@cuda.jit
def all_write_one(x, out):
    flag = cuda.shared.array(1, float32)
    flag[0] = x[cuda.threadIdx.x]


@cuda.jit
def overlapping_widths(x, out):
    bytes_ = cuda.shared.array(128, uint8, alignment=16)
    i = cuda.threadIdx.x
    bytes_[i] = i
    if i < 8:
        warp.load128(bytes_, 16 * i)


@cuda.jit
def within_a_warp(x, out, with_sync):
    buffer = cuda.shared.array(32, float32)
    i = cuda.threadIdx.x
    buffer[i] = x[i]
    if with_sync:
        cuda.syncwarp()
    out[i] = buffer[31 - i]


@cuda.jit
def copy_not_awaited(x, out, awaited):
    buffer = cuda.shared.array(128, float32, alignment=16)
    i = cuda.threadIdx.x
    warp.cp_async(buffer, 4 * i, x, 4 * i, True)
    warp.cp_async_commit()
    if awaited:
        warp.cp_async_wait(0)
    out[i] = buffer[4 * i]


@cuda.jit
def copy_without_barrier(x, out):
    buffer = cuda.shared.array(128, float32, alignment=16)
    i = cuda.threadIdx.x
    warp.cp_async(buffer, 4 * i, x, 4 * i, True)
    warp.cp_async_commit()
    warp.cp_async_wait(0)
    out[i] = buffer[124 - 4 * i]


@cuda.jit
def ctas_write_one_global(x, out):
    if cuda.threadIdx.x == 0:
        out[0] = x[cuda.blockIdx.x]


@cuda.jit
def atomics(x, out):
    total = cuda.shared.array(1, float32)
    if cuda.threadIdx.x == 0:
        total[0] = 0
    cuda.syncthreads()
    cuda.atomic.add(total, 0, x[cuda.threadIdx.x])
    cuda.syncthreads()
    out[cuda.threadIdx.x] = total[0]


@pytest.mark.parametrize("kernel, extra, grid, block, first, second", [
    (reverse, (False,), 1, 64, "buffer[i] = x[i]", "out[i] = buffer[63 - i]"),
    (reuse_too_soon, (), 1, 64, "out[i] = buffer[63 - i]", "buffer[i] = x[i + turn]"),
    (all_write_one, (), 1, 32, "flag[0] = x[cuda.threadIdx.x]", "flag[0] = x[cuda.threadIdx.x]"),
    (overlapping_widths, (), 1, 128, "bytes_[i] = i", "warp.load128(bytes_, 16 * i)"),
    (within_a_warp, (False,), 1, 32, "buffer[i] = x[i]", "out[i] = buffer[31 - i]"),
    (copy_not_awaited, (False,), 1, 32, "warp.cp_async(buffer, 4 * i, x, 4 * i, True)", "out[i] = buffer[4 * i]"),
    (copy_without_barrier, (), 1, 32, "warp.cp_async_wait(0)", "out[i] = buffer[124 - 4 * i]"),
    (ctas_write_one_global, (), 2, 32, "out[0] = x[cuda.blockIdx.x]", "out[0] = x[cuda.blockIdx.x]"),
])
def test_planted_races_are_found_with_both_lines(kernel, extra, grid, block, first, second):
    with find_races() as found:
        kernel[grid, block](X, np.zeros(64, np.float32), *extra)
    lines = {frozenset((race.first.source, race.second.source)) for race in found.races}
    assert frozenset((first, second)) in lines, found.report()
    assert "no barrier between" in found.report() and "test_cuda_simulator.py" in found.report()


@pytest.mark.parametrize("kernel, extra, block", [
    (reverse, (True,), 64), (within_a_warp, (True,), 32), (copy_not_awaited, (True,), 32), (atomics, (), 64), (copy_wide, (), 32),
])
def test_no_race_where_there_is_none(kernel, extra, block):
    with find_races() as found:
        kernel[1, block](X, np.zeros(128, np.float32), *extra)
    assert not found.races and found.report() == "no races found"


def test_steps_show_shared_memory_at_each_barrier():
    with record_steps() as recorder:
        reuse_too_soon[2, 64](X, np.zeros(64, np.float32))
    assert [step.name for step in recorder.steps] == ["syncthreads"] * 4
    assert [step.block for step in recorder.steps] == [(0, 0, 0)] * 2 + [(1, 0, 0)] * 2
    assert [list(step.shared.values())[0][5] for step in recorder.steps] == [5, 6, 5, 6]


@cuda.jit
def first_warp_is_late(out):
    thread = cuda.threadIdx.x
    if thread < 32:
        out[thread] = warp.shfl_xor(thread, 1)
    if thread < 64:
        cuda.syncthreads()


def test_steps_show_where_every_thread_waits():
    with record_steps() as recorder:
        first_warp_is_late[1, 64](np.zeros(64, np.int32))
    shuffle, barrier = recorder.steps
    first, line = shuffle.line.split(":")[0], int(shuffle.line.split(":")[1])
    assert shuffle.threads == tuple(range(32)) and barrier.threads == tuple(range(64))
    assert shuffle.waits == (f"shfl_xor {first}:{line}",) * 32 + (f"syncthreads {first}:{line + 2}",) * 32
    assert barrier.waits == (f"syncthreads {first}:{line + 2}",) * 64


def test_another_order_of_lanes_shows_what_depends_on_it():
    def results(kernel, *extra):
        out = [np.zeros(64, np.float32) for _ in range(3)]
        for seed, each in enumerate(out):
            with shuffled_lanes(seed):
                kernel[1, 64](X, each, *extra)
        return {each.tobytes() for each in out}
    assert len(results(reverse, True)) == 1 and len(results(reverse, False)) == 3


@cuda.jit
def reads_before_writing(out):
    buffer = cuda.shared.array(32, float32)
    out[cuda.threadIdx.x] = buffer[cuda.threadIdx.x]


def test_shared_memory_starts_as_nan_in_every_cta():
    out = np.zeros(32, np.float32)
    reads_before_writing[2, 32](out)
    assert np.isnan(out).all()


@cuda.jit
def two_buffers(out):
    a, b = cuda.shared.array(32, float32), cuda.shared.array(32, float32)
    i = cuda.threadIdx.x
    a[i], b[i] = 1, 2
    out[i] = a[i]


@cuda.jit
def too_much_shared(out):
    buffer = cuda.shared.array((128, 128), float32)
    buffer[0, cuda.threadIdx.x] = 0


def test_shared_buffers_on_one_line_are_two_and_too_large_ones_are_refused():
    out = np.zeros(32, np.float32)
    two_buffers[1, 32](out)
    assert (out == 1).all()
    with pytest.raises(KernelFault, match="65536 bytes of static shared memory"):
        too_much_shared[1, 32](out)
