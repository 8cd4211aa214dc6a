"""The grid of a group: w = scale * (code - zero), codes and zeros of a few bits, one scale and zero for each group of columns.

`round_to_nearest` puts a matrix on such a grid; GPTQ and AWQ choose other codes or other scales for the same `Quantized`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

import numpy as np

from ..errors import CorruptCheckpoint, UnsupportedModel

BITS = (3, 4, 8)
_CLIPS = np.linspace(0.95, 0.6, 8)


@dataclass(frozen=True)
class Grid:
    """`group` columns share a scale (-1: the whole row). Symmetric: the zero is the middle code; else each group has its own.

    Asymmetric scales keep seven significant bits: scale * zero is then exact in float16, which the INT4 kernels read."""

    bits: int = 4
    group: int = 128
    symmetric: bool = True

    @property
    def top(self) -> int:
        return 2**self.bits - 1

    def width(self, columns: int, name: str) -> int:
        """Columns of a group of a matrix with so many columns; refuses what cannot be cut so."""
        if self.bits not in BITS or self.bits == 8 and not self.symmetric:
            kind = "symmetric" if self.symmetric else "asymmetric"
            raise UnsupportedModel(f"Tensor {name!r}: {self.bits} {kind} bits are not supported; 3, 4 and symmetric 8 are.")
        group = columns if self.group == -1 else self.group
        if group < 1 or columns % group:
            raise UnsupportedModel(f"Tensor {name!r} has {columns} columns, which groups of {self.group} do not divide.")
        return group


@dataclass(frozen=True)
class Quantized:
    """codes[N, K] and zeros[N, G] uint8, scales[N, G] float16; `groups[K]` int32 says whose each column is (None: in order)."""

    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray
    bits: int
    groups: Optional[np.ndarray] = None

    @property
    def width(self) -> int:
        """Columns of a group."""
        return self.codes.shape[1] // self.scales.shape[1]

    def dequantize(self) -> np.ndarray:
        """W[N, K] in float32, exactly what the codes stand for."""
        at = np.arange(self.codes.shape[1]) // self.width if self.groups is None else self.groups
        codes, zeros, scales = (part.astype(np.float32) for part in (self.codes, self.zeros, self.scales))
        return np.ascontiguousarray((codes - zeros[:, at]) * scales[:, at])


def finite(matrix: np.ndarray, name: str) -> np.ndarray:
    """The matrix in float32; refuses NaN and infinity by name."""
    if not np.isfinite(matrix).all():
        raise CorruptCheckpoint(f"Tensor {name!r} holds NaN or infinity.")
    return np.asarray(matrix, np.float32)


def _kept(scales: np.ndarray, grid: Grid, name: str) -> np.ndarray:
    """Scales as the checkpoint can hold them, in float32; a group of zeros gets 1."""
    if not grid.symmetric:
        fraction, exponent = np.frexp(scales)
        scales = np.ldexp(np.rint(fraction * 128) / 128, exponent)
    with np.errstate(over="ignore"):
        halves = scales.astype(np.float16).astype(np.float32)
    if not np.isfinite(halves).all():
        raise UnsupportedModel(f"Tensor {name!r} holds values too large for groups with float16 scales.")
    return np.where(halves == 0, np.float32(1), halves)


def _fit(groups: np.ndarray, grid: Grid, clip: float, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Scales and zeros [N, G] that span `clip` times the range of groups[N, G, width]."""
    high = np.maximum(groups.max(-1), 0) * np.float32(clip)
    low = np.minimum(groups.min(-1), 0) * np.float32(clip)
    if grid.symmetric:
        scales = _kept(2 * np.maximum(high, -low) / grid.top, grid, name)
        return scales, np.full_like(scales, (grid.top + 1) // 2)
    scales = _kept((high - low) / grid.top, grid, name)
    return scales, np.clip(np.rint(-low / scales), 0, grid.top)


def codes_of(values: np.ndarray, scales: np.ndarray, zeros: np.ndarray, top: int) -> np.ndarray:
    """The nearest codes, as float32."""
    return np.clip(np.rint(values / scales) + zeros, 0, top)


def fit(groups: np.ndarray, grid: Grid, importance: Optional[np.ndarray] = None, name: str = "weight") -> tuple[np.ndarray, np.ndarray]:
    """Scales and zeros [N, G], float32, for groups[N, G, width]: the whole range, or, with an importance[G, width] of each
    column, the share of the range that makes the weighted squared error least (a few large values then cost the others less)."""
    scales, zeros = _fit(groups, grid, 1, name)
    if importance is None:
        return scales, zeros
    least = _error(groups, scales, zeros, grid, importance)
    for clip in _CLIPS:
        some_scales, some_zeros = _fit(groups, grid, clip, name)
        error = _error(groups, some_scales, some_zeros, grid, importance)
        better = error < least
        scales, zeros, least = (np.where(better, *pair) for pair in ((some_scales, scales), (some_zeros, zeros), (error, least)))
    return scales, zeros


def _error(groups: np.ndarray, scales: np.ndarray, zeros: np.ndarray, grid: Grid, importance: np.ndarray) -> np.ndarray:
    scale, zero = scales[..., None], zeros[..., None]
    off = (codes_of(groups, scale, zero, grid.top) - zero) * scale - groups
    return np.einsum("ngk,ngk,gk->ng", off, off, importance)


def round_to_nearest(matrix: np.ndarray, grid: Grid, importance: Optional[np.ndarray] = None, name: str = "weight") -> Quantized:
    """W[N, K] on its grid. With an importance[K] of the columns (their mean squared input), the range is clipped by search."""
    rows, columns = matrix.shape
    width = grid.width(columns, name)
    groups = finite(matrix, name).reshape(rows, -1, width)
    scales, zeros = fit(groups, grid, None if importance is None else importance.reshape(-1, width), name)
    codes = codes_of(groups, scales[..., None], zeros[..., None], grid.top)
    return Quantized(codes.reshape(rows, columns).astype(np.uint8), scales.astype(np.float16), zeros.astype(np.uint8), grid.bits)
