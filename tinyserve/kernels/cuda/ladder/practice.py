"""Three kernels to practise the ladder on: a loop over the grid, a quarter turn through a tile, a maximum with barriers."""

from numba import cuda, float32

THREADS = 128
TILE, PADDED, ROWS = 32, 33, 8
FAR_BELOW = -3.0e38


@cuda.jit
def saxpy(a, x, y):
    """y[n] = a * x[n] + y[n], for any n on any grid: each thread takes every gridsize-th element.

    Grid: any. Block: any size. Thread i owns elements i, i + gridsize, i + 2 * gridsize ...
    flops: 2 * n
    global_read_bytes: 8 * n
    global_write_bytes: 4 * n
    """
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        y[i] = a * x[i] + y[i]


@cuda.jit
def quarter_turn(x, out):
    """out[columns, rows]: x[rows, columns] turned clockwise, out[c, rows - 1 - r] = x[r, c], through a padded tile.

    Grid: (columns / 32, rows / 32), rounded up. Block: (32, 8). Each thread moves 4 elements in and 4 others out.
    global_read_bytes: 4 * rows * columns
    global_write_bytes: 4 * rows * columns
    shared_reads: rows * columns
    shared_writes: rows * columns
    bank_conflicts: 0
    barriers: ceil(rows, 32) * ceil(columns, 32)
    """
    tile = cuda.shared.array((TILE, PADDED), float32)
    thread, column = cuda.threadIdx.x, cuda.blockIdx.x * TILE + cuda.threadIdx.x
    for step in range(cuda.threadIdx.y, TILE, ROWS):
        row = cuda.blockIdx.y * TILE + step
        if row < x.shape[0] and column < x.shape[1]:
            tile[step, thread] = x[row, column]
    cuda.syncthreads()
    row = cuda.blockIdx.y * TILE + thread
    for step in range(cuda.threadIdx.y, TILE, ROWS):
        column = cuda.blockIdx.x * TILE + step
        if row < x.shape[0] and column < x.shape[1]:
            out[column, x.shape[0] - 1 - row] = tile[thread, step]


@cuda.jit
def row_max(x, out):
    """out[rows] = the largest of each row of x[rows, columns]: each thread's own largest, then a tree in shared memory.

    Grid: rows. Block: 128. The CTA owns a row, thread i its columns i, i + 128 ...
    flops: rows * (columns + 127)
    global_read_bytes: 4 * rows * columns
    global_write_bytes: 4 * rows
    shared_writes: rows * (128 + 127)
    shared_reads: rows * (2 * 127 + 1)
    barriers: 8 * rows
    """
    partial = cuda.shared.array(THREADS, float32)
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    largest = float32(FAR_BELOW)
    for column in range(thread, x.shape[1], THREADS):
        largest = max(largest, x[row, column])
    partial[thread] = largest
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if thread < half:
            partial[thread] = max(partial[thread], partial[thread + half])
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        out[row] = partial[0]
