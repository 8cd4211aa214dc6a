"""Tensors of a checkpoint by a common name, as packed weights or float arrays: one class a file format.

Common names: embedding, positions, head, final_norm, final_norm_bias, and a layer's q, k, v, qkv, output, gate, up, down,
attention_norm, ffn_norm, q_norm, k_norm, each also with _bias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np

from ..errors import CorruptCheckpoint, ModelNotFound, UnsupportedModel
from ..kernels.layouts import Weight
from ..quantization.blocks import from_q4_0, from_q4_1, from_q8_0
from ..quantization.grid import Quantized
from ..quantization.packing import PARTS
from ..quantization.rounding import pack
from .config import ModelConfig
from .gguf_file import BF16, Q4_0, Q4_1, Q8_0, GgufFile
from .quantized import joined, packed_shape, unpacked

_HF = {
    "embedding": "model.embed_tokens", "head": "lm_head", "final_norm": "model.norm", "q": "self_attn.q_proj",
    "k": "self_attn.k_proj", "v": "self_attn.v_proj", "output": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj",
    "down": "mlp.down_proj", "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm",
}
_GPT2 = {
    "embedding": "wte", "positions": "wpe", "final_norm": "ln_f", "qkv": "attn.c_attn", "output": "attn.c_proj", "up": "mlp.c_fc",
    "down": "mlp.c_proj", "attention_norm": "ln_1", "ffn_norm": "ln_2", "head": "lm_head",
}
_GGUF = {
    "embedding": "token_embd", "positions": "position_embd", "head": "output", "final_norm": "output_norm", "q": "attn_q",
    "k": "attn_k", "v": "attn_v", "qkv": "attn_qkv", "output": "attn_output", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
    "attention_norm": "attn_norm", "ffn_norm": "ffn_norm", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm",
}


def _name(table: Mapping[str, str], prefix: str, part: str) -> str:
    """The tensor's name; a part that the layout does not have keeps its own, which no checkpoint holds."""
    base, ending = part.removesuffix("_bias"), ".bias" if part.endswith("_bias") else ".weight"
    return prefix + table.get(base, base) + ending


class SafetensorsSource:
    """A Hugging Face folder of *.safetensors, in one file or in shards. Nothing else is read: pickled files are refused."""

    def __init__(self, folder: Path, config: ModelConfig):
        from safetensors import SafetensorError, safe_open

        self._config, self._gpt2 = config, config.architecture == "gpt2"
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            others = [path.name for path in folder.glob("*.bin")]
            hint = f" ({others[0]} is pickled and is never opened)" if others else ""
            raise ModelNotFound(f"{folder} holds no .safetensors files{hint}; convert the model to safetensors.")
        self._where: dict[str, Any] = {}
        for file in files:
            try:
                handle = safe_open(file, framework="numpy")
                self._where.update({name: (handle, file) for name in handle.keys()})
            except (SafetensorError, OSError) as problem:
                raise CorruptCheckpoint(f"{file.name} is not a whole safetensors file: {problem}. Fetch it again.") from None
        self._declared(folder)

    def _declared(self, folder: Path) -> None:
        import json

        index = folder / "model.safetensors.index.json"
        if not index.exists():
            return
        try:
            promised = json.loads(index.read_text(encoding="utf-8"))["weight_map"].keys()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise CorruptCheckpoint(f"{index} is not a readable index of shards; fetch it again.") from None
        missing = [name for name in promised if name not in self._where]
        if missing:
            raise CorruptCheckpoint(f"{index.name} promises tensor {missing[0]!r}, which no file here holds; fetch the missing shard.")

    def _full_name(self, part: str, layer: Optional[int]) -> str:
        if not self._gpt2:
            return _name(_HF, "" if layer is None else f"model.layers.{layer}.", part)
        name = _name(_GPT2, "" if layer is None else f"h.{layer}.", part)
        return name if name in self._where or part == "head" else "transformer." + name

    def has(self, part: str, layer: Optional[int] = None) -> bool:
        """True where the checkpoint holds this part."""
        return self._full_name(part, layer) in self._where or bool(self._packed(part, layer))

    def _packed(self, part: str, layer: Optional[int]) -> dict[str, str]:
        """Ending -> tensor name of a matrix that the checkpoint's scheme packs; {} for any other."""
        scheme, base = self._config.scheme, self._full_name(part, layer).removesuffix("weight")
        names = {ending: base + ending for ending in PARTS[scheme.layout]} if scheme else {}
        found = {ending: name for ending, name in names.items() if name in self._where}
        return found if scheme and PARTS[scheme.layout][0] in found else {}

    def quantized(self, part: str, layer: Optional[int]) -> Optional[Quantized]:
        """The codes of a matrix that the checkpoint holds quantized, or None."""
        found = self._packed(part, layer)
        if not found:
            return None
        parts = {}
        for ending, name in found.items():
            handle, file = self._where[name]
            integer = handle.get_slice(name).get_dtype() in ("I32", "I64")
            parts[ending] = handle.get_tensor(name) if integer else _float32(handle, name, file)
        return unpacked(parts, self._config.scheme, self._full_name(part, layer).removesuffix(".weight"))

    def _found(self, part: str, layer: Optional[int]) -> tuple[str, Any, Path]:
        name = self._full_name(part, layer)
        if name not in self._where:
            raise CorruptCheckpoint(f"The checkpoint has no tensor {name!r}.")
        return name, *self._where[name]

    def shape(self, part: str, layer: Optional[int] = None) -> tuple[int, ...]:
        """The tensor's shape, without reading it."""
        if packed := self._packed(part, layer):
            name = next(iter(packed.values()))
            return packed_shape(self._where[name][0].get_slice(name).get_shape(), self._config.scheme)
        name, handle, _ = self._found(part, layer)
        shape = tuple(handle.get_slice(name).get_shape())
        return shape[::-1] if self._gpt2 and layer is not None else shape

    def floats(self, part: str, layer: Optional[int] = None) -> np.ndarray:
        """The tensor in float32, matrices as W[N, K]."""
        if (tensor := self.quantized(part, layer)) is not None:
            return tensor.dequantize()
        name, handle, file = self._found(part, layer)
        values = _float32(handle, name, file)
        # GPT-2 keeps its matrices as [in, out].
        return np.ascontiguousarray(values.T) if self._gpt2 and layer is not None and values.ndim == 2 else values

    def weight(self, parts: Sequence[str], layer: Optional[int], dtype: str) -> Optional[Weight]:
        """The parts, one under the other, packed, or None where their formats differ and they must stay apart. dtype "auto":
        quantized matrices as they are, bfloat16 where the file holds that, else float32."""
        if dtype == "auto" and any(self._packed(part, layer) for part in parts):
            return joined([self.quantized(part, layer) for part in parts], self._full_name(parts[0], layer).removesuffix(".weight"))
        name = self._full_name(parts[0], layer)
        if dtype == "auto":
            found = [self._found(part, layer) for part in parts]
            kinds = {handle.get_slice(name).get_dtype() for name, handle, _ in found}
            dtype = "bfloat16" if kinds == {"BF16"} else "float32"
        return pack(np.concatenate([self.floats(part, layer) for part in parts]), dtype, name)


def _float32(handle: Any, name: str, file: Path) -> np.ndarray:
    """NumPy has no bfloat16: its bytes are read from the file as the header places them."""
    kind = handle.get_slice(name).get_dtype()
    if kind in ("F32", "F16", "F64"):
        return handle.get_tensor(name).astype(np.float32)
    if kind != "BF16":
        raise UnsupportedModel(f"Tensor {name!r} is stored as {kind}; F64, F32, F16 and BF16 can be loaded.")
    import json
    import struct

    with open(file, "rb") as raw:
        length = struct.unpack("<Q", raw.read(8))[0]
        entry = json.loads(raw.read(length))[name]
        start, end = entry["data_offsets"]
        raw.seek(8 + length + start)
        bits = np.frombuffer(raw.read(end - start), np.uint16)
    return (bits.astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])


class GgufSource:
    """A GGUF file. Blocks of Q4_0, Q4_1 and Q8_0 keep their codes; other quantized types are expanded exactly."""

    def __init__(self, file: GgufFile, config: ModelConfig):
        self._tensors, self._config = file.tensors, config

    def _full_name(self, part: str, layer: Optional[int]) -> str:
        return _name(_GGUF, "" if layer is None else f"blk.{layer}.", part)

    def has(self, part: str, layer: Optional[int] = None) -> bool:
        """True where the file holds this part."""
        return self._full_name(part, layer) in self._tensors

    def _tensor(self, part: str, layer: Optional[int]) -> Any:
        name = self._full_name(part, layer)
        if name not in self._tensors:
            raise CorruptCheckpoint(f"The GGUF file has no tensor {name!r}.")
        return self._tensors[name]

    def shape(self, part: str, layer: Optional[int] = None) -> tuple[int, ...]:
        """The tensor's shape, without reading it."""
        return self._tensor(part, layer).shape

    def _ordered(self, part: str, rows: np.ndarray) -> np.ndarray:
        """Rows of q and k from GGUF's order (pairs side by side) to ours (halves)."""
        part = part.removesuffix("_bias")
        if part not in ("q", "k") or not self._config.family.interleaved_rope:
            return rows
        heads = self._config.heads if part == "q" else self._config.kv_heads
        paired = rows.reshape(heads, self._config.head_dim // 2, 2, *rows.shape[1:])
        return np.ascontiguousarray(paired.swapaxes(1, 2)).reshape(rows.shape)

    def floats(self, part: str, layer: Optional[int] = None) -> np.ndarray:
        """The tensor in float32, matrices as W[N, K]."""
        return self._ordered(part, self._tensor(part, layer).float32())

    def weight(self, parts: Sequence[str], layer: Optional[int], dtype: str) -> Optional[Weight]:
        """The parts packed as one, or None where their formats differ and they must stay apart."""
        tensors = [self._tensor(part, layer) for part in parts]
        kinds = {tensor.kind for tensor in tensors}
        repack: Optional[Callable] = {Q4_0: from_q4_0, Q4_1: from_q4_1, Q8_0: from_q8_0}.get(tensors[0].kind)
        if dtype == "auto" and len(kinds) > 1:
            return None
        if dtype == "auto" and repack is not None:
            rows = [self._ordered(part, tensor.blocks) for part, tensor in zip(parts, tensors)]
            return repack(np.concatenate(rows) if len(rows) > 1 else rows[0], tensors[0].name)
        if dtype == "auto":
            dtype = "bfloat16" if kinds <= {BF16} else "float32"
        return pack(np.concatenate([self.floats(part, layer) for part in parts]), dtype, tensors[0].name)
