"""Quantized weights in the order in which the lanes of a warp want them, so that every read is 128 bits and coalesced.

W[N, K] is cut into tiles of 8 rows by 128 columns (4 groups of 32); N and K are padded with zeros. In a tile, lane l looks after row
l // 4 and, in each group, columns 4c..4c+3 and 16+4c..16+4c+3, where c = l % 4: these are exactly the two registers that it brings
to `mma_m16n8k32_s8` as its part of B, and what it multiplies in a matrix-vector product. INT4 keeps the first four columns in the
low nibbles of a word and the others in the high ones (as `layouts.Int4Weight` does), so a group is one word a lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from ... import layouts

ROWS, COLUMNS, GROUP = 8, 128, 32


@dataclass(frozen=True)
class PackedWeight:
    """w = scale * code (+ minimum).

    codes: uint32 [N/8, K/128, 32, 4] for 4 bits (code 0..15; one word a group), [N/8, K/128, 2, 32, 4] for 8 bits (-128..127; two
    words a group). scales: for 4 bits uint32 [N/8, K/128, 8, 128/group], float16 scale in the low half and minimum in the high one;
    for 8 bits float16 without a minimum. `order`: column k of W multiplies x[order[k]] (act-order), or None.
    """

    bits: int
    group: int
    codes: Any
    scales: Any
    rows: int
    columns: int
    order: Optional[Any] = None

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes


def _padded(matrix: np.ndarray, rows: int, columns: int) -> np.ndarray:
    return np.pad(matrix, ((0, -matrix.shape[0] % rows), (0, -matrix.shape[1] % columns)))


def _words(codes: np.ndarray) -> np.ndarray:
    """codes[N, K] bytes -> [N/8, K/128, row, c, group, half, 4]: half 0 are columns 4c.. of a group, half 1 columns 16 + 4c.."""
    codes = _padded(codes, ROWS, COLUMNS)
    n, k = codes.shape
    return codes.reshape(n // ROWS, ROWS, k // COLUMNS, 4, 2, 4, 4).transpose(0, 2, 1, 5, 3, 4, 6)


def _scales(scales: np.ndarray, group: int) -> np.ndarray:
    """scales[N, K/group] -> [N/8, K/128, 8, 128/group]."""
    per_tile = COLUMNS // group
    scales = _padded(scales, ROWS, per_tile)
    return scales.reshape(scales.shape[0] // ROWS, ROWS, -1, per_tile).swapaxes(1, 2)


def pack_int4(codes: np.ndarray, scales: np.ndarray, minimums: np.ndarray, group: int = GROUP, order: Any = None) -> PackedWeight:
    """codes[N, K] uint8 in 0..15; scales, minimums[N, K/group] float16; group 32, 64 or 128 -> `PackedWeight`."""
    words = _words(codes)
    nibbles = np.ascontiguousarray(words[..., 0, :] | words[..., 1, :] << 4).view(np.uint32)
    pairs = np.stack([_scales(scales, group), _scales(minimums, group)], -1).astype(np.float16)
    return PackedWeight(4, group, nibbles.reshape(*nibbles.shape[:2], 32, 4), np.ascontiguousarray(pairs).view(np.uint32)[..., 0],
                        *codes.shape, order)


def pack_int8(codes: np.ndarray, scales: np.ndarray, group: int = GROUP, order: Any = None) -> PackedWeight:
    """codes[N, K] int8, scales[N, K/group] float16; group 32, 64 or 128 -> `PackedWeight`."""
    words = np.ascontiguousarray(_words(codes.view(np.uint8))).view(np.uint32)[..., 0]
    tiles = words.reshape(*words.shape[:2], 32, 2, 4).transpose(0, 1, 3, 2, 4)
    tile_scales = np.ascontiguousarray(_scales(scales, group), np.float16)
    return PackedWeight(8, group, np.ascontiguousarray(tiles), tile_scales, *codes.shape, order)


def by_group(codes: np.ndarray, group_of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns of codes[N, K] sorted so that those of one group are neighbours, and the order: sorted column k was column order[k].
    group_of[K] is GPTQ's g_idx (act-order): the group whose scale a column uses."""
    order = np.argsort(group_of, kind="stable").astype(np.int32)
    return np.ascontiguousarray(codes[:, order]), order


def pack(weight: layouts.Weight) -> PackedWeight:
    """An INT8 or INT4 weight of `layouts`, repacked (never re-rounded)."""
    if isinstance(weight, layouts.Int4Weight):
        return pack_int4(*layouts.unpack_int4(weight))
    return pack_int8(*layouts.unpack_int8(weight))
