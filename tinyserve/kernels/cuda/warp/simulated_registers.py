"""Arithmetic inside one lane in the simulator: what the instructions of `ptx_registers.py` compute, on Python and NumPy numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

MASK = 0xFFFFFFFF


def u32(value: Any) -> int:
    return int(value) & MASK


def i32(value: Any) -> int:
    return (int(value) + 0x80000000 & MASK) - 0x80000000


def round_i32(value: Any) -> int:
    return 0 if np.isnan(value) else int(np.clip(np.rint(np.float64(value)), -2**31, 2**31 - 1))


def float_bits(value: Any) -> int:
    return int(np.float32(value).view(np.uint32))


def bits_float(register: int) -> np.float32:
    return np.uint32(register & MASK).view(np.float32)


def _halves(register: Any, dtype: Any = np.float16) -> np.ndarray:
    return np.array([int(register) & MASK], np.uint32).view(dtype)


def _register(halves: np.ndarray) -> int:
    return int(np.ascontiguousarray(halves).view(np.uint32)[0])


def _to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 -> bfloat16 bits, to nearest even; NaN stays NaN."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)


def _from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def pack_f16(low: Any, high: Any) -> int:
    return _register(np.array([low, high], np.float32).astype(np.float16))


def pack_bf16(low: Any, high: Any) -> int:
    return _register(_to_bf16(np.array([low, high], np.float32)))


def unpack_f16(register: Any) -> tuple:
    return tuple(_halves(register).astype(np.float32))


def unpack_bf16(register: Any) -> tuple:
    return tuple(_from_bf16(_halves(register, np.uint16)))


def sub_f16x2(a: Any, b: Any) -> int:
    return _register(_halves(a) - _halves(b))


def mul_f16x2(a: Any, b: Any) -> int:
    return _register(_halves(a) * _halves(b))


def fma_f16x2(a: Any, b: Any, c: Any) -> int:
    a, b, c = (_halves(x).astype(np.float64) for x in (a, b, c))
    return _register((a * b + c).astype(np.float16))


def fma_bf16x2(a: Any, b: Any, c: Any) -> int:
    a, b, c = (_from_bf16(_halves(x, np.uint16)).astype(np.float64) for x in (a, b, c))
    return _register(_to_bf16((a * b + c).astype(np.float32)))


def _dot(a: Any, b: Any, c: Any, left: Any) -> int:
    products = _halves(a, left).astype(np.int64) * _halves(b, np.int8).astype(np.int64)
    return i32(int(c) + int(products.sum()))


def dp4a_s8(a: Any, b: Any, c: Any) -> int:
    return _dot(a, b, c, np.int8)


def dp4a_u8s8(a: Any, b: Any, c: Any) -> int:
    return _dot(a, b, c, np.uint8)


def byte_permute(a: Any, b: Any, selector: Any) -> int:
    source = (int(b) & MASK) << 32 | int(a) & MASK
    return sum((source >> 8 * (int(selector) >> 4 * i & 7) & 0xFF) << 8 * i for i in range(4))


def exp2(x: Any) -> np.float32:
    return np.exp2(np.float32(x))


def rsqrt(x: Any) -> np.float32:
    return np.float32(1) / np.sqrt(np.float32(x))


def reciprocal(x: Any) -> np.float32:
    return np.float32(1) / np.float32(x)
