"""Loads and stores: memory is addressed by plain integers (bytes), as the instructions do it."""

import llvmlite.ir as ir
from numba.core import types
from numba.extending import intrinsic

from .half import narrow, widen
from .vectors import F16, F32, I8, I32, I64, call, f32x16, i32x16, op, pointer, splat, u8x64


def _load(builder, address, kind, align):
    return builder.load(pointer(builder, address, kind), align=align, typ=kind)


@op(types.voidptr, types.int64)
def as_pointer(builder, address):
    """For `numba.carray`."""
    return builder.inttoptr(address, I8.as_pointer())


@op(types.int64, types.int64)
def load_i64(builder, address):
    return _load(builder, address, I64, 8)


@op(types.int32, types.int64)
def load_i32(builder, address):
    return _load(builder, address, I32, 1)


@op(types.int32, types.int64)
def load_u8(builder, address):
    return builder.zext(_load(builder, address, I8, 1), I32)


@op(types.float32, types.int64)
def load_f32(builder, address):
    return _load(builder, address, F32, 4)


@op(types.float32, types.int64)
def load_f16(builder, address):
    return widen(builder, _load(builder, address, F16, 2))


@op(types.float32, types.int64)
def load_bf16(builder, address):
    bits = builder.shl(builder.zext(_load(builder, address, ir.IntType(16), 2), I32), I32(16))
    return builder.bitcast(bits, F32)


@op(types.void, types.int64, types.float32)
def store_f32(builder, address, value):
    builder.store(value, pointer(builder, address, F32), align=4)


@op(types.void, types.int64, types.float32)
def store_f16(builder, address, value):
    builder.store(narrow(builder, value), pointer(builder, address, F16), align=2)


@op(types.void, types.int64, types.int32)
def store_i32(builder, address, value):
    builder.store(value, pointer(builder, address, I32), align=4)


@op(f32x16, types.int64)
def load_f32x16(builder, address):
    return _load(builder, address, f32x16.llvm, 4)


@op(f32x16, types.int64)
def load_f16x16(builder, address):
    return widen(builder, _load(builder, address, ir.VectorType(F16, 16), 2))


@op(f32x16, types.int64)
def load_bf16x16(builder, address):
    bits = builder.zext(_load(builder, address, ir.VectorType(ir.IntType(16), 16), 2), i32x16.llvm)
    return builder.bitcast(builder.shl(bits, ir.Constant(i32x16.llvm, [16] * 16)), f32x16.llvm)


@op(types.void, types.int64, f32x16)
def store_f32x16(builder, address, value):
    builder.store(value, pointer(builder, address, f32x16.llvm), align=4)


@op(types.void, types.int64, f32x16)
def store_f16x16(builder, address, value):
    half = ir.VectorType(F16, 16)
    builder.store(narrow(builder, value), pointer(builder, address, half), align=2)


def _first_lanes(builder, count):
    index = ir.Constant(ir.VectorType(I64, 16), list(range(16)))
    return builder.icmp_signed("<", index, splat(builder, count, 16))


@op(f32x16, types.int64, types.int64)
def load_some(builder, address, count):
    """The first `count` floats (16 or more: all lanes); the other lanes are 0 and their memory is not touched."""
    where = pointer(builder, address, f32x16.llvm)
    zero = ir.Constant(f32x16.llvm, [0.0] * 16)
    return call(builder, "llvm.masked.load.v16f32.p0", f32x16.llvm, where, I32(4), _first_lanes(builder, count), zero)


@op(types.void, types.int64, f32x16, types.int64)
def store_some(builder, address, value, count):
    """Store the first `count` lanes."""
    where = pointer(builder, address, f32x16.llvm)
    call(builder, "llvm.masked.store.v16f32.p0", ir.VoidType(), value, where, I32(4), _first_lanes(builder, count))


@op(types.void, types.int64, i32x16)
def store_as_i8x16(builder, address, value):
    byte = ir.VectorType(I8, 16)
    builder.store(builder.trunc(value, byte), pointer(builder, address, byte), align=1)


@op(i32x16, types.int64)
def load_i8x16(builder, address):
    return builder.sext(_load(builder, address, ir.VectorType(I8, 16), 1), i32x16.llvm)


@op(f32x16, types.int64)
def load_i8_f32x16(builder, address):
    return builder.sitofp(_load(builder, address, ir.VectorType(I8, 16), 1), f32x16.llvm)


@op(types.void, types.int64)
def prefetch(builder, address):
    """Ask for a cache line that will be read soon, into the second level."""
    call(builder, "llvm.prefetch.p0", ir.VoidType(), pointer(builder, address, I8), I32(0), I32(2), I32(1))


@op(u8x64, types.int64)
def load_u8x64(builder, address):
    return _load(builder, address, u8x64.llvm, 1)


def stack(size: int):
    """A Numba function that returns the address of `size` bytes of this call's stack, aligned to a cache line."""

    @intrinsic
    def stack_bytes(context):
        def codegen(context, builder, signature, values):
            with builder.goto_entry_block():
                space = builder.alloca(ir.ArrayType(I8, size))
                space.align = 64
            return builder.ptrtoint(space, I64)
        return types.int64(), codegen

    return stack_bytes
