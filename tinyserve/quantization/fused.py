"""A `Quantized` matrix in the packed layouts that the kernels run: the same numbers in another order, or a refusal."""

from __future__ import annotations

import numpy as np

from ..errors import UnsupportedModel
from ..kernels.layouts import GROUP, Int4Weight, Int8Weight, pack_int4, pack_int8
from .grid import Quantized


def to_kernel(tensor: Quantized, name: str = "weight") -> Int4Weight | Int8Weight:
    """Three and four bits become INT4 where -scale * zero is exact in float16 (always if symmetric), else INT8 with codes
    code - zero; eight bits become INT8. Groups must be runs of a multiple of 32 columns."""
    if tensor.groups is not None:
        raise UnsupportedModel(f"Tensor {name!r} has groups that are not runs of columns (act-order), which no fused kernel reads; "
                               "load it with dtype float32 or bfloat16, or quantize it with static groups.")
    if tensor.width % GROUP:
        raise UnsupportedModel(f"Tensor {name!r} has groups of {tensor.width} columns; the kernels need multiples of {GROUP}.")
    repeats = tensor.width // GROUP
    scales, zeros = np.repeat(tensor.scales, repeats, axis=1), np.repeat(tensor.zeros, repeats, axis=1)
    minimums = -scales.astype(np.float32) * zeros
    with np.errstate(over="ignore"):
        halves = minimums.astype(np.float16)
    if tensor.bits <= 4 and (halves == minimums).all():
        return pack_int4(tensor.codes, scales, halves)
    signed = tensor.codes.astype(np.int16) - np.repeat(zeros, GROUP, axis=1)
    if signed.min() < -128 or signed.max() > 127:
        raise UnsupportedModel(f"Tensor {name!r} has zero points that put its codes outside INT8.")
    return pack_int8(signed.astype(np.int8), scales)
