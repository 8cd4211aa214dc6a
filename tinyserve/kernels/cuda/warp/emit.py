"""What the intrinsics of `ptx.py` are built from: inline assembly, element addresses, 32-bit pieces of wider values."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.core.errors import TypingError

I32, F32 = ir.IntType(32), ir.FloatType()
SHARED = 3
MEMORY = ",~{memory}"


def asm(builder: Any, result: Any, template: str, constraints: str, args: Sequence, moves: bool = True) -> Any:
    """One inline-assembly call. `moves`: it must keep its place (it meets other lanes or touches memory)."""
    function = ir.FunctionType(result, [arg.type for arg in args])
    call = builder.call(ir.InlineAsm(function, template, constraints, side_effect=moves), args)
    call.attributes.add("convergent")
    return call


def require(condition: bool, message: str) -> None:
    if not condition:
        raise TypingError(message)


def integer(builder: Any, value: Any, kind: Any, width: Any = I32) -> Any:
    """An integer (or boolean) value cut or stretched to `width`, by its own sign."""
    if value.type.width > width.width:
        return builder.trunc(value, width)
    if value.type.width == width.width:
        return value
    return builder.sext(value, width) if getattr(kind, "signed", False) else builder.zext(value, width)


def pieces(builder: Any, value: Any) -> list:
    """A value of at most 64 bits as 32-bit integers, low word first."""
    width = {ir.FloatType: 32, ir.DoubleType: 64, ir.HalfType: 16}.get(type(value.type)) or value.type.width
    bits = value if isinstance(value.type, ir.IntType) else builder.bitcast(value, ir.IntType(width))
    if width < 32:
        return [builder.zext(bits, I32)]
    if width == 32:
        return [bits]
    return [builder.trunc(bits, I32), builder.trunc(builder.lshr(bits, ir.Constant(bits.type, 32)), I32)]


def joined(builder: Any, words: Sequence, value_type: Any) -> Any:
    """The inverse of `pieces`."""
    if len(words) == 2:
        wide = ir.IntType(64)
        high = builder.shl(builder.zext(words[1], wide), ir.Constant(wide, 32))
        bits = builder.or_(high, builder.zext(words[0], wide))
    else:
        width = 16 if isinstance(value_type, ir.HalfType) else getattr(value_type, "width", 32)
        bits = words[0] if width == 32 else builder.trunc(words[0], ir.IntType(width))
    return bits if isinstance(value_type, ir.IntType) else builder.bitcast(bits, value_type)


def element(context: Any, builder: Any, array_type: Any, array: Any, index_type: Any, index: Any) -> Any:
    """A pointer to array[index]; `index` is an integer or a tuple of them, never negative (no wrap-around is emitted)."""
    struct = context.make_array(array_type)(context, builder, array)
    single = isinstance(index_type, types.Integer)
    kinds = [index_type] if single else list(index_type)
    values = [index] if single else cgutils.unpack_tuple(builder, index)
    wide = [integer(builder, value, kind, ir.IntType(64)) for value, kind in zip(values, kinds)]
    if array_type.layout == "C":
        return cgutils.get_item_pointer(context, builder, array_type, struct, wide)
    # Numba adds strides to the pointer as an integer, after which the compiler no longer knows that it is global memory.
    strides = cgutils.unpack_tuple(builder, struct.strides)
    offset = functools.reduce(builder.add, map(builder.mul, wide, strides))
    start = builder.bitcast(struct.data, ir.IntType(8).as_pointer())
    return builder.bitcast(builder.gep(start, [offset]), struct.data.type)


def shared_address(builder: Any, pointer: Any) -> Any:
    """The 32-bit address in shared memory that ldmatrix and cp.async take."""
    return builder.ptrtoint(builder.addrspacecast(pointer, ir.PointerType(pointer.type.pointee, SHARED)), I32)


def check_index(array: Any, index: Any) -> None:
    require(isinstance(array, types.Array), "the first argument must be an array")
    count = 1 if isinstance(index, types.Integer) else getattr(index, "count", len(getattr(index, "types", ())))
    require(count == array.ndim, f"give one index per axis: {array.ndim} of them, as a tuple")


def pack(builder: Any, values: Sequence) -> Any:
    """Values of one type as the array that a UniTuple is."""
    return cgutils.pack_array(builder, values)
