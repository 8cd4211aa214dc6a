"""The processor's integer dot instruction: four byte products added into each of 16 lanes.

`dot_small` takes codes up to 15 and `dot_wide` up to 255, both times INT8 activations in -127..127. The sums are integers, so
every variant gives the same bits; which one is compiled is decided once, from the processor's features
(`TINYSERVE_DOT` overrides it, for tests and lessons).
"""

import os

import llvmlite.binding as llvm
import llvmlite.ir as ir
from numba.core import types

from .vectors import call, i32x16, op, splat, u8x64

VARIANTS = ("avx512vnni", "avx2", "neon", "plain")
I8, _I16, I32 = ir.IntType(8), ir.IntType(16), ir.IntType(32)


def _bytes(builder, quad, count):
    """The four activation bytes in an int32, repeated over `count` bytes."""
    return builder.bitcast(splat(builder, quad, count // 4), ir.VectorType(I8, count))


def _parts(builder, value, pieces):
    """A vector cut into `pieces` equal vectors."""
    size = value.type.count // pieces
    for piece in range(pieces):
        mask = ir.Constant(ir.VectorType(I32, size), list(range(piece * size, (piece + 1) * size)))
        yield builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), mask)


def _joined(builder, parts):
    while len(parts) > 1:
        size = parts[0].type.count * 2
        mask = ir.Constant(ir.VectorType(I32, size), list(range(size)))
        parts = [builder.shuffle_vector(a, b, mask) for a, b in zip(parts[::2], parts[1::2])]
    return parts[0]


def _avx512vnni(builder, total, codes, quad):
    return call(builder, "llvm.x86.avx512.vpdpbusd.512", i32x16.llvm, total, codes, _bytes(builder, quad, 64))


def _pairs_avx2(builder, total, unsigned, signed):
    """pmaddubsw adds two products into int16 (no saturation within the bounds above), pmaddwd by ones adds two of those."""
    sums = []
    for codes, x in zip(_parts(builder, unsigned, 2), _parts(builder, signed, 2)):
        pairs = call(builder, "llvm.x86.avx2.pmadd.ub.sw", ir.VectorType(_I16, 16), codes, x)
        ones = ir.Constant(ir.VectorType(_I16, 16), [1] * 16)
        sums.append(call(builder, "llvm.x86.avx2.pmadd.wd", ir.VectorType(I32, 8), pairs, ones))
    return builder.add(total, _joined(builder, sums))


def _avx2_small(builder, total, codes, quad):
    return _pairs_avx2(builder, total, codes, _bytes(builder, quad, 64))


def _avx2_wide(builder, total, codes, quad):
    """code * x = (code - 128) * x + 128 * x: the first as |w| * (x with w's sign), the second a plain sum of the quad."""
    centred = builder.xor(codes, ir.Constant(u8x64.llvm, [128] * 64))
    zero = ir.Constant(u8x64.llvm, [0] * 64)
    negative = builder.icmp_signed("<", centred, zero)
    x = _bytes(builder, quad, 64)
    magnitude = builder.select(negative, builder.sub(zero, centred), centred)
    signed = builder.select(negative, builder.sub(zero, x), x)
    total = _pairs_avx2(builder, total, magnitude, signed)
    return builder.add(total, splat(builder, _sum_of_quad(builder, quad, 128), 16))


def _quad_byte(builder, quad, index):
    """Byte `index` of the quad, sign-extended."""
    return builder.ashr(builder.shl(quad, I32(24 - 8 * index)), I32(24))


def _sum_of_quad(builder, quad, factor):
    total = _quad_byte(builder, quad, 0)
    for index in (1, 2, 3):
        total = builder.add(total, _quad_byte(builder, quad, index))
    return builder.mul(total, I32(factor))


def _neon_dot(builder, total, codes, quad):
    four = ir.VectorType(I32, 4)
    x = _bytes(builder, quad, 16)
    return _joined(builder, [call(builder, "llvm.aarch64.neon.sdot.v4i32.v16i8", four, t, c, x)
                             for t, c in zip(_parts(builder, total, 4), _parts(builder, codes, 4))])


def _neon_wide(builder, total, codes, quad):
    centred = builder.xor(codes, ir.Constant(u8x64.llvm, [128] * 64))
    return builder.add(_neon_dot(builder, total, centred, quad), splat(builder, _sum_of_quad(builder, quad, 128), 16))


def _plain(builder, total, codes, quad):
    for index in range(4):
        mask = ir.Constant(ir.VectorType(I32, 16), [4 * lane + index for lane in range(16)])
        column = builder.shuffle_vector(codes, ir.Constant(codes.type, ir.Undefined), mask)
        product = builder.mul(builder.zext(column, i32x16.llvm), splat(builder, _quad_byte(builder, quad, index), 16))
        total = builder.add(total, product)
    return total


def supported_variants() -> list[str]:
    """The variants that this processor can run, best first."""
    features = llvm.get_host_cpu_features()
    needs = {"avx512vnni": "avx512vnni", "avx2": "avx2", "neon": "dotprod"}
    return [name for name in VARIANTS if name == "plain" or features.get(needs[name])]


def _choose() -> str:
    wanted = os.environ.get("TINYSERVE_DOT") or supported_variants()[0]
    if wanted not in VARIANTS:
        raise ValueError(f"TINYSERVE_DOT is {wanted!r}; choose one of {', '.join(VARIANTS)}.")
    return wanted


VARIANT = _choose()
_SMALL = {"avx512vnni": _avx512vnni, "avx2": _avx2_small, "neon": _neon_dot, "plain": _plain}
_WIDE = {"avx512vnni": _avx512vnni, "avx2": _avx2_wide, "neon": _neon_wide, "plain": _plain}


@op(i32x16, i32x16, u8x64, types.int32)
def dot_small(builder, total, codes, quad):
    return _SMALL[VARIANT](builder, total, codes, quad)


@op(i32x16, i32x16, u8x64, types.int32)
def dot_wide(builder, total, codes, quad):
    return _WIDE[VARIANT](builder, total, codes, quad)
