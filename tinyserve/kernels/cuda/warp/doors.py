"""One name for each warp operation: the intrinsic where kernels are compiled, its Python twin in the simulator."""

from ..mode import simulated

if simulated():
    from .simulated import (
        all_lanes, any_lane, ballot, cp_async, cp_async_commit, cp_async_wait, ldmatrix_x2, ldmatrix_x2_trans, ldmatrix_x4,
        ldmatrix_x4_trans, load32, load64, load128, load128_once, mma_m16n8k16_bf16, mma_m16n8k16_f16, mma_m16n8k32_s8, shfl,
        shfl_down, shfl_up, shfl_xor, store32, store64, store128,
    )
    from .simulated_registers import (
        bits_float, byte_permute, dp4a_s8, dp4a_u8s8, exp2, float_bits, fma_bf16x2, fma_f16x2, i32, mul_f16x2, pack_bf16,
        pack_f16, reciprocal, round_i32, rsqrt, sub_f16x2, u32, unpack_bf16, unpack_f16,
    )
else:
    from .ptx import (
        all_lanes, any_lane, ballot, cp_async, cp_async_commit, cp_async_wait, ldmatrix_x2, ldmatrix_x2_trans, ldmatrix_x4,
        ldmatrix_x4_trans, load32, load64, load128, load128_once, mma_m16n8k16_bf16, mma_m16n8k16_f16, mma_m16n8k32_s8, shfl,
        shfl_down, shfl_up, shfl_xor, store32, store64, store128,
    )
    from .ptx_registers import (
        bits_float, byte_permute, dp4a_s8, dp4a_u8s8, exp2, float_bits, fma_bf16x2, fma_f16x2, i32, mul_f16x2, pack_bf16,
        pack_f16, reciprocal, round_i32, rsqrt, sub_f16x2, u32, unpack_bf16, unpack_f16,
    )

__all__ = [
    "all_lanes", "any_lane", "ballot", "bits_float", "byte_permute", "cp_async", "cp_async_commit", "cp_async_wait", "dp4a_s8",
    "dp4a_u8s8", "exp2", "float_bits", "fma_bf16x2", "fma_f16x2", "i32", "ldmatrix_x2", "ldmatrix_x2_trans", "ldmatrix_x4",
    "ldmatrix_x4_trans", "load32", "load64", "load128", "load128_once", "mma_m16n8k16_bf16", "mma_m16n8k16_f16",
    "mma_m16n8k32_s8", "mul_f16x2", "pack_bf16", "pack_f16", "reciprocal", "round_i32", "rsqrt", "shfl", "shfl_down", "shfl_up",
    "shfl_xor", "store32", "store64", "store128", "sub_f16x2", "u32", "unpack_bf16", "unpack_f16",
]
