"""Rung 2: the same bytes, asked for in two orders. The memory moves 32-byte sectors, so neighbours should ask for neighbours."""

from numba import cuda


@cuda.jit
def scale_thread_per_row(x, factor, out):
    """out[rows, columns] = factor * x, each thread walking along a row: lanes are a whole row apart.

    Grid: rows / block. Block: a multiple of 32. Thread i owns row i. Columns a multiple of 8.
    flops: rows * columns
    global_read_bytes: 4 * rows * columns
    read_sectors: rows * columns
    write_sectors: rows * columns
    """
    row = cuda.grid(1)
    if row < x.shape[0]:
        for column in range(x.shape[1]):
            out[row, column] = factor * x[row, column]


@cuda.jit
def scale_thread_per_column(x, factor, out):
    """The same, each thread walking down a column: at every step the lanes read neighbours. Columns a multiple of 8.

    Grid: columns / block. Block: a multiple of 32. Thread i owns column i.
    flops: rows * columns
    global_read_bytes: 4 * rows * columns
    read_sectors: rows * columns // 8
    write_sectors: rows * columns // 8
    """
    column = cuda.grid(1)
    if column < x.shape[1]:
        for row in range(x.shape[0]):
            out[row, column] = factor * x[row, column]
