"""What a warp can do that plain Python cannot: exchange values, vote, multiply on tensor cores, move 16 bytes at once.

Every name is one instruction where a kernel is compiled; in the simulator the 32 lanes of the warp meet in it. All 32 lanes must
reach it together: the simulator refuses divergence with an error that names the lanes and lines. A *register* is 32 bits: an
unsigned integer that holds two 16-bit or four 8-bit numbers; tuples of them are fragments, laid out as `fragments.py` draws.

Exchange: `shfl(value, lane)`, `shfl_xor(value, mask)`, `shfl_up(value, by)`, `shfl_down(value, by)` (a lane whose source is
    outside the warp keeps its own value); `warp_sum`, `warp_max`, `quad_sum`, `quad_max`. 32- and 64-bit numbers.
Vote: `ballot(flag)` -> register with bit i from lane i; `any_lane(flag)`, `all_lanes(flag)` -> bool.
Multiply: `mma_m16n8k16_f16(a, b, c)`, `mma_m16n8k16_bf16(a, b, c)`: a[16,16] as 4 registers, b[16,8] as 2, c and the result
    [16,8] as 4 float32 a lane; `mma_m16n8k32_s8(a, b, c)`: a[16,32], b[32,8] of int8, int32 sums.
Tiles: `ldmatrix_x4(shared, index)` -> 4 registers, lanes 8m..8m+7 naming the 16-byte rows of matrix m; `_x2` for two matrices,
    `_trans` for the transposes.
Copy: `cp_async(shared, index, source, index, valid)`: 16 bytes from global to shared memory (zeros if not valid), to be awaited:
    `cp_async_commit()` closes a group, `cp_async_wait(n)` waits until at most n groups are pending (n a literal).
Memory: `load128`, `load64(array, index)` -> a tuple of 4 or 2 registers (float32 from float32 arrays), `load32` -> one register;
    `load128_once`: global data that no one writes and that is read once; `store128`, `store64(array, index, words)`, `store32`.
    `index` is an integer or a tuple, aligned to the width and never negative; a shared array that is read or written 16 bytes
    at a time (by `ldmatrix` and `cp_async` too) must ask for it: `cuda.shared.array(shape, dtype, alignment=16)`.
Registers: `pack_f16(low, high)`, `unpack_f16`, `pack_bf16`, `unpack_bf16`, `float_bits`, `bits_float`, `u32`, `i32` (wrapping
    casts), `round_i32` (to nearest even), `sub_f16x2`, `mul_f16x2`, `fma_f16x2`, `fma_bf16x2`, `dp4a_s8(a, b, c)`, `dp4a_u8s8`
    (c + four byte products), `byte_permute`, and `exp2`, `rsqrt`, `reciprocal` at the processor's own precision (relative error
    below 2^-22).
"""

from .doors import *  # noqa: F401,F403
from .doors import __all__ as _doors
from .reductions import quad_max, quad_sum, warp_max, warp_sum

__all__ = [*_doors, "quad_max", "quad_sum", "warp_max", "warp_sum"]
