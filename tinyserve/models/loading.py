"""A model from its files: configuration, packed weights, decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

from ..errors import CorruptCheckpoint, InvalidRequest
from ..quantization.rounding import DTYPES
from .config import ModelConfig, from_gguf, from_hf
from .decoder import Decoder, DecoderWeights, LayerWeights, Linear, Norm
from .files import ModelFiles, resolve
from .rope import rope_table
from .sources import GgufSource, SafetensorsSource

DEFAULT_POSITIONS = 32768  # of a longer context, a caller asks for what it will use: the rotary table is built for that many
Source = Union[GgufSource, SafetensorsSource]


@dataclass(frozen=True)
class LoadedModel:
    """A decoder ready to run, and where it came from."""

    config: ModelConfig
    decoder: Decoder
    files: ModelFiles


def read_config(files: ModelFiles) -> ModelConfig:
    """The configuration alone, without touching the weights."""
    if files.kind == "hf":
        return from_hf(files.json("config.json"))
    tensors = files.gguf.tensors
    if "token_embd.weight" not in tensors:
        raise CorruptCheckpoint(f"{files.path.name} has no token embedding.")
    return from_gguf(files.gguf.metadata, tensors["token_embd.weight"].shape[0], "output.weight" not in tensors)


def load_model(model: str | Path | ModelFiles, ops: Any, dtype: str = "auto", max_positions: Optional[int] = None) -> LoadedModel:
    """Load a model for the kernel set `ops`.

    dtype "auto" keeps quantized matrices (GGUF blocks, GPTQ, AWQ, compressed-tensors) and bfloat16 as they are, everything else in
    float32; "float32", "bfloat16", "int8" and "int4" convert (rounding to nearest). Raises the errors of `errors` with one clear sentence.
    """
    if dtype not in ("auto", *DTYPES):
        raise InvalidRequest(f"dtype {dtype!r} is not one of auto, {', '.join(DTYPES)}.")
    files = model if isinstance(model, ModelFiles) else resolve(model)
    config = read_config(files)
    source: Source = GgufSource(files.gguf, config) if files.kind == "gguf" else SafetensorsSource(files.path, config)
    weights = _Builder(config, source, ops, dtype).weights(max_positions or min(config.context_length, DEFAULT_POSITIONS))
    return LoadedModel(config, Decoder(config, weights, ops), files)


class _Builder:
    """Reads one part after another, checks its shape, and hands it to the kernel set."""

    def __init__(self, config: ModelConfig, source: Source, ops: Any, dtype: str):
        self.config, self.source, self.ops, self.dtype = config, source, ops, dtype

    def weights(self, positions: int) -> DecoderWeights:
        config = self.config
        embedding = self._matrix("embedding", None, config.vocab, config.hidden).weight
        learned, cos_sin = None, None
        if config.family.learned_positions:
            learned = self._matrix("positions", None, config.context_length, config.hidden).weight
        else:
            divisors = self._host_vector("rope_freqs", None, config.head_dim // 2) if self.source.has("rope_freqs") else None
            cos_sin = self.ops.array(rope_table(config, positions, divisors))
        return DecoderWeights(
            embedding=embedding, layers=tuple(self._layer(i) for i in range(config.layers)),
            final_norm=self._norm("final_norm", None), positions=learned, cos_sin=cos_sin,
            head=embedding if config.tied else self._matrix("head", None, config.vocab, config.hidden).weight)

    def _layer(self, i: int) -> LayerWeights:
        config, heads = self.config, self.config.heads * self.config.head_dim
        kv = config.kv_heads * config.head_dim
        fused = self.source.has("qkv", i)
        qkv = (self._matrix("qkv", i, heads + 2 * kv, config.hidden),) if fused else self._fused(["q", "k", "v"], i, [heads, kv, kv])
        gated = config.family.activation == "silu"
        names = ["gate", "up"] if gated else ["up"]
        return LayerWeights(
            attention_norm=self._norm("attention_norm", i), qkv=qkv, output=self._matrix("output", i, config.hidden, heads),
            ffn_norm=self._norm("ffn_norm", i), up=self._fused(names, i, [config.ffn] * len(names)),
            down=self._matrix("down", i, config.hidden, config.ffn),
            q_norm=self._vector("q_norm", i, config.head_dim) if config.family.qk_norm else None,
            k_norm=self._vector("k_norm", i, config.head_dim) if config.family.qk_norm else None)

    def _fused(self, parts: Sequence[str], layer: int, rows: Sequence[int]) -> tuple[Linear, ...]:
        """One matrix for all parts, or one each where their formats differ."""
        for part, n in zip(parts, rows):
            self._check(part, layer, (n, self.config.hidden))
        packed = self.source.weight(parts, layer, self.dtype)
        if packed is None:
            return tuple(self._matrix(part, layer, n, self.config.hidden) for part, n in zip(parts, rows))
        return (Linear(self.ops.weight(packed), self._biases(parts, layer, rows)),)

    def _matrix(self, part: str, layer: Optional[int], rows: int, columns: int) -> Linear:
        self._check(part, layer, (rows, columns))
        return Linear(self.ops.weight(self.source.weight([part], layer, self.dtype)), self._biases([part], layer, [rows]))

    def _check(self, part: str, layer: Optional[int], wanted: tuple[int, ...]) -> str:
        """The part's name for a reader; refuses another shape than the configuration's before anything is read."""
        where = f"{part}{'' if layer is None else f' of layer {layer}'}"
        if (found := self.source.shape(part, layer)) != wanted:
            raise CorruptCheckpoint(f"The {where} has shape {list(found)}; the configuration asks for {list(wanted)}.")
        return where

    def _biases(self, parts: Sequence[str], layer: Optional[int], rows: Sequence[int]) -> Optional[Any]:
        """The biases of all parts in one vector, 0 for a part without; None where no part has one and none is due."""
        config = self.config
        due = [layer is not None and (config.family.every_bias or config.attention_bias and part in ("q", "k", "v")) for part in parts]
        held = [self.source.has(f"{part}_bias", layer) for part in parts]
        if not any(due) and not any(held):
            return None
        vectors = [self._host_vector(f"{part}_bias", layer, n) if one or other else np.zeros(n, np.float32)
                   for part, n, one, other in zip(parts, rows, due, held)]
        return self.ops.array(np.concatenate(vectors))

    def _norm(self, part: str, layer: Optional[int]) -> Norm:
        bias = f"{part}_bias"
        return Norm(self._vector(part, layer, self.config.hidden),
                    self._vector(bias, layer, self.config.hidden) if self.config.family.norm == "layer" else None)

    def _vector(self, part: str, layer: Optional[int], size: int) -> Any:
        return self.ops.array(self._host_vector(part, layer, size))

    def _host_vector(self, part: str, layer: Optional[int], size: int) -> np.ndarray:
        where = self._check(part, layer, (size,))
        values = np.ascontiguousarray(self.source.floats(part, layer), np.float32)
        if not np.isfinite(values).all():
            raise CorruptCheckpoint(f"The {where} holds NaN or infinity.")
        return values
