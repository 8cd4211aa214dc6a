"""Rung 1: one thread per element, then four elements per thread."""

from numba import cuda

from .. import warp


@cuda.jit
def vector_add(a, b, out):
    """out[n] = a[n] + b[n].

    Grid: n / block, rounded up. Block: any size. Thread i owns element i; threads past the end do nothing.
    flops: n
    global_reads: 2 * n
    global_read_bytes: 8 * n
    global_write_bytes: 4 * n
    """
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = a[i] + b[i]


@cuda.jit
def vector_add_wide(a, b, out):
    """The same with 128-bit accesses: a quarter of the instructions for the same bytes. n must be a multiple of 4.

    Grid: n / (4 * block), rounded up. Block: any size. Thread i owns elements 4i..4i+3.
    flops: n
    global_reads: n // 2
    global_read_bytes: 8 * n
    global_write_bytes: 4 * n
    """
    i = 4 * cuda.grid(1)
    if i < out.shape[0]:
        p, q = warp.load128(a, i), warp.load128(b, i)
        warp.store128(out, i, (p[0] + q[0], p[1] + q[1], p[2] + q[2], p[3] + q[3]))
