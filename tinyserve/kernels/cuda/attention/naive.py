"""Attention as the formula says it: all scores to memory, then a softmax over them, then the weighted sum."""

from numba import cuda, float32

from ..warp import exp2, reciprocal, warp_max, warp_sum

LOG2_E = 1.4426950408889634


@cuda.jit
def attention_naive(q, k, v, scale, scores, out):
    """out[T, D] = softmax(scale * q[T, D] @ k[S, D].T, causal) @ v[S, D]; row t sees keys 0..S-T+t. scores[T, S] is scratch.

    Grid: T. Block: 32. The CTA owns a row; lane i its keys i, i + 32 ... for the scores, its columns i, i + 32 ... for the sum.
    flops: 4 * D * pairs + 5 * pairs
    global_read_bytes: 16 * D * pairs + 4 * pairs
    global_write_bytes: 8 * pairs + 4 * T * D
    """
    row, lane = cuda.blockIdx.x, cuda.threadIdx.x
    seen = k.shape[0] - q.shape[0] + row + 1
    top = float32(-3.0e38)
    for key in range(lane, seen, 32):
        dot = float32(0)
        for column in range(q.shape[1]):
            dot += q[row, column] * k[key, column]
        scores[row, key] = dot * float32(scale) * float32(LOG2_E)
        top = max(top, dot * float32(scale) * float32(LOG2_E))
    top = warp_max(top)
    total = float32(0)
    for key in range(lane, seen, 32):
        weight = exp2(scores[row, key] - top)
        scores[row, key] = weight
        total += weight
    share = reciprocal(warp_sum(total))
    cuda.syncwarp()
    for column in range(lane, q.shape[1], 32):
        result = float32(0)
        for key in range(seen):
            result += scores[row, key] * v[key, column]
        out[row, column] = result * share
