"""The warp layer, lane by lane: exchanges, votes, fragments, tiles, copies, and what happens when it is used wrongly."""

import time

import numpy as np
import pytest
from numba import cuda, float32, uint16, uint32

from tinyserve.kernels.cuda import warp
from tinyserve.kernels.cuda.simulator import KernelFault, LanesApart, lanes
from tinyserve.kernels.cuda.warp import fragments

LANES = np.arange(32)
RNG = np.random.default_rng(0)


def launch(kernel, *arrays, lanes=32):
    kernel[1, lanes](*arrays)
    return arrays[-1]


@cuda.jit
def exchange(values, out):
    lane = cuda.threadIdx.x
    value = values[lane]
    out[0, lane] = warp.shfl(value, 5)
    out[1, lane] = warp.shfl_xor(value, 3)
    out[2, lane] = warp.shfl_up(value, 4)
    out[3, lane] = warp.shfl_down(value, 4)
    out[4, lane] = warp.warp_sum(value)
    out[5, lane] = warp.warp_max(value)
    out[6, lane] = warp.quad_sum(value)
    out[7, lane] = warp.quad_max(value)


def test_shuffles_and_reductions():
    values = RNG.integers(-50, 50, 32).astype(np.float32)
    out = launch(exchange, values, np.full((8, 32), np.nan, np.float32))
    quads = values.reshape(8, 4)
    expected = [
        np.full(32, values[5]), values[LANES ^ 3], values[np.where(LANES >= 4, LANES - 4, LANES)],
        values[np.where(LANES < 28, LANES + 4, LANES)], np.full(32, values.sum()), np.full(32, values.max()),
        np.repeat(quads.sum(1), 4), np.repeat(quads.max(1), 4),
    ]
    np.testing.assert_array_equal(out, np.array(expected))


@cuda.jit
def vote(flags, out):
    lane = cuda.threadIdx.x
    out[0, lane] = warp.ballot(flags[lane])
    out[1, lane] = warp.any_lane(flags[lane])
    out[2, lane] = warp.all_lanes(flags[lane])


@pytest.mark.parametrize("flags", [np.zeros(32), np.ones(32), LANES % 3 == 0])
def test_votes(flags):
    flags = flags.astype(np.uint8)
    out = launch(vote, flags, np.zeros((3, 32), np.uint32))
    assert (out[0] == sum(int(flag) << i for i, flag in enumerate(flags))).all()
    assert (out[1] == flags.any()).all() and (out[2] == flags.all()).all()


@cuda.jit
def multiply_f16(a, b, c, out):
    lane = cuda.threadIdx.x
    left = a[lane, 0], a[lane, 1], a[lane, 2], a[lane, 3]
    sums = warp.mma_m16n8k16_f16(left, (b[lane, 0], b[lane, 1]), (c[lane, 0], c[lane, 1], c[lane, 2], c[lane, 3]))
    for i in range(4):
        out[lane, i] = sums[i]


@cuda.jit
def multiply_bf16(a, b, c, out):
    lane = cuda.threadIdx.x
    left = a[lane, 0], a[lane, 1], a[lane, 2], a[lane, 3]
    sums = warp.mma_m16n8k16_bf16(left, (b[lane, 0], b[lane, 1]), (c[lane, 0], c[lane, 1], c[lane, 2], c[lane, 3]))
    for i in range(4):
        out[lane, i] = sums[i]


@cuda.jit
def multiply_s8(a, b, c, out):
    lane = cuda.threadIdx.x
    left = a[lane, 0], a[lane, 1], a[lane, 2], a[lane, 3]
    sums = warp.mma_m16n8k32_s8(left, (b[lane, 0], b[lane, 1]), (c[lane, 0], c[lane, 1], c[lane, 2], c[lane, 3]))
    for i in range(4):
        out[lane, i] = sums[i]


def hand_out(matrix, layout, items):
    """A matrix dealt to 32 lanes by a fragment layout, as 32-bit registers (or as values, for 32-bit types)."""
    dealt = np.array([[matrix[layout(lane, item)] for item in range(items)] for lane in range(32)])
    return dealt if dealt.itemsize == 4 else dealt.view(np.uint32)


def to_bf16(values):
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("kernel, narrow", [(multiply_f16, lambda m: m.astype(np.float16)), (multiply_bf16, to_bf16)])
def test_mma_16bit(kernel, narrow):
    a, b, c = (RNG.integers(-8, 8, shape).astype(np.float32) for shape in ((16, 16), (16, 8), (16, 8)))
    parts = hand_out(narrow(a), fragments.a_16bit, 8), hand_out(narrow(b), fragments.b_16bit, 4), hand_out(c, fragments.c_32bit, 4)
    out = launch(kernel, *parts, np.full((32, 4), np.nan, np.float32))
    np.testing.assert_array_equal(out, hand_out(a @ b + c, fragments.c_32bit, 4))


def test_mma_8bit():
    a, b = (RNG.integers(-128, 128, shape).astype(np.int8) for shape in ((16, 32), (32, 8)))
    c = RNG.integers(-1000, 1000, (16, 8)).astype(np.int32)
    parts = hand_out(a, fragments.a_8bit, 16), hand_out(b, fragments.b_8bit, 8), hand_out(c, fragments.c_32bit, 4)
    out = launch(multiply_s8, *parts, np.zeros((32, 4), np.int32))
    np.testing.assert_array_equal(out, hand_out(a.astype(np.int32) @ b.astype(np.int32) + c, fragments.c_32bit, 4))


@pytest.mark.parametrize("layout, items, shape", [
    (fragments.a_16bit, 8, fragments.A_SHAPE_16), (fragments.b_16bit, 4, fragments.B_SHAPE_16), (fragments.c_32bit, 4, fragments.C_SHAPE),
    (fragments.a_8bit, 16, fragments.A_SHAPE_8), (fragments.b_8bit, 8, fragments.B_SHAPE_8),
])
def test_each_element_has_one_owner(layout, items, shape):
    assert sorted(fragments.owners(layout, items)) == [(row, column) for row in range(shape[0]) for column in range(shape[1])]


def test_fragments_against_the_manual():
    """Elements read off the figures of the PTX manual: (lane, item) -> (row, column)."""
    assert [fragments.a_16bit(5, item) for item in range(8)] == [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11), (9, 10), (9, 11)]
    assert [fragments.b_16bit(6, item) for item in range(4)] == [(4, 1), (5, 1), (12, 1), (13, 1)]
    assert [fragments.c_32bit(31, item) for item in range(4)] == [(7, 6), (7, 7), (15, 6), (15, 7)]
    assert [fragments.a_8bit(5, item) for item in (0, 3, 4, 8, 12)] == [(1, 4), (1, 7), (9, 4), (1, 20), (9, 20)]
    assert [fragments.b_8bit(6, item) for item in (0, 3, 4, 7)] == [(8, 1), (11, 1), (24, 1), (27, 1)]


@cuda.jit
def tiles(source, out):
    lane = cuda.threadIdx.x
    shared = cuda.shared.array((16, 16), uint16, alignment=16)
    for column in range(8):
        shared[lane % 16, 8 * (lane // 16) + column] = source[lane % 16, 8 * (lane // 16) + column]
    cuda.syncwarp()
    four = warp.ldmatrix_x4(shared, (lane % 16, 8 * (lane // 16)))
    four_t = warp.ldmatrix_x4_trans(shared, (lane % 16, 8 * (lane // 16)))
    two = warp.ldmatrix_x2(shared, (lane % 16, 0))
    two_t = warp.ldmatrix_x2_trans(shared, (lane % 16, 0))
    for i in range(4):
        out[0, lane, i] = four[i]
        out[1, lane, i] = four_t[i]
    for i in range(2):
        out[2, lane, i] = two[i]
        out[3, lane, i] = two_t[i]


def test_ldmatrix_gives_the_fragments_of_mma():
    source = RNG.integers(0, 60000, (16, 16)).astype(np.uint16)
    out = launch(tiles, source, np.zeros((4, 32, 4), np.uint32))
    np.testing.assert_array_equal(out[0], hand_out(source, fragments.a_16bit, 8))
    np.testing.assert_array_equal(out[3, :, :2], hand_out(source, fragments.b_16bit, 4))
    np.testing.assert_array_equal(out[2, :, 0], out[0, :, 0])
    eighths = [source[rows, columns].T for columns in (slice(0, 8), slice(8, 16)) for rows in (slice(0, 8), slice(8, 16))]
    for register, matrix in enumerate(eighths):
        np.testing.assert_array_equal(out[1, :, register], np.ascontiguousarray(matrix).view(np.uint32).reshape(-1))


@cuda.jit
def copy_early(source, out):
    lane = cuda.threadIdx.x
    shared = cuda.shared.array(256, float32, alignment=16)
    warp.cp_async(shared, 4 * lane, source, 4 * lane, lane != 3)
    warp.cp_async_commit()
    warp.cp_async(shared, 128 + 4 * lane, source, 128 + 4 * lane, True)
    warp.cp_async_commit()
    warp.cp_async_wait(1)
    out[0, lane] = shared[4 * lane]
    out[1, lane] = shared[128 + 4 * lane]
    warp.cp_async_wait(0)
    out[2, lane] = shared[128 + 4 * lane]


def test_cp_async_arrives_at_the_wait_and_not_before():
    source = RNG.standard_normal(256).astype(np.float32)
    out = launch(copy_early, source, np.zeros((3, 32), np.float32))
    first = source[:128:4].copy()
    first[3] = 0
    np.testing.assert_array_equal(out[0], first)
    assert np.isnan(out[1]).all()
    np.testing.assert_array_equal(out[2], source[128::4])


@cuda.jit
def wide(floats, halves, out):
    lane = cuda.threadIdx.x
    row = cuda.shared.array(128, uint32, alignment=16)
    warp.store128(out, (0, 4 * lane), warp.load128(floats, 4 * lane))
    words = warp.load128_once(halves, 8 * lane)
    warp.store128(row, 4 * lane, words)
    a, b = warp.unpack_f16(warp.load32(halves, 8 * lane))
    c, d = warp.unpack_f16(warp.load64(row, 4 * lane)[1])
    out[1, 4 * lane], out[1, 4 * lane + 1], out[1, 4 * lane + 2], out[1, 4 * lane + 3] = a, b, c, d
    warp.store32(out, (2, 4 * lane), a)
    warp.store64(out, (2, 4 * lane + 2), (c, d))


def test_wide_loads_and_stores():
    floats, halves = RNG.standard_normal(128).astype(np.float32), RNG.standard_normal(256).astype(np.float16)
    out = launch(wide, floats, halves, np.full((3, 128), np.nan, np.float32))
    np.testing.assert_array_equal(out[0], floats)
    np.testing.assert_array_equal(out[1], halves.reshape(32, 8)[:, :4].reshape(-1))
    np.testing.assert_array_equal(np.isnan(out[2]), LANES.repeat(4) * 0 + np.tile([0, 1, 0, 0], 32) == 1)
    np.testing.assert_array_equal(out[2, 2::4], out[1, 2::4])


@cuda.jit
def lane_left_out(x):
    if cuda.threadIdx.x < 31:
        warp.shfl_xor(x[cuda.threadIdx.x], 1)


@cuda.jit
def branches(x):
    if cuda.threadIdx.x % 2:
        warp.warp_sum(x[cuda.threadIdx.x])
    else:
        warp.warp_max(x[cuda.threadIdx.x])


@cuda.jit
def barrier_in_a_branch(x):
    if cuda.threadIdx.x > 40:
        cuda.syncthreads()


@cuda.jit
def lengths_differ(x):
    for _ in range(cuda.threadIdx.x + 1):
        cuda.syncthreads()


@cuda.jit
def part_of_a_warp(x):
    warp.any_lane(x[0] > 0)


@pytest.mark.parametrize("kernel, threads, words", [
    (lane_left_out, 32, ["threads 0-30 wait at shfl_xor", "threads 31 have left"]),
    (branches, 32, ["0, 2, 4", "test_cuda_warp.py"]),
    (barrier_in_a_branch, 64, ["threads 41-63 wait at syncthreads", "threads 0-40 have left"]),
    (lengths_differ, 4, ["threads 0 have left", "threads 1-3 wait"]),
    (part_of_a_warp, 48, ["threads 48-63 do not exist"]),
])
def test_lanes_that_cannot_meet_are_named_at_once(kernel, threads, words):
    started = time.perf_counter()
    with pytest.raises(LanesApart) as caught:
        kernel[1, threads](np.ones(64, np.float32))
    assert time.perf_counter() - started < 2
    assert all(word in str(caught.value) for word in words), str(caught.value)


@cuda.jit
def waits_for_a_flag(x):
    if cuda.threadIdx.x == 0:
        while x[0] == 1:
            pass
    else:
        x[0] = 0


def test_a_lane_that_waits_in_a_loop_is_noticed(monkeypatch):
    monkeypatch.setattr(lanes, "PATIENCE", 10_000)
    with pytest.raises(KernelFault, match="seems to wait in a loop"):
        waits_for_a_flag[1, 32](np.ones(64, np.float32))


@cuda.jit
def misaligned(x):
    warp.load128(x, cuda.threadIdx.x)


@cuda.jit
def not_asked_to_be_aligned(x):
    tile = cuda.shared.array((16, 16), uint16)
    warp.ldmatrix_x4(tile, (cuda.threadIdx.x % 16, 8 * (cuda.threadIdx.x // 16)))


@cuda.jit
def past_the_end(x):
    x[cuda.threadIdx.x + 1] = 0


@cuda.jit
def before_the_start(x):
    x[cuda.threadIdx.x - 1] = 0


@cuda.jit
def two_registers(x):
    warp.mma_m16n8k16_f16((0, 0), (0, 0), (x[0], x[0], x[0], x[0]))


@pytest.mark.parametrize("kernel, words", [
    (misaligned, "multiple of 16 bytes"), (not_asked_to_be_aligned, "alignment=128"),
    (past_the_end, "index 32 of 'x'"), (before_the_start, "index -1 of 'x'"),
    (two_registers, "tuple of 4 registers"),
])
def test_faults_name_the_lane_and_the_reason(kernel, words):
    with pytest.raises(KernelFault, match=words):
        kernel[1, 32](np.ones(32, np.float32))


def test_warp_functions_outside_a_kernel():
    with pytest.raises(KernelFault, match="inside a kernel"):
        warp.ballot(True)
