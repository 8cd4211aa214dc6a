"""Rung 3: a transpose reads rows and writes columns. Shared memory turns the tile, and one padding column frees its banks."""

from numba import cuda, float32

TILE = 32
PADDED = TILE + 1
ROWS = 8


@cuda.jit
def transpose_naive(x, out):
    """out[columns, rows] = x[rows, columns].T straight through global memory: reads coalesce, writes do not.

    Grid: (columns / 32, rows / 32). Block: (32, 8). Thread (x, y) owns rows y, y+8, y+16, y+24 of column x of the tile.
    global_read_bytes: 4 * rows * columns
    global_write_bytes: 4 * rows * columns
    read_sectors: rows * columns // 8
    write_sectors: rows * columns
    """
    column = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    for step in range(0, TILE, ROWS):
        row = cuda.blockIdx.y * TILE + cuda.threadIdx.y + step
        if row < x.shape[0] and column < x.shape[1]:
            out[column, row] = x[row, column]


@cuda.jit
def transpose_tiled(x, out):
    """The same through a tile in shared memory: both sides coalesce, but a column of the tile lies in one bank.

    Grid: (columns / 32, rows / 32). Block: (32, 8). Each thread moves 4 elements in and 4 others out. Sizes a multiple of 32.
    global_read_bytes: 4 * rows * columns
    read_sectors: rows * columns // 8
    write_sectors: rows * columns // 8
    shared_reads: rows * columns
    shared_writes: rows * columns
    bank_conflicts: 31 * rows * columns // 32
    barriers: rows * columns // 1024
    """
    tile = cuda.shared.array((TILE, TILE), float32)
    column = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    for step in range(0, TILE, ROWS):
        row = cuda.blockIdx.y * TILE + cuda.threadIdx.y + step
        if row < x.shape[0] and column < x.shape[1]:
            tile[cuda.threadIdx.y + step, cuda.threadIdx.x] = x[row, column]
    cuda.syncthreads()
    out_column = cuda.blockIdx.y * TILE + cuda.threadIdx.x
    for step in range(0, TILE, ROWS):
        out_row = cuda.blockIdx.x * TILE + cuda.threadIdx.y + step
        if out_row < x.shape[1] and out_column < x.shape[0]:
            out[out_row, out_column] = tile[cuda.threadIdx.x, cuda.threadIdx.y + step]


@cuda.jit
def transpose_padded(x, out):
    """The same with a 33rd column in the tile: the elements of a column fall into 32 different banks.

    Grid: (columns / 32, rows / 32). Block: (32, 8). Each thread moves 4 elements in and 4 others out. Sizes a multiple of 32.
    global_read_bytes: 4 * rows * columns
    read_sectors: rows * columns // 8
    write_sectors: rows * columns // 8
    shared_reads: rows * columns
    shared_writes: rows * columns
    bank_conflicts: 0
    barriers: rows * columns // 1024
    """
    tile = cuda.shared.array((TILE, PADDED), float32)
    column = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    for step in range(0, TILE, ROWS):
        row = cuda.blockIdx.y * TILE + cuda.threadIdx.y + step
        if row < x.shape[0] and column < x.shape[1]:
            tile[cuda.threadIdx.y + step, cuda.threadIdx.x] = x[row, column]
    cuda.syncthreads()
    out_column = cuda.blockIdx.y * TILE + cuda.threadIdx.x
    for step in range(0, TILE, ROWS):
        out_row = cuda.blockIdx.x * TILE + cuda.threadIdx.y + step
        if out_row < x.shape[1] and out_column < x.shape[0]:
            out[out_row, out_column] = tile[cuda.threadIdx.x, cuda.threadIdx.y + step]
