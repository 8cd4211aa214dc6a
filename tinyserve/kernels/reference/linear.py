"""x @ W.T for every weight format. Quantized weights meet quantized activations, so the products are integers."""

from __future__ import annotations

from typing import Optional

import numpy as np
import torch
from torch import Tensor

from ..layouts import GROUP, DenseWeight, Int8Weight, Weight, dequantize, unpack_int4, unpack_int8


def linear(x: Tensor, weight: Weight, bias: Optional[Tensor] = None) -> Tensor:
    """x[T,K] @ W[N,K].T + bias[N] -> [T,N], summed in float64."""
    if x.ndim != 2 or x.shape[1] != weight.columns:
        raise ValueError(f"x{list(x.shape)} does not fit a weight of {weight.columns} columns.")
    if isinstance(weight, DenseWeight):
        y = x.double() @ _float64(dequantize(weight)).T
    else:
        y = _by_groups(x, weight)
    return (y if bias is None else y + bias.double()).to(x.dtype)


def quantize_activations(x: Tensor) -> tuple[Tensor, Tensor]:
    """x[T,K] -> codes[T,K/32,32] in -127..127 and scales[T,K/32], both float64: x is about scale * code.

    scale = max|x| / 127 in float32; a code is x * (127 / max|x|) in float32, rounded to the nearest integer, ties to
    even. A group of zeros has scale 0; where max|x| is below 1e-36 (127 / max|x| could overflow) all codes are 0. A
    group with a NaN or an infinity has scale NaN, so that the bad value reaches the output.
    """
    groups = x.float().reshape(len(x), x.shape[1] // GROUP, GROUP)
    largest = groups.abs().amax(-1, keepdim=True)
    inverse = torch.where(largest > 1e-36, 127 / largest, 0.0)
    codes = torch.round(groups * inverse).nan_to_num(0).clamp(-127, 127)
    scales = torch.where(largest.isfinite(), largest / 127, torch.nan)
    return codes.double(), scales[..., 0].double()


def _by_groups(x: Tensor, weight: Weight) -> Tensor:
    """Each group adds x_scale * (scale * (codes . codes) + minimum * sum of x codes)."""
    x_codes, x_scales = quantize_activations(x)
    codes, scales, minimums = _codes(weight)
    y = torch.zeros(len(x), weight.rows, dtype=torch.float64)
    for g in range(weight.columns // GROUP):
        dots = x_codes[:, g] @ codes[:, g].T  # [T, N]: integers, exact in float64
        sums = x_codes[:, g].sum(-1, keepdim=True)
        y += x_scales[:, g, None] * (dots * scales[:, g] + sums * minimums[:, g])
    return y


def _codes(weight: Weight) -> tuple[Tensor, Tensor, Tensor]:
    """codes[N,K/32,32], scales[N,K/32], minimums[N,K/32] of a quantized weight, as float64."""
    if isinstance(weight, Int8Weight):
        codes, scales = unpack_int8(weight)
        minimums = np.zeros_like(scales)
    else:
        codes, scales, minimums = unpack_int4(weight)
    return _float64(codes.reshape(weight.rows, -1, GROUP)), _float64(scales), _float64(minimums)


def _float64(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array.astype(np.float64))
