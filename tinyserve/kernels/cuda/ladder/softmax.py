"""Rung 5: softmax of each row. Three passes over memory, then one: the running maximum corrects the running sum (Milakov 2018)."""

from numba import cuda, float32

from ..warp import exp2, reciprocal, warp_max, warp_sum

LOG2_E = 1.4426950408889634


@cuda.jit
def softmax_three_passes(x, out):
    """out[rows, columns] = softmax(x) along the columns: one pass for the maximum, one for the sum, one for the result.

    Grid: rows. Block: 32. Lane i owns columns i, i + 32 ...
    flops: 5 * rows * columns
    global_read_bytes: 12 * rows * columns
    global_write_bytes: 4 * rows * columns
    """
    row, lane = cuda.blockIdx.x, cuda.threadIdx.x
    top = float32(-3.0e38)
    for column in range(lane, x.shape[1], 32):
        top = max(top, x[row, column])
    top = warp_max(top)
    total = float32(0)
    for column in range(lane, x.shape[1], 32):
        total += exp2((x[row, column] - top) * float32(LOG2_E))
    scale = reciprocal(warp_sum(total))
    for column in range(lane, x.shape[1], 32):
        out[row, column] = exp2((x[row, column] - top) * float32(LOG2_E)) * scale


@cuda.jit
def softmax_online(x, out):
    """The same in two passes: a lane that meets a larger value rescales the sum it has so far.

    Grid: rows. Block: 32. Lane i owns columns i, i + 32 ...
    flops: 8 * rows * columns
    global_read_bytes: 8 * rows * columns
    global_write_bytes: 4 * rows * columns
    """
    row, lane = cuda.blockIdx.x, cuda.threadIdx.x
    top, total = float32(-3.0e38), float32(0)
    for column in range(lane, x.shape[1], 32):
        value = x[row, column] * float32(LOG2_E)
        higher = max(top, value)
        total = total * exp2(top - higher) + exp2(value - higher)
        top = higher
    highest = warp_max(top)
    scale = reciprocal(warp_sum(total * exp2(top - highest)))
    for column in range(lane, x.shape[1], 32):
        out[row, column] = exp2(x[row, column] * float32(LOG2_E) - highest) * scale
