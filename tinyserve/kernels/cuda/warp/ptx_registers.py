"""Arithmetic inside one lane that Python has no word for, as PTX: packed halves, byte products, bit casts, fast exponentials."""

from __future__ import annotations

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic
from numba.cuda.typing import signature

from .emit import F32, I32, asm, integer, pack

REGISTER = types.uint32


def _cast(width: int, result):
    @intrinsic
    def cast(typing, value):
        def code(context, builder, sig, args):
            return integer(builder, args[0], sig.args[0])
        return signature(result, value), code
    return cast


u32, i32 = _cast(32, types.uint32), _cast(32, types.int32)


@intrinsic
def float_bits(typing, value):
    def code(context, builder, sig, args):
        return builder.bitcast(context.cast(builder, args[0], sig.args[0], types.float32), I32)
    return signature(REGISTER, value), code


@intrinsic
def bits_float(typing, register):
    def code(context, builder, sig, args):
        return builder.bitcast(integer(builder, args[0], sig.args[0]), F32)
    return signature(types.float32, register), code


@intrinsic
def round_i32(typing, value):
    def code(context, builder, sig, args):
        number = context.cast(builder, args[0], sig.args[0], types.float32)
        return asm(builder, I32, "cvt.rni.s32.f32 $0, $1;", "=r,f", (number,), moves=False)
    return signature(types.int32, value), code


def _pack(kind: str):
    @intrinsic
    def pack_pair(typing, low, high):
        def code(context, builder, sig, args):
            low, high = (context.cast(builder, value, t, types.float32) for value, t in zip(args, sig.args))
            return asm(builder, I32, f"cvt.rn.{kind}.f32 $0, $1, $2;", "=r,f,f", (high, low), moves=False)
        return signature(REGISTER, low, high), code
    return pack_pair


pack_f16, pack_bf16 = _pack("f16x2"), _pack("bf16x2")


@intrinsic
def unpack_f16(typing, register):
    def code(context, builder, sig, args):
        halves = builder.bitcast(integer(builder, args[0], sig.args[0]), ir.VectorType(ir.HalfType(), 2))
        parts = [builder.extract_element(halves, ir.Constant(I32, i)) for i in range(2)]
        return pack(builder, [builder.fpext(part, F32) for part in parts])
    return signature(types.UniTuple(types.float32, 2), register), code


@intrinsic
def unpack_bf16(typing, register):
    def code(context, builder, sig, args):
        word = integer(builder, args[0], sig.args[0])
        low = builder.shl(word, ir.Constant(I32, 16))
        high = builder.and_(word, ir.Constant(I32, 0xFFFF0000))
        return pack(builder, [builder.bitcast(bits, F32) for bits in (low, high)])
    return signature(types.UniTuple(types.float32, 2), register), code


def _on_registers(template: str, count: int, result=REGISTER):
    """An instruction that takes `count` 32-bit integers and gives one."""
    constraints = ",".join(["=r"] + ["r"] * count)

    def code(context, builder, sig, args):
        words = [integer(builder, value, kind) for value, kind in zip(args, sig.args)]
        return asm(builder, I32, template, constraints, words, moves=False)

    @intrinsic
    def two(typing, a, b):
        return signature(result, a, b), code

    @intrinsic
    def three(typing, a, b, c):
        return signature(result, a, b, c), code
    return two if count == 2 else three


sub_f16x2 = _on_registers("sub.rn.f16x2 $0, $1, $2;", 2)
mul_f16x2 = _on_registers("mul.rn.f16x2 $0, $1, $2;", 2)
fma_f16x2 = _on_registers("fma.rn.f16x2 $0, $1, $2, $3;", 3)
fma_bf16x2 = _on_registers("fma.rn.bf16x2 $0, $1, $2, $3;", 3)
dp4a_s8 = _on_registers("dp4a.s32.s32 $0, $1, $2, $3;", 3, types.int32)
dp4a_u8s8 = _on_registers("dp4a.u32.s32 $0, $1, $2, $3;", 3, types.int32)
byte_permute = _on_registers("prmt.b32 $0, $1, $2, $3;", 3)


def _approximate(instruction: str):
    @intrinsic
    def function(typing, x):
        def code(context, builder, sig, args):
            value = context.cast(builder, args[0], sig.args[0], types.float32)
            return asm(builder, F32, f"{instruction} $0, $1;", "=f,f", (value,), moves=False)
        return signature(types.float32, x), code
    return function


exp2, rsqrt, reciprocal = _approximate("ex2.approx.ftz.f32"), _approximate("rsqrt.approx.f32"), _approximate("rcp.approx.ftz.f32")
