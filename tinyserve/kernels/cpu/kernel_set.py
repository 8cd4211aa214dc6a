"""The op set on the CPU: checks shapes, lays out arguments, calls kernels."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from ..layouts import GROUP, TILE, DenseWeight, Int4Weight, Int8Weight, Weight
from . import attention, attention_tiles, dense, elementwise, embedding, linear, probes, sampling, store
from .dot import VARIANT
from .program import Machine, touched_as_used
from .team import Team, default_threads

_KV_TYPES = {"float32": np.float32, "float16": np.float16, "int8": np.int8}
_CHUNKS = 8  # chunks of work a thread, so that a slow core leaves little behind


def _contiguous_last(name: str, x: np.ndarray) -> np.ndarray:
    if x.dtype != np.float32 or (x.size and x.strides[-1] != 4):
        raise ValueError(f"{name} must be float32 with neighbouring values in its last axis; it is {x.dtype} with strides {x.strides}.")
    return x


def _int32(name: str, x: np.ndarray) -> np.ndarray:
    if x.dtype != np.int32 or not x.flags.c_contiguous:
        raise ValueError(f"{name} must be a contiguous int32 array; it is {x.dtype}.")
    return x


def _rows(x: np.ndarray) -> np.ndarray:
    """[..., H] as [rows, H] without a copy."""
    if x.ndim == 2:
        return x
    flat = x.reshape(-1, x.shape[-1])
    if not np.shares_memory(flat, x):
        raise ValueError(f"rows of an array with strides {x.strides} are not evenly spaced; pass a contiguous array.")
    return flat


class CpuKernels:
    """`api.KernelSet` on NumPy arrays. `threads`: how many run together (default: the processors this process may use)."""

    name = "cpu"
    variant = VARIANT
    kv_dtypes = tuple(_KV_TYPES)

    def __init__(self, threads: Optional[int] = None):
        self.threads = threads or default_threads()
        self._machine = Machine(Team(self.threads))
        self._floats: dict[float, np.ndarray] = {}

    # --- housekeeping ---

    def array(self, host: np.ndarray) -> np.ndarray:
        return host

    def numpy(self, array: np.ndarray) -> np.ndarray:
        return array

    def weight(self, packed: Weight) -> Weight:
        return packed

    def new_cache(self, blocks: int, block_size: int, heads: int, head_dim: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
        """Keys lie [Hk,B,D,P] and values [Hk,B,P,D], so that one head reads one stream; both are returned as [B,P,Hk,D] views.

        INT8: as `attention_int8` describes it; the view of the keys has the right shape, their codes another order in a block."""
        if dtype not in _KV_TYPES:
            raise ValueError(f"KV dtype {dtype!r} is not one of {', '.join(_KV_TYPES)}.")
        if block_size < 1 or block_size & (block_size - 1):
            raise ValueError(f"block size {block_size} is not a power of two.")
        if dtype == "int8" and (block_size < 16 or head_dim % 16):
            raise ValueError("An INT8 cache needs blocks of 16 positions or more and heads of a multiple of 16; they are "
                             f"{block_size} and {head_dim}.")
        size = head_dim * block_size
        keys, values = (touched_as_used((heads, blocks, size + _scale_bytes(dtype, block_size)), _KV_TYPES[dtype])[:, :, :size]
                        for _ in range(2))
        return (keys.reshape(heads, blocks, head_dim, block_size).transpose(1, 3, 0, 2),
                values.reshape(heads, blocks, block_size, head_dim).transpose(1, 2, 0, 3))

    def recorder(self) -> Machine:
        return self._machine

    def read_bandwidth(self) -> float:
        """Bytes a second that these threads read from memory, measured once."""
        return probes.read_bandwidth(self._machine.team)

    def dot_rate(self) -> float:
        """Operations a second of the INT8 dot instruction on these threads (a product is two), measured once."""
        return probes.dot_rate(self._machine.team)

    def _float(self, value: float) -> np.ndarray:
        """A float where a kernel can read it, kept as long as this kernel set."""
        return self._floats.setdefault(float(value), np.array([value], np.float32))

    def _chunk(self, units: int) -> int:
        return max(1, units // (self.threads * _CHUNKS))

    # --- row-wise ops ---

    def embed(self, ids: np.ndarray, weight: Weight) -> np.ndarray:
        ids = _int32("ids", ids)
        y = self._machine.empty((len(ids), weight.columns))
        if isinstance(weight, DenseWeight):
            kernel = embedding.embed_bfloat16 if weight.data.dtype == np.uint16 else embedding.embed_float32
            parts = (weight.data, None, None)
        elif isinstance(weight, Int8Weight):
            kernel, parts = embedding.embed_int8, (weight.codes, weight.scales, None)
        else:
            kernel, parts = embedding.embed_int4, (weight.codes, weight.scales, weight.minimums)
        self._machine.call(kernel, self._chunk(len(ids)), len(ids), weight.columns, *parts, ids, y)
        return y

    def rms_norm(self, x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
        return self._norm(elementwise.rms_norm, x, weight, None, eps)

    def layer_norm(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float) -> np.ndarray:
        return self._norm(elementwise.layer_norm, x, weight, bias, eps)

    def _norm(self, kernel: Any, x: np.ndarray, weight: np.ndarray, bias: Optional[np.ndarray], eps: float) -> np.ndarray:
        y = self._machine.empty(x.shape)
        if x.ndim == 3:  # one norm a head: tokens may be strided, heads are not
            x = _contiguous_last("x", x)
            for head in range(x.shape[1]):
                self._norm_rows(kernel, x[:, head], weight, bias, eps, y[:, head])
            return y
        self._norm_rows(kernel, _contiguous_last("x", x), weight, bias, eps, y)
        return y

    def _norm_rows(self, kernel: Any, x: np.ndarray, weight: np.ndarray, bias: Optional[np.ndarray], eps: float, y: np.ndarray) -> None:
        rows, size = x.shape
        self._machine.call(kernel, self._chunk(rows), rows, size, x, x.strides[0], weight, y, y.strides[0], self._float(eps), bias)

    def _elements(self, kernel: Any, x: np.ndarray, other: np.ndarray) -> np.ndarray:
        if x.shape != other.shape:
            raise ValueError(f"shapes {x.shape} and {other.shape} differ.")
        y = self._machine.empty(x.shape)
        a, b, c = _rows(_contiguous_last("x", x)), _rows(_contiguous_last("y", other)), _rows(y)
        self._machine.call(kernel, self._chunk(len(a)), *a.shape, a, a.strides[0], b, b.strides[0], c, c.strides[0])
        return y

    def add(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self._elements(elementwise.add_rows, x, y)

    def silu_mul(self, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
        return self._elements(elementwise.silu_mul, gate, up)

    def gelu(self, x: np.ndarray) -> np.ndarray:
        return self._elements(elementwise.gelu, x, x)

    def take_rows(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        x, rows = _contiguous_last("x", x), _int32("rows", rows)
        y = self._machine.empty((len(rows), x.shape[1]))
        self._machine.call(elementwise.take_rows, self._chunk(len(rows)), len(rows), x.shape[1], x, x.strides[0], rows, y)
        return y

    def rope(self, q: np.ndarray, k: np.ndarray, positions: np.ndarray, cos_sin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._rotate(q, positions, cos_sin), self._rotate(k, positions, cos_sin)

    def _rotate(self, x: np.ndarray, positions: np.ndarray, cos_sin: np.ndarray) -> np.ndarray:
        tokens, heads, d = _contiguous_last("q or k", x).shape
        y = self._machine.empty(x.shape)
        self._machine.call(elementwise.rope, self._chunk(tokens), tokens, heads, d // 2, x, x.strides[0], x.strides[1],
                           _int32("positions", positions), cos_sin, y)
        return y

    # --- linear ---

    def linear(self, x: np.ndarray, weight: Weight, bias: Optional[np.ndarray] = None) -> np.ndarray:
        x = _contiguous_last("x", x)
        if x.ndim != 2 or x.shape[1] != weight.columns:
            raise ValueError(f"x{list(x.shape)} does not fit a weight of {weight.columns} columns.")
        y = self._machine.empty((len(x), weight.rows))
        if isinstance(weight, DenseWeight):
            kernel = dense.linear_bfloat16 if weight.data.dtype == np.uint16 else dense.linear_float32
            size, parts, scratch = weight.columns, (weight.data, None, None), (None, None)
        else:
            size = weight.columns // GROUP
            kernel = linear.linear_int4 if isinstance(weight, Int4Weight) else linear.linear_int8
            parts = (weight.codes, weight.scales, getattr(weight, "minimums", None))
            copies = self.threads if len(x) <= linear.ROWS_EACH else 1
            scratch = (self._machine.empty((copies, len(x), weight.columns), np.int8),
                       self._machine.empty((copies, len(x), size, linear.SCALES), np.uint8))
        bias = None if bias is None else self._padded(bias)
        self._machine.call(kernel, x, x.strides[0], len(x), size, weight.rows, *parts, None, bias, y, y.strides[0], *scratch,
                           self._chunk(-(-weight.rows // TILE)))
        return y

    def _padded(self, bias: np.ndarray) -> np.ndarray:
        """The kernel adds 16 floats at a time."""
        if len(bias) % TILE == 0:
            return bias
        padded = np.zeros(-(-len(bias) // TILE) * TILE, np.float32)
        padded[: len(bias)] = bias
        return padded

    # --- attention ---

    def store_kv(self, k: np.ndarray, v: np.ndarray, slots: np.ndarray, key_cache: np.ndarray, value_cache: np.ndarray) -> None:
        tokens, heads, d = _contiguous_last("k", k).shape
        v = _contiguous_last("v", v)
        self._machine.call(store.store_kv, k, k.strides[0], k.strides[1], *_cache_arguments(key_cache, value_cache),
                           _int32("slots", slots), v, v.strides[0], v.strides[1], tokens, heads, d, key_cache.shape[1])

    def attention(self, q: np.ndarray, key_cache: np.ndarray, value_cache: np.ndarray, block_tables: np.ndarray,
                  query_start: np.ndarray, context_lengths: np.ndarray, scale: float, window: int = 0) -> np.ndarray:
        tokens, heads, d = _contiguous_last("q", q).shape
        kv_heads, p = key_cache.shape[2], key_cache.shape[1]
        if heads % kv_heads:
            raise ValueError(f"{heads} query heads are not a multiple of {kv_heads} key/value heads.")
        y = self._machine.empty((tokens, heads, d))
        padded, group = -(-d // 16) * 16, heads // kv_heads
        vectors = max(attention.VECTORS, min(tokens, attention.FEW_ROWS) * group)
        record = padded * 4 + 64
        each = (attention_tiles.TILE * padded + vectors * attention_tiles.SPLIT) * 4 + 2 * vectors * record
        splits = -(-block_tables.shape[1] * p // attention_tiles.SPLIT)
        few = tokens <= attention.FEW_ROWS
        partials = self._machine.empty((splits * tokens * heads * record,), np.uint8) if few else None
        self._machine.call(
            attention.attention, q, q.strides[0], q.strides[1], *_cache_arguments(key_cache, value_cache),
            _int32("block_tables", block_tables), block_tables.shape[1], _int32("query_start", query_start),
            _int32("context_lengths", context_lengths), len(context_lengths), heads, kv_heads, d, p, self._float(scale), window, y,
            self._machine.empty((self.threads * each,), np.uint8), each, partials, splits, tokens)
        return y

    # --- sampling ---

    def sample(self, logits: np.ndarray, temperature: np.ndarray, top_k: np.ndarray, top_p: np.ndarray, min_p: np.ndarray,
               uniforms: np.ndarray) -> np.ndarray:
        rows, size = _contiguous_last("logits", logits).shape
        ids = self._machine.empty((rows,), np.int32)
        floats = [np.ascontiguousarray(x, np.float32) for x in (temperature, top_p, min_p, uniforms)]
        top_k, each = np.ascontiguousarray(top_k, np.int32), -(-size // 16) * 64
        self._machine.call(sampling.sample, logits, logits.strides[0], rows, size, floats[0], top_k, *floats[1:], ids,
                           self._machine.empty((self.threads * each,), np.uint8), each)
        return ids

    def log_softmax(self, logits: np.ndarray) -> np.ndarray:
        rows, size = _contiguous_last("logits", logits).shape
        y = self._machine.empty((rows, size))
        self._machine.call(sampling.log_softmax, logits, logits.strides[0], rows, size, y)
        return y


def _scale_bytes(dtype: str, block_size: int) -> int:
    """Bytes behind the elements of a head's block."""
    return 4 * block_size if dtype == "int8" else 0


def _cache_arguments(keys: np.ndarray, values: np.ndarray) -> tuple[Any, ...]:
    """The two caches, bytes a block and a head, bytes an element (1 means INT8); refuses any memory order but `new_cache`'s."""
    blocks, p, heads, d = keys.shape
    size = keys.itemsize
    block = d * p * size + _scale_bytes(keys.dtype.name, p)
    head = blocks * block
    if values.shape != keys.shape or keys.strides != (block, size, head, p * size) or values.strides != (block, d * size, head, size):
        raise ValueError("the caches are not from this kernel set's new_cache.")
    return keys, values, block, head, size
