"""GGUF's 4- and 8-bit blocks into the packed layouts: the same numbers in another order, never rounded again.

A row is a run of blocks of 32 values: Q4_1 = (scale, minimum: float16, 16 bytes of nibbles), Q4_0 = (scale, 16 bytes) with
w = scale * (code - 8), Q8_0 = (scale, 32 int8). Column i sits in the low nibble of byte i, column 16 + i in the high one.
"""

from __future__ import annotations

import numpy as np

from ..errors import CorruptCheckpoint
from ..kernels.layouts import GROUP, Int4Weight, Int8Weight, pack_int8, pack_nibbles


def _float16(blocks: np.ndarray, at: int, name: str) -> np.ndarray:
    """The float16 at byte `at` of each block."""
    values = np.ascontiguousarray(blocks[..., at:at + 2]).view(np.float16)[..., 0]
    if not np.isfinite(values).all():
        raise CorruptCheckpoint(f"Tensor {name!r} holds a scale that is NaN or infinite.")
    return values


def from_q4_1(rows: np.ndarray, name: str = "weight") -> Int4Weight:
    """rows[N, bytes] uint8 of Q4_1 blocks."""
    blocks = rows.reshape(len(rows), -1, 20)
    return pack_nibbles(blocks[..., 4:], _float16(blocks, 0, name), _float16(blocks, 2, name))


def from_q4_0(rows: np.ndarray, name: str = "weight") -> Int4Weight:
    """rows[N, bytes] uint8 of Q4_0 blocks; -8 * scale is exact in float16 unless it overflows, which is refused."""
    blocks = rows.reshape(len(rows), -1, 18)
    scales = _float16(blocks, 0, name)
    with np.errstate(over="ignore"):
        minimums = (scales * np.float16(-8)).astype(np.float16)
    if not np.isfinite(minimums).all():
        raise CorruptCheckpoint(f"Tensor {name!r} holds a scale too large for this format.")
    return pack_nibbles(blocks[..., 2:], scales, minimums)


def from_q8_0(rows: np.ndarray, name: str = "weight") -> Int8Weight:
    """rows[N, bytes] uint8 of Q8_0 blocks."""
    blocks = rows.reshape(len(rows), -1, 34)
    codes = np.ascontiguousarray(blocks[..., 2:]).view(np.int8)
    return pack_int8(codes.reshape(len(rows), blocks.shape[1] * GROUP), _float16(blocks, 0, name))
