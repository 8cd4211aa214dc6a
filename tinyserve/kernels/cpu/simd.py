"""Arithmetic on vectors of 16 lanes, each function one instruction or a short, fixed run of them. See `vectors`."""

import llvmlite.ir as ir
from numba import float32 as f32  # noqa: F401  (kernels write simd.f32(0) for a literal of the right width)
from numba.core import types

from .vectors import F32, I32, I64, call, f32x16, i32x16, op, splat, u8x64


@op(types.float32, types.float32, types.float32, types.float32)
def fma1(builder, a, b, c):
    return call(builder, "llvm.fma.f32", F32, a, b, c)


@op(types.float32, types.float32)
def sqrt1(builder, a):
    return call(builder, "llvm.sqrt.f32", F32, a)


@op(f32x16, types.float32)
def broadcast(builder, value):
    return splat(builder, value, 16)


@op(f32x16, f32x16, f32x16)
def add(builder, a, b):
    return builder.fadd(a, b)


@op(f32x16, f32x16, f32x16)
def sub(builder, a, b):
    return builder.fsub(a, b)


@op(f32x16, f32x16, f32x16)
def mul(builder, a, b):
    return builder.fmul(a, b)


@op(f32x16, f32x16, f32x16)
def div(builder, a, b):
    return builder.fdiv(a, b)


@op(f32x16, f32x16, f32x16, f32x16)
def fma(builder, a, b, c):
    return call(builder, "llvm.fma.v16f32", f32x16.llvm, a, b, c)


@op(f32x16, f32x16, f32x16)
def vmax(builder, a, b):
    """The larger of two; b where a is NaN."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@op(f32x16, f32x16, f32x16)
def vmin(builder, a, b):
    """The smaller of two; b where a is NaN."""
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


@op(f32x16, f32x16)
def vabs(builder, a):
    return call(builder, "llvm.fabs.v16f32", f32x16.llvm, a)


@op(f32x16, f32x16, f32x16, f32x16, f32x16)
def where_less(builder, a, b, then, otherwise):
    """Per lane: `then` where a < b, else `otherwise`."""
    return builder.select(builder.fcmp_ordered("<", a, b), then, otherwise)


@op(f32x16, f32x16, f32x16)
def keep_nan(builder, a, b):
    """b, but NaN where a is NaN."""
    return builder.select(builder.fcmp_unordered("uno", a, a), a, b)


@op(types.int64, f32x16, f32x16)
def first_equal(builder, a, b):
    """The lowest lane where a == b; 16 where none is."""
    bits = builder.zext(builder.bitcast(builder.fcmp_ordered("==", a, b), ir.IntType(16)), I64)
    guarded = builder.or_(bits, I64(1 << 16))
    return call(builder, "llvm.cttz.i64", I64, guarded, ir.IntType(1)(0))


@op(f32x16, f32x16, types.int32, types.int32, types.float32)
def keep_lanes(builder, a, low, high, other):
    """Lane i of a where low <= i < high, `other` elsewhere."""
    index = ir.Constant(i32x16.llvm, list(range(16)))
    inside = builder.and_(builder.icmp_signed(">=", index, splat(builder, low, 16)),
                          builder.icmp_signed("<", index, splat(builder, high, 16)))
    return builder.select(inside, a, splat(builder, other, 16))


def _tree(builder, a, combine):
    """Combine lanes i and i+8, then i+4, i+2, i+1: one fixed order on every processor."""
    for step in (8, 4, 2, 1):
        mask = ir.Constant(ir.VectorType(I32, 16), [(lane + step) % 16 for lane in range(16)])
        a = combine(a, builder.shuffle_vector(a, ir.Constant(a.type, ir.Undefined), mask))
    return builder.extract_element(a, I32(0))


@op(types.float32, f32x16)
def sum_lanes(builder, a):
    return _tree(builder, a, builder.fadd)


@op(types.float32, f32x16)
def max_lanes(builder, a):
    return _tree(builder, a, lambda x, y: builder.select(builder.fcmp_ordered(">", x, y), x, y))


@op(i32x16)
def zero_i32x16(builder):
    return ir.Constant(i32x16.llvm, [0] * 16)


@op(i32x16, types.int32)
def broadcast_i32(builder, value):
    return splat(builder, value, 16)


@op(i32x16, i32x16, i32x16)
def add_i32(builder, a, b):
    return builder.add(a, b)


@op(i32x16, i32x16, i32x16)
def sub_i32(builder, a, b):
    return builder.sub(a, b)


@op(types.int32, i32x16)
def sum_lanes_i32(builder, a):
    return _tree(builder, a, builder.add)


@op(f32x16, i32x16)
def to_f32(builder, a):
    return builder.sitofp(a, f32x16.llvm)


@op(i32x16, f32x16)
def to_i32(builder, a):
    """Towards zero; the caller has rounded and bounded the values."""
    return builder.fptosi(a, i32x16.llvm)


@op(i32x16, f32x16)
def bits_of(builder, a):
    """The float's bits as an integer."""
    return builder.bitcast(a, i32x16.llvm)


@op(f32x16, f32x16, i32x16)
def times_power_of_two(builder, a, exponent):
    """a * 2^exponent by adding to the exponent bits; the caller keeps the result a normal number."""
    bits = builder.add(builder.bitcast(a, i32x16.llvm), builder.shl(exponent, ir.Constant(i32x16.llvm, [23] * 16)))
    return builder.bitcast(bits, f32x16.llvm)


@op(u8x64, u8x64)
def low_nibbles(builder, a):
    return builder.and_(a, ir.Constant(u8x64.llvm, [15] * 64))


@op(u8x64, u8x64)
def high_nibbles(builder, a):
    return builder.lshr(a, ir.Constant(u8x64.llvm, [4] * 64))


@op(i32x16, u8x64)
def as_words(builder, a):
    """The same 512 bits as 16 integers."""
    return builder.bitcast(a, i32x16.llvm)
