"""FP8 as a number format, emulated bit by bit: E4M3 (no infinity, largest 448) and E5M2 (largest 57344).

Source: Micikevicius et al. 2022, "FP8 formats for deep learning", and the OCP specification of 8-bit floating point.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import UnsupportedModel


@dataclass(frozen=True)
class Fp8:
    """One sign bit, `exponent` bits, `mantissa` bits; `finite` codes of each sign from zero up, then infinity and NaN."""

    exponent: int
    mantissa: int
    finite: int

    @cached_property
    def values(self) -> np.ndarray:
        """The value of each of the 256 codes, float32."""
        codes = np.arange(128)
        power, fraction = codes >> self.mantissa, codes & (2**self.mantissa - 1)
        bias = 2 ** (self.exponent - 1) - 1
        normal = np.ldexp(1 + fraction / 2**self.mantissa, power - bias)
        positive = np.where(power > 0, normal, np.ldexp(fraction / 2**self.mantissa, 1 - bias)).astype(np.float32)
        positive[self.finite:] = np.nan
        if self.finite == 124:  # E5M2 keeps IEEE's infinity before its NaNs
            positive[self.finite] = np.inf
        return np.concatenate([positive, -positive])


FORMATS = {"e4m3": Fp8(4, 3, 127), "e5m2": Fp8(5, 2, 124)}


def _format(name: str) -> Fp8:
    if name not in FORMATS:
        raise UnsupportedModel(f"FP8 format {name!r} is not one of {', '.join(FORMATS)}.")
    return FORMATS[name]


def to_fp8(values: np.ndarray, kind: str = "e4m3") -> np.ndarray:
    """float32 -> codes uint8, to nearest, ties to the even code; what is larger than the largest becomes the largest."""
    fp8, values = _format(kind), np.asarray(values, np.float32)
    steps = fp8.values[: fp8.finite].astype(np.float64)
    middles, size = (steps[:-1] + steps[1:]) / 2, np.abs(values).astype(np.float64)
    codes = np.searchsorted(middles, size, side="left")
    tie = middles[np.minimum(codes, len(middles) - 1)] == size
    codes = np.where(np.isnan(values), 127, codes + (tie & (codes % 2 == 1)))
    return (codes | np.signbit(values).astype(int) << 7).astype(np.uint8)


def from_fp8(codes: np.ndarray, kind: str = "e4m3") -> np.ndarray:
    """codes uint8 -> their values in float32."""
    return _format(kind).values[codes]
