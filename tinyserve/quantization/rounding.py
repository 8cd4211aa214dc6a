"""Round-to-nearest: float matrices into the packed layouts, groups of 32 columns."""

from __future__ import annotations

import numpy as np

from ..errors import CorruptCheckpoint, UnsupportedModel
from ..kernels.layouts import GROUP, Int4Weight, Int8Weight, Weight, pack_dense, pack_int4, pack_int8

DTYPES = ("float32", "bfloat16", "int8", "int4")


def _groups(matrix: np.ndarray) -> np.ndarray:
    rows, columns = matrix.shape
    if columns % GROUP:
        raise UnsupportedModel(f"A weight of {columns} columns cannot be cut into groups of {GROUP}; use dtype float32 or bfloat16.")
    return matrix.astype(np.float32).reshape(rows, columns // GROUP, GROUP)


def _divide(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """values / scales by group, 0 where the scale is 0."""
    safe = np.where(scales == 0, 1, scales).astype(np.float32)
    return np.rint(values / safe[..., None])


def _float16(values: np.ndarray, name: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16)
    if not np.isfinite(halves).all():
        raise UnsupportedModel(f"Tensor {name!r} holds values too large for groups with float16 scales; use dtype float32 or bfloat16.")
    return halves


def to_int8(matrix: np.ndarray, name: str = "weight") -> Int8Weight:
    """W[N, K] -> INT8, symmetric: scale = max|w| / 127 in float16."""
    groups = _groups(matrix)
    scales = _float16(np.abs(groups).max(-1) / 127, name)
    codes = np.clip(_divide(groups, scales), -127, 127)
    return pack_int8(codes.reshape(matrix.shape).astype(np.int8), scales)


def to_int4(matrix: np.ndarray, name: str = "weight") -> Int4Weight:
    """W[N, K] -> INT4, asymmetric: 16 steps from the group's minimum to its maximum, both kept in float16."""
    groups = _groups(matrix)
    minimums = _float16(groups.min(-1), name)
    scales = _float16((groups.max(-1) - minimums.astype(np.float32)) / 15, name)
    codes = np.clip(_divide(groups - minimums.astype(np.float32)[..., None], scales), 0, 15)
    return pack_int4(codes.reshape(matrix.shape).astype(np.uint8), scales, minimums)


def to_bfloat16(matrix: np.ndarray) -> np.ndarray:
    """float32 -> bfloat16 bits (uint16), to nearest, ties to even."""
    bits = matrix.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def pack(matrix: np.ndarray, dtype: str, name: str = "weight") -> Weight:
    """W[N, K] in float32 -> the layout of `dtype` ("float32", "bfloat16", "int8", "int4"); refuses NaN and infinity."""
    if not np.isfinite(matrix).all():
        raise CorruptCheckpoint(f"Tensor {name!r} holds NaN or infinity.")
    if dtype == "int8":
        return to_int8(matrix, name)
    if dtype == "int4":
        return to_int4(matrix, name)
    return pack_dense(to_bfloat16(matrix) if dtype == "bfloat16" else np.ascontiguousarray(matrix, np.float32))
