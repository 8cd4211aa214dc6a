"""The op set: the same names, shapes and meanings on every device.

T: tokens of all scheduled sequences laid end to end. S: sequences. H: hidden size. Hq, Hk: query and key/value heads (Hq a
multiple of Hk). D: head size. B: cache blocks of P positions each; slot = block * P + offset. Activations are float32 on the
CPU; integers are int32. Arrays are NumPy on the CPU kernel set and torch tensors on the reference and CUDA ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional, Protocol

import numpy as np

from .layouts import Weight

Array = Any

OPS = (
    "embed", "rms_norm", "layer_norm", "add", "rope", "silu_mul", "gelu", "linear", "take_rows", "store_kv", "attention",
    "sample", "log_softmax",
)


class KernelSet(Protocol):
    """One implementation of the op set, and the few things that a caller needs to feed it."""

    name: str
    kv_dtypes: tuple[str, ...]  # what `new_cache` makes

    def embed(self, ids: Array, weight: Weight) -> Array:
        """ids[T] -> rows of weight [T, H] in float32."""

    def rms_norm(self, x: Array, weight: Array, eps: float) -> Array:
        """x[..., H] * rsqrt(mean(x^2) + eps) * weight[H] (Zhang & Sennrich 2019)."""

    def layer_norm(self, x: Array, weight: Array, bias: Array, eps: float) -> Array:
        """(x - mean) * rsqrt(var + eps) * weight + bias over the last axis (Ba et al. 2016)."""

    def add(self, x: Array, y: Array) -> Array:
        """x + y, same shape."""

    def rope(self, q: Array, k: Array, positions: Array, cos_sin: Array) -> tuple[Array, Array]:
        """Rotate q[T,Hq,D] and k[T,Hk,D] by position; pairs are (i, i + D/2). cos_sin[positions, D] holds D/2 cosines, then
        D/2 sines, for each absolute position (Su et al. 2021)."""

    def silu_mul(self, gate: Array, up: Array) -> Array:
        """gate * sigmoid(gate) * up, [T,F] each (rows may be strided)."""

    def gelu(self, x: Array) -> Array:
        """The tanh form: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))."""

    def linear(self, x: Array, weight: Weight, bias: Optional[Array] = None) -> Array:
        """x[T,K] @ W[N,K].T + bias[N] -> [T,N]. For quantized weights x is rounded to INT8 per group of 32 (scale = max|x|/127)
        and the products inside a group are integers."""

    def take_rows(self, x: Array, rows: Array) -> Array:
        """x[T,H], rows[R] -> x[rows]."""

    def store_kv(self, k: Array, v: Array, slots: Array, key_cache: Array, value_cache: Array) -> None:
        """Write k, v[T,Hk,D] at slots[T] of the caches [B,P,Hk,D]."""

    def attention(self, q: Array, key_cache: Array, value_cache: Array, block_tables: Array, query_start: Array,
                  context_lengths: Array, scale: float, window: int = 0) -> Array:
        """Causal attention over the paged cache -> [T,Hq,D].

        Sequence s owns rows query_start[s]:query_start[s+1] of q, the last rows of its context of context_lengths[s] tokens
        (this step's keys are already stored); block_tables[s, j] is the block of positions j*P..j*P+P-1. A row at position p
        sees positions max(0, p - window + 1)..p (window 0: all). Prefill, chunks, decode and verification are this one op.
        """

    def sample(self, logits: Array, temperature: Array, top_k: Array, top_p: Array, min_p: Array, uniforms: Array) -> Array:
        """logits[S,V] -> ids[S]; -1 for a row that holds NaN or +inf, or nothing but -inf.

        Temperature, then top_k (0: off), top_p (1: off), min_p (0: off); temperature 0 is argmax, the lowest id on ties. The draw
        inverts the kept distribution, in order of falling probability (ties: rising id), at uniforms[S] in [0, 1)."""

    def log_softmax(self, logits: Array) -> Array:
        """Over the last axis, [S,V] -> [S,V]."""

    def array(self, host: np.ndarray) -> Array:
        """The same values where this kernel set can read them."""

    def numpy(self, array: Array) -> np.ndarray:
        """The same values in host memory."""

    def weight(self, packed: Weight) -> Weight:
        """A packed weight moved to where this kernel set can read it."""

    def new_cache(self, blocks: int, block_size: int, heads: int, head_dim: int, dtype: str) -> tuple[Array, Array]:
        """Zeroed key and value caches [B,P,Hk,D] of one layer, in the memory order that suits the kernels: what is promised
        is the shape, not the strides. dtype: one of `kv_dtypes`; in 'int8' each head of a slot is rounded to round(127 x / max|x|) and
        the float32 scales lie beside the codes that the array shows."""

    def recorder(self) -> Optional[Recorder]:
        """How to record a step and replay it without Python in between, or None."""


class Recorder(Protocol):
    """Records the ops called inside `record`, to run them again on the same arrays with new contents (CUDA graphs' idea)."""

    def record(self, step: Callable[[], Array]) -> Callable[[], Array]:
        """Call `step` once without computing; the result replays it and returns the same output array each time."""
