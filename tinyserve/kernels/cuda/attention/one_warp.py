"""Decode over a paged cache in its smallest form: one warp walks one head's block table with a running softmax."""

from numba import cuda, float32

from ..warp import exp2, reciprocal, warp_sum

LOG2_E = 1.4426950408889634


@cuda.jit
def paged_one_warp(q, key_cache, value_cache, table, context, scale, out):
    """out[32] = softmax(scale * q[32] @ keys.T) @ values, where position p lies in caches[table[p // P], p % P] of [B, P, 32].

    Grid: 1. Block: 32. Lane i owns column i of the query, of every key and of every value.
    flops: 4 * 32 * context + 6 * context
    global_read_bytes: 32 * (12 * context + 4)
    global_write_bytes: 4 * 32
    """
    lane = cuda.threadIdx.x
    size = key_cache.shape[1]
    query = q[lane] * float32(scale) * float32(LOG2_E)
    top, total, result = float32(-3.0e38), float32(0), float32(0)
    for position in range(context):
        block, offset = table[position // size], position % size
        score = warp_sum(query * key_cache[block, offset, lane])
        higher = max(top, score)
        keep, weight = exp2(top - higher), exp2(score - higher)
        top, total = higher, total * keep + weight
        result = result * keep + weight * value_cache[block, offset, lane]
    out[lane] = result * reciprocal(total)
