"""Rung 7: matrix times matrix. Naive, through tiles in shared memory, and on the tensor cores with copies that run ahead."""

import numpy as np
from numba import cuda, float32

from .. import warp

TILE = 16
PADDED = TILE + 1
BM, BN, BK = 64, 64, 32


@cuda.jit
def matmul_naive(a, b, out):
    """out[m, n] = a[m, k] @ b[n, k].T, one thread per element: every operand comes from global memory every time.

    Grid: (n / 16, m / 16). Block: (16, 16). Thread (x, y) owns out[y, x] of its tile.
    flops: 2 * m * n * k
    global_read_bytes: 8 * m * n * k
    global_write_bytes: 4 * m * n
    """
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(a.shape[1]):
            total += a[row, i] * b[column, i]
        out[row, column] = total


@cuda.jit
def matmul_tiled(a, b, out):
    """The same through 16 x 16 tiles: each element of a and b is read once per tile and used 16 times. k a multiple of 16.
    Rows are padded to 17 so that a column lies in 16 banks; the price is that a warp's two rows meet in one bank when written.

    Grid: (n / 16, m / 16). Block: (16, 16). Thread (x, y) loads a[y, x] and b[y, x] of each tile and owns out[y, x].
    flops: 2 * m * n * k
    global_read_bytes: 8 * m * n * k // 16
    global_write_bytes: 4 * m * n
    shared_writes: 2 * m * n * k // 16
    shared_reads: 2 * m * n * k
    bank_conflicts: 2 * m * n * k // 512
    barriers: 2 * (k // 16) * (m // 16) * (n // 16)
    """
    tile_a = cuda.shared.array((TILE, PADDED), float32)
    tile_b = cuda.shared.array((TILE, PADDED), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, first = cuda.blockIdx.y * TILE + y, cuda.blockIdx.x * TILE
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        tile_a[y, x] = a[row, start + x] if row < a.shape[0] else float32(0)
        tile_b[y, x] = b[first + y, start + x] if first + y < b.shape[0] else float32(0)
        cuda.syncthreads()
        for i in range(TILE):
            total += tile_a[y, i] * tile_b[x, i]
        cuda.syncthreads()
    if row < out.shape[0] and first + x < out.shape[1]:
        out[row, first + x] = total


@cuda.jit(device=True)
def swizzled(row, column):
    """Where a tile of 32-column rows keeps a column: its 16-byte pieces change places from row to row, so that the 8 rows which
    an ldmatrix reads lie in different banks, and so do the pieces of the 2 rows that 8 lanes write."""
    return column ^ (8 * (row // 2 % 4))


@cuda.jit(device=True)
def fetch_tile(tile, stage, source, first, start, thread):
    """Begin the copy of source[first:first+64, start:start+32] to tile[stage]; each of 128 threads copies 2 pieces of 16 bytes."""
    for piece in range(2):
        row, column = (piece * 128 + thread) // 4, 8 * (thread % 4)
        valid = first + row < source.shape[0] and start + column < source.shape[1]
        warp.cp_async(tile, (stage, row, swizzled(row, column)), source, (first + row, start + column), valid)


@cuda.jit
def matmul_tensor_cores(a, b, out):
    """out[m, n] = a[m, k] @ b[n, k].T, float16 in and float32 out, on the tensor cores. k a multiple of 8.

    Grid: (n / 64, m / 64), rounded up. Block: 128. The CTA owns a 64 x 64 tile, each of its 4 warps a 32 x 32 quarter: 2 x 4 mma
    tiles of 16 x 8. While the warps multiply one 32-column slice of a and b, the next one is on its way (cp.async, two stages).
    flops: 2 * m * n * k
    global_read_bytes: 256 * ceil(k, 32) * ceil(m, 64) * ceil(n, 64) * 32
    global_write_bytes: 4 * m * n
    shared_read_bytes: 128 * 8 * 16 * ceil(k, 32) * ceil(m, 64) * ceil(n, 64)
    bank_conflicts: 0
    barriers: 2 * ceil(k, 32) * ceil(m, 64) * ceil(n, 64)
    """
    tile_a = cuda.shared.array((2, BM, BK), np.float16, alignment=128)
    tile_b = cuda.shared.array((2, BN, BK), np.float16, alignment=128)
    sums = cuda.local.array((2, 4, 4), float32)
    thread, lane = cuda.threadIdx.x, cuda.threadIdx.x % 32
    top, left = 32 * (thread // 64), 32 * (thread // 32 % 2)
    first_row, first_column = cuda.blockIdx.y * BM, cuda.blockIdx.x * BN
    for m in range(2):
        for n in range(4):
            for i in range(4):
                sums[m, n, i] = float32(0)
    fetch_tile(tile_a, 0, a, first_row, 0, thread)
    fetch_tile(tile_b, 0, b, first_column, 0, thread)
    warp.cp_async_commit()
    slices = (a.shape[1] + BK - 1) // BK
    for slice_ in range(slices):
        stage = slice_ % 2
        if slice_ + 1 < slices:
            fetch_tile(tile_a, 1 - stage, a, first_row, (slice_ + 1) * BK, thread)
            fetch_tile(tile_b, 1 - stage, b, first_column, (slice_ + 1) * BK, thread)
        warp.cp_async_commit()
        warp.cp_async_wait(1)
        cuda.syncthreads()
        for k in range(0, BK, 16):
            row, column = top + lane % 16, k + 8 * (lane // 16)
            a0 = warp.ldmatrix_x4(tile_a, (stage, row, swizzled(row, column)))
            a1 = warp.ldmatrix_x4(tile_a, (stage, row + 16, swizzled(row, column)))
            for pair in range(2):
                row = left + 16 * pair + lane % 8 + 8 * (lane // 16)
                b0 = warp.ldmatrix_x4(tile_b, (stage, row, swizzled(row, k + 8 * (lane // 8 % 2))))
                multiply_pair(sums, 0, 2 * pair, a0, b0)
                multiply_pair(sums, 1, 2 * pair, a1, b0)
        cuda.syncthreads()
    write_sums(out, sums, first_row + top, first_column + left, lane)


@cuda.jit(device=True)
def multiply_pair(sums, m, n, a, b):
    """sums[m, n] and sums[m, n + 1] += one 16 x 16 of a times two 16 x 8 of b."""
    part = warp.mma_m16n8k16_f16(a, (b[0], b[1]), (sums[m, n, 0], sums[m, n, 1], sums[m, n, 2], sums[m, n, 3]))
    sums[m, n, 0], sums[m, n, 1], sums[m, n, 2], sums[m, n, 3] = part
    n += 1
    part = warp.mma_m16n8k16_f16(a, (b[2], b[3]), (sums[m, n, 0], sums[m, n, 1], sums[m, n, 2], sums[m, n, 3]))
    sums[m, n, 0], sums[m, n, 1], sums[m, n, 2], sums[m, n, 3] = part


@cuda.jit(device=True)
def write_sums(out, sums, first_row, first_column, lane):
    """Each lane writes its 32 sums of the warp's 32 x 32 quarter, where they lie inside `out`."""
    for m in range(2):
        for n in range(4):
            for i in range(4):
                row = first_row + 16 * m + lane // 4 + 8 * (i // 2)
                column = first_column + 8 * n + 2 * (lane % 4) + i % 2
                if row < out.shape[0] and column < out.shape[1]:
                    out[row, column] = sums[m, n, i]
