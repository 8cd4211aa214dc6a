"""Rung 4: the sum of a vector. Atomics queue up; a tree in shared memory needs barriers; shuffles need neither."""

from numba import cuda, float32

from ..warp import warp_sum

THREADS = 128
WARPS = THREADS // 32


@cuda.jit
def sum_atomic(x, out):
    """out[0] += sum(x), one atomic per element: right, slow, and in no fixed order.

    Grid: n / block. Block: any size. Thread i owns element i.
    flops: n
    global_read_bytes: 4 * n
    atomics: n
    """
    i = cuda.grid(1)
    if i < x.shape[0]:
        cuda.atomic.add(out, 0, x[i])


@cuda.jit
def sum_tree(x, out):
    """out[c] = the sum of CTA c's elements: each thread adds up its own, then half of the threads add the other half's, seven times.

    Grid: c CTAs, any number. Block: 128. Thread i owns elements i, i + 128c, i + 256c ...
    flops: n + 127 * c
    global_read_bytes: 4 * n
    global_writes: c
    shared_writes: c * (128 + 127)
    shared_reads: c * (2 * 127 + 1)
    barriers: c * 8
    """
    partial = cuda.shared.array(THREADS, float32)
    thread = cuda.threadIdx.x
    total = float32(0)
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        total += x[i]
    partial[thread] = total
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if thread < half:
            partial[thread] = partial[thread] + partial[thread + half]
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = partial[0]


@cuda.jit
def sum_shuffles(x, out):
    """The same with shuffles inside each warp: shared memory holds one number per warp, and one barrier is left.

    Grid: c CTAs, any number. Block: 128. Thread i owns elements i, i + 128c, i + 256c ...
    flops: n + c * (4 * 5 * 32 + 3)
    global_read_bytes: 4 * n
    global_writes: c
    shared_writes: c * 4
    shared_reads: c * 4
    barriers: c
    """
    partial = cuda.shared.array(WARPS, float32)
    thread = cuda.threadIdx.x
    total = float32(0)
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        total += x[i]
    total = warp_sum(total)
    if thread % 32 == 0:
        partial[thread // 32] = total
    cuda.syncthreads()
    if thread == 0:
        out[cuda.blockIdx.x] = (partial[0] + partial[1]) + (partial[2] + partial[3])
