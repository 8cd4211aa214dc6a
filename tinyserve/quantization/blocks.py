"""GGUF's 4- and 8-bit blocks into the packed layouts: the same numbers in another order, never rounded again.

A row is a run of blocks of 32 values: Q4_1 = (scale, minimum: float16, 16 bytes of nibbles), Q4_0 = (scale, 16 bytes) with
w = scale * (code - 8), Q8_0 = (scale, 32 int8). Column i sits in the low nibble of byte i, column 16 + i in the high one.
"""

from __future__ import annotations

import numpy as np

from ..errors import CorruptCheckpoint
from ..kernels.layouts import GROUP, Int4Weight, Int8Weight, pack_int8, pack_nibbles, unpack_int4, unpack_int8
from .fused import to_kernel
from .grid import Quantized


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


def to_blocks(tensor: Quantized, name: str = "weight") -> tuple[str, np.ndarray]:
    """A quantized matrix as GGUF blocks, never rounded again: ("Q4_0", "Q4_1" or "Q8_0", rows[N, bytes])."""
    weight = to_kernel(tensor, name)
    if isinstance(weight, Int8Weight):
        codes, scales = unpack_int8(weight)
        return "Q8_0", _joined(scales[..., None].view(np.uint8), codes.reshape(*scales.shape, GROUP).view(np.uint8))
    codes, scales, minimums = unpack_int4(weight)
    symmetric = (minimums == scales * np.float16(-2 ** (tensor.bits - 1))).all()
    if symmetric and tensor.bits == 3:
        codes = codes + np.uint8(4)
    halves = codes.reshape(*scales.shape, 2, 16)
    nibbles = halves[:, :, 0] | halves[:, :, 1] << 4
    if symmetric:
        return "Q4_0", _joined(scales[..., None].view(np.uint8), nibbles)
    return "Q4_1", _joined(scales[..., None].view(np.uint8), minimums[..., None].view(np.uint8), nibbles)


def _joined(*parts: np.ndarray) -> np.ndarray:
    blocks = np.concatenate(parts, axis=-1)
    return blocks.reshape(len(blocks), -1)
