"""The decoder: one forward pass for every supported family, written as calls of the op set.

Only ops, slices and reshapes appear in `forward`, so a kernel set may record it and replay it, and the same file serves every
stage of the course: what differs is the kernels, the caches and the weights that are passed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ..kernels.layouts import Weight
from .batch import ForwardBatch
from .config import ModelConfig

Array = Any


@dataclass(frozen=True)
class Linear:
    """y = x W^T + bias."""

    weight: Weight
    bias: Optional[Array] = None


@dataclass(frozen=True)
class Norm:
    """RMS norm, or layer norm where there is a bias."""

    weight: Array
    bias: Optional[Array] = None


@dataclass(frozen=True)
class LayerWeights:
    """One block. `qkv` and `up` hold one fused matrix, or several where their formats differ; `up` is gate then up for SiLU."""

    attention_norm: Norm
    qkv: tuple[Linear, ...]
    output: Linear
    ffn_norm: Norm
    up: tuple[Linear, ...]
    down: Linear
    q_norm: Optional[Array] = None
    k_norm: Optional[Array] = None


@dataclass(frozen=True)
class DecoderWeights:
    """Everything that `Decoder` reads. `positions` is the learned position table, `cos_sin` the rotary one."""

    embedding: Weight
    layers: tuple[LayerWeights, ...]
    final_norm: Norm
    head: Weight
    positions: Optional[Weight] = None
    cos_sin: Optional[Array] = None

    @property
    def matrices(self) -> list[Weight]:
        """The weights that a decode step reads once each, the output layer's included."""
        linears = [part for layer in self.layers for part in (*layer.qkv, layer.output, *layer.up, layer.down)]
        return [part.weight for part in linears] + [self.head]


class Decoder:
    """A decoder-only transformer on a kernel set."""

    def __init__(self, config: ModelConfig, weights: DecoderWeights, ops: Any):
        self.config, self.weights, self.ops = config, weights, ops

    def forward(self, batch: ForwardBatch, caches: Sequence[tuple[Array, Array]]) -> Array:
        """Store this step's keys and values in `caches` (one pair a layer) and return logits[R, V] for `logit_rows`."""
        ops, weights = self.ops, self.weights
        x = ops.embed(batch.token_ids, weights.embedding)
        if weights.positions is not None:
            x = ops.add(x, ops.embed(batch.positions, weights.positions))
        for layer, (keys, values) in zip(weights.layers, caches):
            x = ops.add(x, self._attention(layer, self._norm(x, layer.attention_norm), batch, keys, values))
            x = ops.add(x, self._ffn(layer, self._norm(x, layer.ffn_norm)))
        x = self._norm(ops.take_rows(x, batch.logit_rows), weights.final_norm)
        return ops.linear(x, weights.head)

    def _norm(self, x: Array, norm: Norm) -> Array:
        if norm.bias is None:
            return self.ops.rms_norm(x, norm.weight, self.config.eps)
        return self.ops.layer_norm(x, norm.weight, norm.bias, self.config.eps)

    def _project(self, x: Array, parts: Sequence[Linear], sizes: Sequence[int]) -> list[Array]:
        """x times each part; a fused matrix is cut into columns of `sizes`."""
        if len(parts) == len(sizes):
            return [self.ops.linear(x, part.weight, part.bias) for part in parts]
        y, outputs, start = self.ops.linear(x, parts[0].weight, parts[0].bias), [], 0
        for size in sizes:
            outputs.append(y[:, start:start + size])
            start += size
        return outputs

    def _attention(self, layer: LayerWeights, x: Array, batch: ForwardBatch, keys: Array, values: Array) -> Array:
        config, ops, tokens = self.config, self.ops, x.shape[0]
        d, sizes = config.head_dim, [config.heads * config.head_dim, *[config.kv_heads * config.head_dim] * 2]
        q, k, v = (part.reshape(tokens, -1, d) for part in self._project(x, layer.qkv, sizes))
        if layer.q_norm is not None:
            q, k = ops.rms_norm(q, layer.q_norm, config.eps), ops.rms_norm(k, layer.k_norm, config.eps)
        if self.weights.cos_sin is not None:
            q, k = ops.rope(q, k, batch.positions, self.weights.cos_sin)
        ops.store_kv(k, v, batch.slots, keys, values)
        y = ops.attention(q, keys, values, batch.block_tables, batch.query_start, batch.context_lengths, d**-0.5, config.window)
        return ops.linear(y.reshape(tokens, -1), layer.output.weight, layer.output.bias)

    def _ffn(self, layer: LayerWeights, x: Array) -> Array:
        ops, width = self.ops, self.config.ffn
        if self.config.family.activation == "silu":
            y = ops.silu_mul(*self._project(x, layer.up, [width, width]))
        else:
            y = ops.gelu(*self._project(x, layer.up, [width]))
        return ops.linear(y, layer.down.weight, layer.down.bias)
