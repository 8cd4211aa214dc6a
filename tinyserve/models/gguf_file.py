"""GGUF files: a strict reader of the header, and tensors as views of the mapped file.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Every count and offset is checked against the file before
anything is allocated, so a truncated or lying file ends in one sentence. The blocks of rare types are expanded by the `gguf`
package, exactly.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CorruptCheckpoint, UnsupportedModel

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_DENSE = {0: np.dtype("<f4"), 1: np.dtype("<f2"), 30: np.dtype("<u2")}
F32, F16, Q4_0, Q4_1, Q8_0, BF16 = 0, 1, 2, 3, 8, 30


@dataclass(frozen=True)
class GgufTensor:
    """One tensor: `shape` in NumPy's order (rows first), `blocks` the file's bytes as [rows, bytes a row]."""

    name: str
    kind: int
    shape: tuple[int, ...]
    blocks: np.ndarray

    def float32(self) -> np.ndarray:
        """The exact values, [*shape] float32."""
        if self.kind in _DENSE:
            values = self.blocks.reshape(-1).view(_DENSE[self.kind]).reshape(self.shape)
            if self.kind == BF16:
                return (values.astype(np.uint32) << 16).view(np.float32)
            return values.astype(np.float32)
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        try:
            return dequantize(self.blocks, GGMLQuantizationType(self.kind)).reshape(self.shape).astype(np.float32)
        except (NotImplementedError, ValueError):
            raise UnsupportedModel(f"Tensor {self.name!r} has GGUF type {self.kind}, which is not supported.") from None


def _block(kind: int, name: str) -> tuple[int, int]:
    """(values, bytes) of one block of a tensor type."""
    if kind in _DENSE:
        return 1, _DENSE[kind].itemsize
    common = {Q4_0: (32, 18), Q4_1: (32, 20), Q8_0: (32, 34)}
    if kind in common:
        return common[kind]
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        return GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        raise UnsupportedModel(f"Tensor {name!r} has GGUF type {kind}, which is not supported.") from None


class GgufFile:
    """A GGUF file, mapped: `.metadata` (scalars at once, arrays when asked for) and `.tensors` by name."""

    def __init__(self, path: Path):
        self.path = Path(path)
        try:
            with open(self.path, "rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as problem:
            raise CorruptCheckpoint(f"{self.path} cannot be read as a GGUF file: {problem}.") from None
        self._at = 0
        self._arrays: dict[str, int] = {}
        self.metadata: dict[str, Any] = {}
        self._read_header()

    def _corrupt(self, what: str) -> CorruptCheckpoint:
        return CorruptCheckpoint(f"{self.path.name} is not a whole GGUF file: {what}. Fetch it again.")

    def _take(self, form: str) -> Any:
        size = struct.calcsize(form)
        if self._at + size > len(self._bytes):
            raise self._corrupt("it ends inside its header")
        value = struct.unpack_from(form, self._bytes, self._at)[0]
        self._at += size
        return value

    def _count(self, what: str, least: int) -> int:
        """A count of things of at least `least` bytes each; more than the file could hold is a lie."""
        count = self._take("<Q")
        if count * least > len(self._bytes) - self._at:
            raise self._corrupt(f"it claims {count:,} {what}, more than its {len(self._bytes):,} bytes can hold")
        return count

    def _string(self) -> str:
        length = self._count("bytes of text", 1)
        text = self._bytes[self._at:self._at + length]
        self._at += length
        return text.decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind not in _SCALARS:
            raise self._corrupt(f"it holds a value of unknown type {kind}")
        return self._take(_SCALARS[kind])

    def _skip_array(self) -> None:
        kind = self._take("<I")
        if kind == _STRING:
            for _ in range(self._count("strings", 8)):
                length = self._count("bytes of text", 1)
                self._at += length
        elif kind in _SCALARS:
            size = struct.calcsize(_SCALARS[kind])
            length = self._count("array values", size) * size
            self._at += length
        else:
            raise self._corrupt(f"it holds an array of unsupported type {kind}")

    def header(self) -> bytes:
        """Everything before the tensor data: metadata, tokenizer and tensor table."""
        return self._bytes[: self._data]

    def array(self, key: str) -> list[Any]:
        """A metadata array, read now. Raises KeyError where there is none."""
        self._at = self._arrays[key]
        kind = self._take("<I")
        return [self._value(kind) for _ in range(self._count("array values", 1))]

    def _read_header(self) -> None:
        if self._bytes[:4] != b"GGUF":
            raise self._corrupt("it does not begin with 'GGUF'")
        self._at = 4
        version = self._take("<I")
        if version not in (2, 3):
            raise UnsupportedModel(f"{self.path.name} is GGUF version {version}; versions 2 and 3 are supported.")
        tensors, pairs = self._count("tensors", 24), self._count("metadata entries", 12)
        for _ in range(pairs):
            key, kind = self._string(), self._take("<I")
            if kind == _ARRAY:
                self._arrays[key] = self._at
                self._skip_array()
            else:
                self.metadata[key] = self._value(kind)
        self._table = [self._entry() for _ in range(tensors)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._corrupt(f"its alignment is {alignment!r}")
        self._data = -(-self._at // alignment) * alignment

    def _entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name, dimensions = self._string(), self._take("<I")
        if not 1 <= dimensions <= 4:
            raise self._corrupt(f"tensor {name!r} has {dimensions} dimensions")
        shape = tuple(self._take("<Q") for _ in range(dimensions))[::-1]
        return name, shape, self._take("<I"), self._take("<Q")

    @cached_property
    def tensors(self) -> dict[str, GgufTensor]:
        """Every tensor by name, as views of the file."""
        return {tensor.name: tensor for tensor in self._tensors()}

    def _tensors(self) -> Iterator[GgufTensor]:
        whole = np.frombuffer(self._bytes, np.uint8)
        for name, shape, kind, offset in self._table:
            values, size = _block(kind, name)
            if 0 in shape or shape[-1] % values:
                raise self._corrupt(f"tensor {name!r} of shape {list(shape)} does not fill blocks of {values}")
            row = shape[-1] // values * size
            rows = 1
            for length in shape[:-1]:
                rows *= length
            start, end = self._data + offset, self._data + offset + rows * row
            if end > len(whole):
                raise self._corrupt(f"tensor {name!r} would end at byte {end:,} of {len(whole):,}")
            yield GgufTensor(name, kind, shape, whole[start:end].reshape(rows, row))
