"""Ops that work on each row (or each number) alone. Sums run in float64; results come back in the type of the input."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..layouts import Weight, dequantize


def embed(ids: Tensor, weight: Weight) -> Tensor:
    """ids[T] -> rows of weight [T, H] in float32."""
    return torch.from_numpy(dequantize(weight))[ids.long()]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x[..., H] / sqrt(mean(x^2) + eps) * weight[H]: every row gets length sqrt(H), then each column its own gain."""
    wide = x.double()
    mean_square = wide.square().mean(-1, keepdim=True)
    return (wide / torch.sqrt(mean_square + eps) * weight.double()).to(x.dtype)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis."""
    wide = x.double()
    centred = wide - wide.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return (centred / torch.sqrt(variance + eps) * weight.double() + bias.double()).to(x.dtype)


def add(x: Tensor, y: Tensor) -> Tensor:
    """x + y, same shape."""
    if x.shape != y.shape:
        raise ValueError(f"shapes {list(x.shape)} and {list(y.shape)} differ.")
    return x + y


def rope(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> tuple[Tensor, Tensor]:
    """Turn each pair (x[i], x[i + D/2]) of q[T,Hq,D] and k[T,Hk,D] by its position's angle; cos_sin[positions, D] holds
    D/2 cosines, then D/2 sines."""
    angles = cos_sin.double()[positions.long()][:, None]  # [T, 1, D]: the same for every head
    cosines, sines = angles.chunk(2, -1)

    def rotate(x: Tensor) -> Tensor:
        first, second = x.double().chunk(2, -1)
        return torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1).to(x.dtype)

    return rotate(q), rotate(k)


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """gate * sigmoid(gate) * up, [T,F] each."""
    wide = gate.double()
    return (wide * torch.sigmoid(wide) * up.double()).to(gate.dtype)


def gelu(x: Tensor) -> Tensor:
    """The tanh form: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))."""
    wide = x.double()
    return (wide / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))).to(x.dtype)


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """x[T,H], rows[R] -> x[rows]."""
    return x[rows.long()]
