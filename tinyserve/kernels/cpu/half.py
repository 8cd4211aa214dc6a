"""float16 to float32 and back on any processor: one instruction where there is one, integer steps with the same result elsewhere.

LLVM would call a library function for the latter, which Numba does not link. The steps are exact: widening multiplies by 2^112
(which also sets right the denormals), narrowing rounds to nearest, ties to even.
"""

import platform

import llvmlite.binding as llvm
import llvmlite.ir as ir
from numba import config

from .vectors import F16, F32, I32


def _in_hardware() -> bool:
    """Whether the compilation target converts by itself (Numba's settings count, since they choose the target)."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    if config.CPU_FEATURES is not None:
        return "+f16c" in config.CPU_FEATURES
    return config.CPU_NAME is None and bool(llvm.get_host_cpu_features().get("f16c"))


HARDWARE = _in_hardware()


def _like(kind: ir.Type, element: ir.Type) -> ir.Type:
    return ir.VectorType(element, kind.count) if isinstance(kind, ir.VectorType) else element


def _constant(kind: ir.Type, value: float) -> ir.Constant:
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def widen(builder: ir.IRBuilder, half: ir.Value) -> ir.Value:
    """float16 -> float32, scalar or vector."""
    floats, words = _like(half.type, F32), _like(half.type, I32)
    if HARDWARE:
        return builder.fpext(half, floats)
    bits = builder.zext(builder.bitcast(half, _like(half.type, ir.IntType(16))), words)
    magnitude = builder.shl(builder.and_(bits, _constant(words, 0x7FFF)), _constant(words, 13))
    value = builder.bitcast(builder.fmul(builder.bitcast(magnitude, floats), _constant(floats, 2.0**112)), words)
    special = builder.icmp_unsigned(">=", magnitude, _constant(words, 0x7C00 << 13))
    value = builder.select(special, builder.or_(magnitude, _constant(words, 0x7F800000)), value)
    sign = builder.shl(builder.and_(bits, _constant(words, 0x8000)), _constant(words, 16))
    return builder.bitcast(builder.or_(value, sign), floats)


def narrow(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """float32 -> float16, scalar or vector."""
    if HARDWARE:
        return builder.fptrunc(value, _like(value.type, F16))
    floats, words = value.type, _like(value.type, I32)
    bits = builder.bitcast(value, words)
    magnitude = builder.and_(bits, _constant(words, 0x7FFFFFFF))
    odd = builder.and_(builder.lshr(magnitude, _constant(words, 13)), _constant(words, 1))
    rounded = builder.add(builder.add(magnitude, _constant(words, 0xFFF)), odd)
    normal = builder.sub(builder.lshr(rounded, _constant(words, 13)), _constant(words, 112 << 10))
    shifted = builder.fadd(builder.bitcast(magnitude, floats), _constant(floats, 0.5))
    small = builder.sub(builder.bitcast(shifted, words), _constant(words, 0x3F000000))
    result = builder.select(builder.icmp_unsigned("<", magnitude, _constant(words, 0x38800000)), small, normal)
    result = builder.select(builder.icmp_unsigned(">=", magnitude, _constant(words, 0x477FF000)), _constant(words, 0x7C00), result)
    result = builder.select(builder.icmp_unsigned(">", magnitude, _constant(words, 0x7F800000)), _constant(words, 0x7E00), result)
    sign = builder.and_(builder.lshr(bits, _constant(words, 16)), _constant(words, 0x8000))
    return builder.bitcast(builder.trunc(builder.or_(result, sign), _like(value.type, ir.IntType(16))), _like(value.type, F16))
