"""Vectors of 16 lanes inside Numba: just enough of a vector language to write the CPU kernels in Python.

Every function here is one LLVM instruction or a short run of them, so it means the same on every processor; LLVM cuts the 512
bits into whatever registers there are. Nothing is reassociated or contracted: `fma` is fused because it says so, and
`a * b + c` never is. That is why a kernel's result has the same bits on AVX-512, AVX2, NEON and plain scalar code.
Memory is addressed by plain integers (bytes), as the instructions do it.
"""

import llvmlite.ir as ir
from numba import float32 as f32
from numba.core import types
from numba.core.extending import models, register_model
from numba.extending import intrinsic

LANES = 16
_F32, _I32, _I8, _I64, _F16 = ir.FloatType(), ir.IntType(32), ir.IntType(8), ir.IntType(64), ir.HalfType()


class Vector(types.Type):
    """A Numba type whose value is one LLVM vector."""

    def __init__(self, name: str, llvm: ir.VectorType):
        self.llvm = llvm
        super().__init__(name)


f32x16 = Vector("f32x16", ir.VectorType(_F32, 16))
i32x16 = Vector("i32x16", ir.VectorType(_I32, 16))
u8x64 = Vector("u8x64", ir.VectorType(_I8, 64))


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, kind.llvm)


def _op(result, *arguments):
    """Declare `emit(builder, *values) -> value` as a Numba function of these types."""

    def declare(emit):
        names = ", ".join(f"a{i}" for i in range(len(arguments)))

        def typing(*_):
            def codegen(context, builder, signature, values):
                return emit(builder, *values)
            return result(*arguments), codegen

        namespace = {"typing": typing}
        exec(f"def {emit.__name__}(context{', ' if names else ''}{names}): return typing()", namespace)
        function = namespace[emit.__name__]
        function.__doc__ = emit.__doc__
        return intrinsic(function)

    return declare


def pointer(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    """The integer `address` as a pointer to `kind`."""
    return builder.inttoptr(address, kind.as_pointer())


def _load(builder, address, kind, align):
    return builder.load(pointer(builder, address, kind), align=align, typ=kind)


def splat(builder: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """One scalar in every lane."""
    kind = ir.VectorType(value.type, lanes)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _I32(0))
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes))


def call(builder: ir.IRBuilder, name: str, result: ir.Type, *values: ir.Value) -> ir.Value:
    """Call an LLVM intrinsic by name."""
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(builder.module.globals.get(name) or ir.Function(builder.module, kind, name), values)


# --- scalars ---------------------------------------------------------------------------------------------------------


@_op(types.voidptr, types.int64)
def as_pointer(builder, address):
    """For `numba.carray`."""
    return builder.inttoptr(address, _I8.as_pointer())


@_op(types.int64, types.int64)
def load_i64(builder, address):
    return _load(builder, address, _I64, 8)


@_op(types.int32, types.int64)
def load_i32(builder, address):
    return _load(builder, address, _I32, 1)


@_op(types.int32, types.int64)
def load_u8(builder, address):
    return builder.zext(_load(builder, address, _I8, 1), _I32)


@_op(types.float32, types.int64)
def load_f32(builder, address):
    return _load(builder, address, _F32, 4)


@_op(types.float32, types.int64)
def load_f16(builder, address):
    return builder.fpext(_load(builder, address, _F16, 2), _F32)


@_op(types.float32, types.int64)
def load_bf16(builder, address):
    bits = builder.shl(builder.zext(_load(builder, address, ir.IntType(16), 2), _I32), _I32(16))
    return builder.bitcast(bits, _F32)


@_op(types.void, types.int64, types.float32)
def store_f32(builder, address, value):
    builder.store(value, pointer(builder, address, _F32), align=4)


@_op(types.void, types.int64, types.float32)
def store_f16(builder, address, value):
    builder.store(builder.fptrunc(value, _F16), pointer(builder, address, _F16), align=2)


@_op(types.void, types.int64, types.int32)
def store_i32(builder, address, value):
    builder.store(value, pointer(builder, address, _I32), align=4)


@_op(types.float32, types.float32, types.float32, types.float32)
def fma1(builder, a, b, c):
    return call(builder, "llvm.fma.f32", _F32, a, b, c)


@_op(types.float32, types.float32)
def sqrt1(builder, a):
    return call(builder, "llvm.sqrt.f32", _F32, a)


# --- float vectors ---------------------------------------------------------------------------------------------------


@_op(f32x16, types.int64)
def load_f32x16(builder, address):
    return _load(builder, address, f32x16.llvm, 4)


@_op(f32x16, types.int64)
def load_f16x16(builder, address):
    return builder.fpext(_load(builder, address, ir.VectorType(_F16, 16), 2), f32x16.llvm)


@_op(f32x16, types.int64)
def load_bf16x16(builder, address):
    bits = builder.zext(_load(builder, address, ir.VectorType(ir.IntType(16), 16), 2), i32x16.llvm)
    return builder.bitcast(builder.shl(bits, ir.Constant(i32x16.llvm, [16] * 16)), f32x16.llvm)


@_op(types.void, types.int64, f32x16)
def store_f32x16(builder, address, value):
    builder.store(value, pointer(builder, address, f32x16.llvm), align=4)


@_op(types.void, types.int64, f32x16)
def store_f16x16(builder, address, value):
    half = ir.VectorType(_F16, 16)
    builder.store(builder.fptrunc(value, half), pointer(builder, address, half), align=2)


def _first_lanes(builder, count):
    index = ir.Constant(ir.VectorType(_I64, 16), list(range(16)))
    return builder.icmp_signed("<", index, splat(builder, count, 16))


@_op(f32x16, types.int64, types.int64)
def load_some(builder, address, count):
    """The first `count` floats (16 or more: all lanes); the other lanes are 0 and their memory is not touched."""
    where = pointer(builder, address, f32x16.llvm)
    zero = ir.Constant(f32x16.llvm, [0.0] * 16)
    return call(builder, "llvm.masked.load.v16f32.p0", f32x16.llvm, where, _I32(4), _first_lanes(builder, count), zero)


@_op(types.void, types.int64, f32x16, types.int64)
def store_some(builder, address, value, count):
    """Store the first `count` lanes."""
    where = pointer(builder, address, f32x16.llvm)
    call(builder, "llvm.masked.store.v16f32.p0", ir.VoidType(), value, where, _I32(4), _first_lanes(builder, count))


@_op(f32x16, types.float32)
def broadcast(builder, value):
    return splat(builder, value, 16)


@_op(f32x16, f32x16, f32x16)
def add(builder, a, b):
    return builder.fadd(a, b)


@_op(f32x16, f32x16, f32x16)
def sub(builder, a, b):
    return builder.fsub(a, b)


@_op(f32x16, f32x16, f32x16)
def mul(builder, a, b):
    return builder.fmul(a, b)


@_op(f32x16, f32x16, f32x16)
def div(builder, a, b):
    return builder.fdiv(a, b)


@_op(f32x16, f32x16, f32x16, f32x16)
def fma(builder, a, b, c):
    return call(builder, "llvm.fma.v16f32", f32x16.llvm, a, b, c)


@_op(f32x16, f32x16, f32x16)
def vmax(builder, a, b):
    """The larger of two; b where a is NaN."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@_op(f32x16, f32x16, f32x16)
def vmin(builder, a, b):
    """The smaller of two; b where a is NaN."""
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


@_op(f32x16, f32x16)
def vabs(builder, a):
    return call(builder, "llvm.fabs.v16f32", f32x16.llvm, a)


@_op(f32x16, f32x16, f32x16, f32x16, f32x16)
def where_less(builder, a, b, then, otherwise):
    """Per lane: `then` where a < b, else `otherwise`."""
    return builder.select(builder.fcmp_ordered("<", a, b), then, otherwise)


@_op(f32x16, f32x16, f32x16)
def keep_nan(builder, a, b):
    """b, but NaN where a is NaN."""
    return builder.select(builder.fcmp_unordered("uno", a, a), a, b)


@_op(types.int64, f32x16, f32x16)
def first_equal(builder, a, b):
    """The lowest lane where a == b; 16 where none is."""
    bits = builder.zext(builder.bitcast(builder.fcmp_ordered("==", a, b), ir.IntType(16)), _I64)
    guarded = builder.or_(bits, _I64(1 << 16))
    return call(builder, "llvm.cttz.i64", _I64, guarded, ir.IntType(1)(0))


@_op(f32x16, f32x16, types.int32, types.int32, types.float32)
def keep_lanes(builder, a, low, high, other):
    """Lane i of a where low <= i < high, `other` elsewhere."""
    index = ir.Constant(i32x16.llvm, list(range(16)))
    inside = builder.and_(builder.icmp_signed(">=", index, splat(builder, low, 16)),
                          builder.icmp_signed("<", index, splat(builder, high, 16)))
    return builder.select(inside, a, splat(builder, other, 16))


def _tree(builder, a, combine):
    """Combine lanes i and i+8, then i+4, i+2, i+1: one fixed order on every processor."""
    for step in (8, 4, 2, 1):
        mask = ir.Constant(ir.VectorType(_I32, 16), [(lane + step) % 16 for lane in range(16)])
        a = combine(a, builder.shuffle_vector(a, ir.Constant(a.type, ir.Undefined), mask))
    return builder.extract_element(a, _I32(0))


@_op(types.float32, f32x16)
def sum_lanes(builder, a):
    return _tree(builder, a, builder.fadd)


@_op(types.float32, f32x16)
def max_lanes(builder, a):
    return _tree(builder, a, lambda x, y: builder.select(builder.fcmp_ordered(">", x, y), x, y))


# --- integer vectors -------------------------------------------------------------------------------------------------


@_op(i32x16)
def zero_i32x16(builder):
    return ir.Constant(i32x16.llvm, [0] * 16)


@_op(i32x16, types.int32)
def broadcast_i32(builder, value):
    return splat(builder, value, 16)


@_op(i32x16, i32x16, i32x16)
def add_i32(builder, a, b):
    return builder.add(a, b)


@_op(i32x16, i32x16, i32x16)
def sub_i32(builder, a, b):
    return builder.sub(a, b)


@_op(types.int32, i32x16)
def sum_lanes_i32(builder, a):
    return _tree(builder, a, builder.add)


@_op(f32x16, i32x16)
def to_f32(builder, a):
    return builder.sitofp(a, f32x16.llvm)


@_op(i32x16, f32x16)
def to_i32(builder, a):
    """Towards zero; the caller has rounded and bounded the values."""
    return builder.fptosi(a, i32x16.llvm)


@_op(i32x16, f32x16)
def bits_of(builder, a):
    """The float's bits as an integer."""
    return builder.bitcast(a, i32x16.llvm)


@_op(f32x16, f32x16, i32x16)
def times_power_of_two(builder, a, exponent):
    """a * 2^exponent by adding to the exponent bits; the caller keeps the result a normal number."""
    bits = builder.add(builder.bitcast(a, i32x16.llvm), builder.shl(exponent, ir.Constant(i32x16.llvm, [23] * 16)))
    return builder.bitcast(bits, f32x16.llvm)


@_op(types.void, types.int64, i32x16)
def store_as_i8x16(builder, address, value):
    byte = ir.VectorType(_I8, 16)
    builder.store(builder.trunc(value, byte), pointer(builder, address, byte), align=1)


@_op(i32x16, types.int64)
def load_i8x16(builder, address):
    return builder.sext(_load(builder, address, ir.VectorType(_I8, 16), 1), i32x16.llvm)


@_op(u8x64, types.int64)
def load_u8x64(builder, address):
    return _load(builder, address, u8x64.llvm, 1)


@_op(u8x64, u8x64)
def low_nibbles(builder, a):
    return builder.and_(a, ir.Constant(u8x64.llvm, [15] * 64))


@_op(u8x64, u8x64)
def high_nibbles(builder, a):
    return builder.lshr(a, ir.Constant(u8x64.llvm, [4] * 64))


# --- memory ----------------------------------------------------------------------------------------------------------


def stack(size: int):
    """A Numba function that returns the address of `size` bytes of this call's stack, aligned to a cache line."""

    @intrinsic
    def stack_bytes(context):
        def codegen(context, builder, signature, values):
            with builder.goto_entry_block():
                space = builder.alloca(ir.ArrayType(_I8, size))
                space.align = 64
            return builder.ptrtoint(space, _I64)
        return types.int64(), codegen

    return stack_bytes
