"""Rung 6: matrix times vector, the work of decode. Every weight is used once, so only the way it is read matters."""

from numba import cuda, float32

from ..warp import load128, load128_once, unpack_f16, warp_sum

WARPS = 4


@cuda.jit
def matvec_thread_per_row(weight, x, out):
    """out[n] = weight[n, k] @ x[k], one thread per row: lanes read a row apart. k a multiple of 8.

    Grid: n / block. Block: a multiple of 32. Thread i owns row i.
    flops: 2 * n * k
    global_read_bytes: 8 * n * k
    read_sectors: n * k + k * ceil(n, 32)
    """
    row = cuda.grid(1)
    if row < out.shape[0]:
        total = float32(0)
        for column in range(x.shape[0]):
            total += weight[row, column] * x[column]
        out[row] = total


@cuda.jit
def matvec_warp_per_row(weight, x, out):
    """The same, one warp per row: lanes read neighbours and add up by shuffles. k a multiple of 32.

    Grid: n / 4, rounded up. Block: 128. Warp w owns row w, lane i its columns i, i + 32 ...
    flops: 2 * n * k
    global_read_bytes: 8 * n * k
    read_sectors: 2 * n * k // 8
    """
    row = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // 32
    if row < out.shape[0]:
        lane = cuda.threadIdx.x % 32
        total = float32(0)
        for column in range(lane, x.shape[0], 32):
            total += weight[row, column] * x[column]
        total = warp_sum(total)
        if lane == 0:
            out[row] = total


@cuda.jit
def matvec_float16_wide(weight, x, out):
    """The same with float16 weights, eight at a time in one 128-bit load. k a multiple of 8.

    Grid: n / 4, rounded up. Block: 128. Warp w owns row w, lane i its columns 8i..8i+7, 8i + 256 ...
    flops: 2 * n * k
    global_reads: 3 * n * k // 8
    global_read_bytes: 6 * n * k
    """
    row = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // 32
    if row < out.shape[0]:
        lane = cuda.threadIdx.x % 32
        total = float32(0)
        for column in range(8 * lane, x.shape[0], 256):
            words = load128_once(weight, (row, column))
            first, second = load128(x, column), load128(x, column + 4)
            a, b = unpack_f16(words[0])
            c, d = unpack_f16(words[1])
            total += a * first[0] + b * first[1] + c * first[2] + d * first[3]
            a, b = unpack_f16(words[2])
            c, d = unpack_f16(words[3])
            total += a * second[0] + b * second[1] + c * second[2] + d * second[3]
        total = warp_sum(total)
        if lane == 0:
            out[row] = total
