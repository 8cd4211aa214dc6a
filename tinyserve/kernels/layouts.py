"""Packed weights as plain data: what `linear` and `embed` read.

A weight is a matrix W[N, K] (N outputs, K inputs). Rows are cut into tiles of 16, and inside a tile the 16 rows lie side by
side, so that one vector register holds one column step of 16 outputs and sums never cross lanes. Rows past N are zero.
Quantized formats cut K into groups of 32, each with a float16 scale (and, for INT4, a float16 minimum).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Union

import numpy as np

TILE = 16
GROUP = 32


@dataclass(frozen=True)
class DenseWeight:
    """W as it is. data[N/16, K, 16]: float32, or bfloat16 as its uint16 bits."""

    data: Any
    rows: int
    columns: int

    @property
    def nbytes(self) -> int:
        return self.data.nbytes


@dataclass(frozen=True)
class Int8Weight:
    """w = scale * (code - 128), code in 0..255.

    codes[N/16, K/32, 8, 16, 4] uint8: group, quad of columns, row, column in the quad (the processor's dot instruction adds
    four byte products a lane). scales[N/16, K/32, 16] float16.
    """

    codes: Any
    scales: Any
    rows: int
    columns: int

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes


@dataclass(frozen=True)
class Int4Weight:
    """w = scale * code + minimum, code in 0..15.

    codes[N/16, K/32, 4, 16, 4] uint8: byte [.., c, r, j] holds column 4c + j of the group in its low nibble and column
    16 + 4c + j in its high one. scales, minimums[N/16, K/32, 16] float16.
    """

    codes: Any
    scales: Any
    minimums: Any
    rows: int
    columns: int

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes + self.minimums.nbytes


Weight = Union[DenseWeight, Int8Weight, Int4Weight]


def _tiles(rows: np.ndarray) -> np.ndarray:
    """[N, ...] -> [ceil(N/16), 16, ...], zero-padded."""
    count = -(-rows.shape[0] // TILE)
    if count * TILE == rows.shape[0]:
        return rows.reshape(count, TILE, *rows.shape[1:])
    padded = np.zeros((count * TILE, *rows.shape[1:]), rows.dtype)
    padded[: rows.shape[0]] = rows
    return padded.reshape(count, TILE, *rows.shape[1:])


def _rows(tiles: np.ndarray, count: int) -> np.ndarray:
    return tiles.reshape(-1, *tiles.shape[2:])[:count]


def pack_dense(matrix: np.ndarray) -> DenseWeight:
    """W[N, K], float32 or uint16 (bfloat16 bits), in row order -> `DenseWeight`."""
    return DenseWeight(np.ascontiguousarray(_tiles(matrix).swapaxes(1, 2)), *matrix.shape)


def unpack_dense(weight: DenseWeight) -> np.ndarray:
    """The inverse of `pack_dense`."""
    return _rows(weight.data.swapaxes(1, 2), weight.rows)


def _quads(rows: np.ndarray) -> np.ndarray:
    """[N, G, quads, 4] bytes -> [N/16, G, quads, 16, 4]: a quad of bytes moves as one 32-bit word."""
    words = _tiles(np.ascontiguousarray(rows).view(np.uint32)[..., 0])
    return np.ascontiguousarray(words.transpose(0, 2, 3, 1))[..., None].view(np.uint8)


def _per_group(values: np.ndarray) -> np.ndarray:
    """[N, G] -> [N/16, G, 16]."""
    return np.ascontiguousarray(_tiles(values).swapaxes(1, 2))


def pack_int8(codes: np.ndarray, scales: np.ndarray) -> Int8Weight:
    """codes[N, K] int8 and scales[N, K/32] float16 -> `Int8Weight`."""
    n, k = codes.shape
    unsigned = codes.view(np.uint8) ^ np.uint8(0x80)
    return Int8Weight(_quads(unsigned.reshape(n, k // GROUP, 8, 4)), _per_group(scales), n, k)


def unpack_int8(weight: Int8Weight) -> tuple[np.ndarray, np.ndarray]:
    """The inverse of `pack_int8`."""
    unsigned = _rows(weight.codes.transpose(0, 3, 1, 2, 4), weight.rows).reshape(weight.rows, weight.columns)
    return (unsigned ^ 0x80).view(np.int8), _rows(weight.scales.swapaxes(1, 2), weight.rows)


def pack_int4(codes: np.ndarray, scales: np.ndarray, minimums: np.ndarray) -> Int4Weight:
    """codes[N, K] uint8 in 0..15, scales and minimums[N, K/32] float16 -> `Int4Weight`."""
    n, k = codes.shape
    halves = codes.reshape(n, k // GROUP, 2, 16)
    return pack_nibbles(halves[:, :, 0] | (halves[:, :, 1] << 4), scales, minimums)


def pack_nibbles(nibbles: np.ndarray, scales: np.ndarray, minimums: np.ndarray) -> Int4Weight:
    """nibbles[N, K/32, 16] uint8, column i of the group low and column 16 + i high in byte i -> `Int4Weight`."""
    n, groups, _ = nibbles.shape
    return Int4Weight(_quads(nibbles.reshape(n, groups, 4, 4)), _per_group(scales), _per_group(minimums), n, groups * GROUP)


def unpack_int4(weight: Int4Weight) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The inverse of `pack_int4`."""
    nibbles = _rows(weight.codes.transpose(0, 3, 1, 2, 4), weight.rows)
    codes = np.stack([nibbles & 15, nibbles >> 4], axis=2).reshape(weight.rows, weight.columns)
    return codes, *(_rows(part.swapaxes(1, 2), weight.rows) for part in (weight.scales, weight.minimums))


def dequantize(weight: Weight) -> np.ndarray:
    """W[N, K] in float32, exactly what the codes stand for."""
    if isinstance(weight, DenseWeight):
        matrix = unpack_dense(weight)
        return matrix.astype(np.float32) if matrix.dtype != np.uint16 else (matrix.astype(np.uint32) << 16).view(np.float32)
    if isinstance(weight, Int8Weight):
        codes, scales = unpack_int8(weight)
        return codes.astype(np.float32) * np.repeat(scales.astype(np.float32), GROUP, axis=1)
    codes, scales, minimums = unpack_int4(weight)
    scale, minimum = (np.repeat(part.astype(np.float32), GROUP, axis=1) for part in (scales, minimums))
    return codes.astype(np.float32) * scale + minimum
