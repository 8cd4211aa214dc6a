"""Vectors of 16 lanes inside Numba: the types, and how an LLVM instruction becomes a Numba function.

Together with `simd` and `memory` this is just enough of a vector language to write the CPU kernels in Python. Every function is one
LLVM instruction or a short run of them, so it means the same on every processor; LLVM cuts the 512 bits into whatever registers
there are. Nothing is reassociated or contracted: `fma` is fused because it says so, and `a * b + c` never is. That is why a
kernel's result has the same bits on AVX-512, AVX2, NEON and plain scalar code.
"""

import llvmlite.ir as ir
from numba.core import types
from numba.core.extending import models, register_model
from numba.extending import intrinsic

F32, I32, I8, I64, F16 = ir.FloatType(), ir.IntType(32), ir.IntType(8), ir.IntType(64), ir.HalfType()


class Vector(types.Type):
    """A Numba type whose value is one LLVM vector."""

    def __init__(self, name: str, llvm: ir.VectorType):
        self.llvm = llvm
        super().__init__(name)


f32x16 = Vector("f32x16", ir.VectorType(F32, 16))
i32x16 = Vector("i32x16", ir.VectorType(I32, 16))
u8x64 = Vector("u8x64", ir.VectorType(I8, 64))


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, kind.llvm)


def op(result, *arguments):
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


def splat(builder: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """One scalar in every lane."""
    kind = ir.VectorType(value.type, lanes)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, I32(0))
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


def call(builder: ir.IRBuilder, name: str, result: ir.Type, *values: ir.Value) -> ir.Value:
    """Call an LLVM intrinsic by name."""
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(builder.module.globals.get(name) or ir.Function(builder.module, kind, name), values)
