"""The public checkpoint layouts of a quantized matrix: GPTQ (v1 and v2), AWQ, and compressed-tensors' pack-quantized.

All three put codes of a few bits into 32-bit words, lowest bits first; they differ in what runs along a word and in the order.
GPTQ packs along K and keeps zeros along N, in v1 as zero - 1. AWQ packs along N, eight columns in the order 0 2 4 6 1 3 5 7.
compressed-tensors packs along K, zeros along N, and keeps W's own orientation. Each part is named by its ending.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..errors import CorruptCheckpoint, UnsupportedModel
from .grid import Quantized

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # nibble i of a word holds this one of its eight columns
PARTS = {"gptq": ("qweight", "qzeros", "scales", "g_idx"), "awq": ("qweight", "qzeros", "scales"),
         "compressed-tensors": ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx")}
_BITS = {"gptq": (3, 4, 8), "awq": (4,), "compressed-tensors": (4, 8)}
Parts = Mapping[str, np.ndarray]


def to_words(codes: np.ndarray, bits: int) -> np.ndarray:
    """codes[..., L] uint8 -> int32[..., L * bits / 32]: one stream of bits, lowest first."""
    stream = (codes[..., None] >> np.arange(bits, dtype=np.uint8)) & 1
    packed = np.packbits(stream.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view("<i4")


def from_words(words: np.ndarray, bits: int) -> np.ndarray:
    """The inverse of `to_words`."""
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    return np.packbits(stream.reshape(*words.shape[:-1], -1, bits), axis=-1, bitorder="little")[..., 0]


def write(tensor: Quantized, layout: str, name: str = "weight", version: int = 1) -> dict[str, np.ndarray]:
    """The parts of a matrix in a layout ("gptq", "awq", "compressed-tensors"), by their endings. `version`: GPTQ's, 1 or 2.

    All are contiguous: safetensors writes another memory order as if it were this one."""
    return {ending: np.ascontiguousarray(part) for ending, part in _parts(tensor, layout, name, version).items()}


def _parts(tensor: Quantized, layout: str, name: str, version: int) -> dict[str, np.ndarray]:
    rows, columns = tensor.codes.shape
    if layout not in PARTS or tensor.bits not in _BITS[layout]:
        raise UnsupportedModel(f"Tensor {name!r}: layout {layout!r} has no {tensor.bits} bits.")
    if rows * tensor.bits % 32 or columns * tensor.bits % 32:
        raise UnsupportedModel(f"Tensor {name!r} of {rows} x {columns} does not fill 32-bit words of {tensor.bits}-bit codes.")
    if layout == "awq":
        if tensor.groups is not None:
            raise UnsupportedModel(f"Tensor {name!r}: AWQ's layout has no act-order; use static groups.")
        parts = (to_words(_awq(part.T), 4) for part in (tensor.codes, tensor.zeros))
        return dict(zip(PARTS[layout], (*parts, tensor.scales.T)))
    groups = np.arange(columns, dtype=np.int32) // tensor.width if tensor.groups is None else tensor.groups
    if layout == "gptq":
        zeros = tensor.zeros - np.uint8(version == 1)
        if version == 1 and not tensor.zeros.all():
            raise UnsupportedModel(f"Tensor {name!r} has a zero point of 0, which GPTQ's first version cannot hold (it keeps zero - 1).")
        return {"qweight": to_words(tensor.codes, tensor.bits).T, "qzeros": to_words(np.ascontiguousarray(zeros.T), tensor.bits),
                "scales": tensor.scales.T, "g_idx": groups}
    parts = {"weight_packed": to_words(tensor.codes, tensor.bits), "weight_scale": tensor.scales,
             "weight_shape": np.array([rows, columns], np.int64)}
    if (tensor.zeros != 2 ** (tensor.bits - 1)).any():
        parts["weight_zero_point"] = to_words(np.ascontiguousarray(tensor.zeros.T), tensor.bits).T
    return parts if tensor.groups is None else parts | {"weight_g_idx": tensor.groups}


def _awq(columns: np.ndarray) -> np.ndarray:
    """[..., N] in AWQ's order of eights."""
    return np.ascontiguousarray(columns.reshape(*columns.shape[:-1], -1, 8)[..., AWQ_ORDER]).reshape(columns.shape)


def read(parts: Parts, layout: str, bits: int, name: str = "weight", version: int = 1) -> Quantized:
    """A matrix from its parts; refuses parts that contradict each other, naming the tensor."""
    if bits not in _BITS[layout]:
        raise UnsupportedModel(f"Tensor {name!r}: {bits} bits of layout {layout!r} are not supported.")
    needed = PARTS[layout][:3] if layout != "compressed-tensors" else ("weight_packed", "weight_scale", "weight_shape")
    for part in needed:
        if part not in parts:
            raise CorruptCheckpoint(f"Tensor {name!r} has no {part}, which layout {layout!r} needs.")
    for part in needed[:2] if layout != "compressed-tensors" else needed[:1]:
        if parts[part].dtype != np.int32 or parts[part].ndim != 2:
            raise CorruptCheckpoint(f"Tensor {name!r}: {part} is not a matrix of 32-bit words.")
    reader = {"gptq": _read_gptq, "awq": _read_awq, "compressed-tensors": _read_compressed}[layout]
    return _checked(reader(parts, bits, name, version), name)


def _read_gptq(parts: Parts, bits: int, name: str, version: int) -> Quantized:
    codes, zeros = from_words(parts["qweight"].T, bits), from_words(parts["qzeros"], bits).T
    if version == 1:
        if (zeros == 2**bits - 1).any():
            raise CorruptCheckpoint(f"Tensor {name!r} has a zero point of {2**bits}, beyond its {bits} bits; is it GPTQ's second version?")
        zeros = zeros + np.uint8(1)
    return Quantized(codes, parts["scales"].T, np.ascontiguousarray(zeros), bits, parts.get("g_idx"))


def _read_awq(parts: Parts, bits: int, name: str, version: int) -> Quantized:
    def columns(words: np.ndarray) -> np.ndarray:
        nibbles = from_words(words, 4).reshape(len(words), -1, 8)
        return np.ascontiguousarray(nibbles[..., np.argsort(AWQ_ORDER)].reshape(len(words), -1).T)

    return Quantized(columns(parts["qweight"]), parts["scales"].T, columns(parts["qzeros"]), bits)


def _read_compressed(parts: Parts, bits: int, name: str, version: int) -> Quantized:
    codes, scales = from_words(parts["weight_packed"], bits), parts["weight_scale"]
    if parts["weight_shape"].tolist() != list(codes.shape):
        raise CorruptCheckpoint(f"Tensor {name!r} says shape {parts['weight_shape'].tolist()} and holds {list(codes.shape)}.")
    if "weight_zero_point" in parts:
        zeros = np.ascontiguousarray(from_words(parts["weight_zero_point"].T, bits).T)
    else:
        zeros = np.full(scales.shape, 2 ** (bits - 1), np.uint8)
    return Quantized(codes, scales, zeros, bits, parts.get("weight_g_idx"))


def _checked(tensor: Quantized, name: str) -> Quantized:
    (rows, columns), scales = tensor.codes.shape, tensor.scales
    if scales.ndim != 2 or len(scales) != rows or scales.shape != tensor.zeros.shape or columns % max(scales.shape[1], 1):
        raise CorruptCheckpoint(f"Tensor {name!r}: scales {list(scales.shape)} and zeros {list(tensor.zeros.shape)} do not fit a matrix "
                                f"of {rows} x {columns}.")
    with np.errstate(over="ignore"):
        halves = np.ascontiguousarray(scales, np.float16)
    if not np.isfinite(halves).all() or (halves != scales).any():
        raise CorruptCheckpoint(f"Tensor {name!r} has scales that float16 does not hold.")
    groups = tensor.groups
    if groups is not None:
        wanted = np.arange(columns) // tensor.width
        if groups.shape != (columns,) or (np.sort(groups) != wanted).any():
            raise CorruptCheckpoint(f"Tensor {name!r}: g_idx does not give every group its {tensor.width} columns.")
        groups = None if (groups == wanted).all() else groups.astype(np.int32)
    return Quantized(tensor.codes, halves, tensor.zeros, tensor.bits, groups)
