"""Quantized Hugging Face checkpoints: what `quantization_config` declares, and the matrices that it packs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from ..errors import CorruptCheckpoint, UnsupportedModel
from ..kernels.layouts import Weight
from ..quantization.fused import to_kernel
from ..quantization.grid import Quantized
from ..quantization.packing import read


@dataclass(frozen=True)
class Scheme:
    """How the matrices are packed: `layout` of `quantization.packing`, `group` columns a scale (-1: the row), GPTQ's `version`."""

    layout: str
    bits: int
    group: int
    version: int = 1


def read_scheme(config: Mapping[str, Any]) -> Optional[Scheme]:
    """The scheme that a config.json declares, or None; what is declared and not supported is refused."""
    declared = config.get("quantization_config")
    if not declared:
        return None
    method = declared.get("quant_method") if isinstance(declared, Mapping) else None
    if method == "compressed-tensors":
        return _compressed(declared)
    if method not in ("gptq", "awq"):
        raise UnsupportedModel(f"This checkpoint is quantized by {method!r}; supported are gptq, awq and compressed-tensors.")
    form = str(declared.get("checkpoint_format" if method == "gptq" else "version", method)).lower()
    if form not in {"gptq": ("gptq", "gptq_v2"), "awq": ("awq", "gemm")}[method]:
        raise UnsupportedModel(f"This checkpoint is quantized by {method} in the format {form!r}, which is not supported.")
    return _scheme(method, declared.get("bits"), declared.get("group_size"), 2 if form == "gptq_v2" else 1)


def _scheme(layout: str, bits: Any, group: Any, version: int = 1) -> Scheme:
    for name, value in (("bits", bits), ("group_size", group)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise CorruptCheckpoint(f"The checkpoint's quantization_config says {name} = {value!r}; it must be an integer.")
    if bits not in (3, 4, 8) or group != -1 and group < 1:
        raise UnsupportedModel(f"The checkpoint's quantization_config says {bits} bits in groups of {group}, which is not supported.")
    return Scheme(layout, bits, group, version)


def _compressed(declared: Mapping[str, Any]) -> Scheme:
    groups = declared.get("config_groups")
    if declared.get("format") != "pack-quantized" or not isinstance(groups, Mapping) or len(groups) != 1:
        raise UnsupportedModel("Of compressed-tensors only the format pack-quantized with one group of settings is supported.")
    settings = next(iter(groups.values()))
    weights = settings.get("weights") if isinstance(settings, Mapping) else None
    if not isinstance(weights, Mapping) or weights.get("type", "int") != "int" or settings.get("input_activations"):
        raise UnsupportedModel("Of compressed-tensors only integer weights with activations left alone are supported.")
    whole = weights.get("strategy") == "channel"
    return _scheme("compressed-tensors", weights.get("num_bits"), -1 if whole else weights.get("group_size"))


def packed_shape(words: Sequence[int], scheme: Scheme) -> tuple[int, ...]:
    """[N, K] of a matrix by the shape of its packed words; refuses words that are no matrix."""
    if len(words) != 2:
        raise CorruptCheckpoint(f"A packed matrix has shape {list(words)}; it must have two dimensions.")
    first, second = words
    if scheme.layout == "gptq":
        return second, first * 32 // scheme.bits
    return (second * 8, first) if scheme.layout == "awq" else (first, second * 32 // scheme.bits)


def unpacked(parts: Mapping[str, np.ndarray], scheme: Scheme, name: str) -> Quantized:
    """The matrix of these parts; refuses one with other groups than the scheme declares."""
    tensor = read(parts, scheme.layout, scheme.bits, name, scheme.version)
    if tensor.width != (tensor.codes.shape[1] if scheme.group == -1 else scheme.group):
        raise CorruptCheckpoint(f"Tensor {name!r} has groups of {tensor.width} columns; the configuration says {scheme.group}.")
    return tensor


def joined(tensors: Sequence[Optional[Quantized]], name: str) -> Optional[Weight]:
    """One kernel weight of matrices with the same columns, or None where some are not quantized."""
    if any(tensor is None for tensor in tensors):
        return None
    if len(tensors) > 1 and any(tensor.groups is not None for tensor in tensors):
        return None
    first = tensors[0]
    rows = [np.concatenate([getattr(tensor, part) for tensor in tensors]) for part in ("codes", "scales", "zeros")]
    return to_kernel(Quantized(*rows, first.bits, first.groups), name)
