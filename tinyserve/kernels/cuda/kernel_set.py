"""The op set on CUDA kernels: checks, results, launches. The same class drives a GPU and the simulator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Optional

import numpy as np

from .. import layouts
from . import elementwise, norms
from .arguments import check_heads, check_indices, check_rows, check_same, refuse
from .attention.paged import Kept, PagedAttention
from .header import ceil
from .kv_int8 import row_bytes, store_kv_int8
from .linear.activations import quantize
from .linear.dense import dense
from .linear.embed import embed
from .linear.matmul import matmul
from .linear.matvec import matvec
from .linear.packing import PackedWeight, pack
from .memory import SimulatedMemory, TorchMemory
from .sampling import sample

MATVEC_TOKENS = 8
BLOCK = 128


@dataclass(frozen=True)
class DenseRows:
    """W[rows, columns] in row order, in one element format."""

    data: Any
    form: str
    rows: int
    columns: int

    @property
    def nbytes(self) -> int:
        return self.data.nbytes


class CudaKernels:
    """`api.KernelSet` on CUDA. memory: `SimulatedMemory()` or `TorchMemory()`; activations: the element format between the ops
    ("float32", "float16", "bfloat16"). Rows must be multiples of 8 wide, quantized weights of 32; heads 16, 32, 64, 128 or 256."""

    threads = 1
    kv_dtypes = ("float32", "float16", "bfloat16", "int8")

    def __init__(self, memory: Any, activations: str = "float32"):
        self.memory, self.activations, self.name = memory, activations, memory.name
        self._attention = PagedAttention(memory)
        self._no_bias, self._no_order = memory.array(np.zeros(0, np.float32)), memory.array(np.zeros(0, np.int32))
        self.array, self.numpy = memory.array, memory.numpy

    def _launch(self, kernel: Any, units: int, *arguments: Any) -> None:
        """Launch enough CTAs of 128 threads for `units` threads."""
        if units:
            self.memory.launch(kernel, ceil(units, BLOCK), BLOCK, *arguments)

    def weight(self, packed: layouts.Weight) -> Any:
        if not isinstance(packed, layouts.DenseWeight):
            return self.upload(pack(packed))
        matrix = layouts.unpack_dense(packed)
        form = "bfloat16" if matrix.dtype == np.uint16 else "float32"
        if self.name == "cuda":
            torch, data = self.memory.torch, self.array(matrix)
            data = (data.view(torch.bfloat16) if form == "bfloat16" else data).to(getattr(torch, self.activations))
            return DenseRows(data, self.activations, packed.rows, packed.columns)
        return DenseRows(self.array(matrix), form, packed.rows, packed.columns)

    def upload(self, mine: PackedWeight) -> PackedWeight:
        """A packed weight where the kernels can read it."""
        order = None if mine.order is None else self.array(mine.order)
        return replace(mine, codes=self.array(mine.codes), scales=self.array(mine.scales), order=order)

    def new_cache(self, blocks: int, block_size: int, heads: int, head_dim: int, dtype: str) -> tuple[Any, Any]:
        refuse(dtype not in self.kv_dtypes, f"KV dtype {dtype!r} is not one of {', '.join(self.kv_dtypes)}.")
        refuse(block_size < 1 or block_size & (block_size - 1), f"block size {block_size} is not a power of two.")
        if dtype == "int8":
            buffers = [self.memory.zeros((blocks, block_size, row_bytes(heads, head_dim)), dtype) for _ in range(2)]
            return tuple(self.memory.codes_of_slots(buffer, heads, head_dim) for buffer in buffers)
        shape = (blocks, block_size, heads, head_dim)
        return self.memory.zeros(shape, dtype), self.memory.zeros(shape, dtype)

    def _slots(self, cache: Any) -> Any:
        """A cache [B, P, Hk, D] as one row a slot."""
        blocks, size, heads, head_dim = cache.shape
        if self.memory.form(cache) == "int8":
            return self.memory.bytes_of_slots(cache, row_bytes(heads, head_dim))
        return cache.reshape(blocks * size, heads * head_dim)

    def recorder(self) -> None:
        """None: every op is launched as it is called."""
        return None

    # --- rows ---

    def embed(self, ids: Any, weight: Any) -> Any:
        check_indices(self.memory, "ids", ids, weight.rows)
        refuse(getattr(weight, "order", None) is not None, "an embedding cannot have its columns in another order (act-order).")
        out = self.memory.empty((len(ids), weight.columns), self.activations)
        if isinstance(weight, DenseRows):
            kernel = elementwise.take_rows(weight.form, self.activations)
            self._launch(kernel, out.shape[0] * out.shape[1] // 8, weight.data, ids, out)
        else:
            kernel = embed(weight.bits, weight.group, self.activations)
            self._launch(kernel, out.shape[0] * out.shape[1] // 4, weight.codes, weight.scales, ids, out)
        return out

    def take_rows(self, x: Any, rows: Any) -> Any:
        form = check_rows(self.memory, "x", x)
        check_indices(self.memory, "rows", rows, len(x))
        out = self.memory.empty((len(rows), x.shape[1]), form)
        self._launch(elementwise.take_rows(form, form), out.shape[0] * out.shape[1] // 8, x, rows, out)
        return out

    def rms_norm(self, x: Any, weight: Any, eps: float) -> Any:
        return self._norm(norms.rms_norm, x, eps, weight)

    def layer_norm(self, x: Any, weight: Any, bias: Any, eps: float) -> Any:
        return self._norm(norms.layer_norm, x, eps, weight, bias)

    def _norm(self, factory: Any, x: Any, eps: float, *vectors: Any) -> Any:
        form = check_rows(self.memory, "x", x)
        for vector in vectors:
            refuse(tuple(vector.shape) != (x.shape[-1],), f"weight or bias has shape {tuple(vector.shape)}; x has {x.shape[-1]} columns.")
        rows, out = x.reshape(-1, x.shape[-1]), self.memory.empty(tuple(x.shape), form)
        if len(rows):
            self.memory.launch(factory(form), len(rows), BLOCK, rows, *(vector.reshape(1, -1) for vector in vectors), np.float32(eps),
                               out.reshape(-1, x.shape[-1]))
        return out

    def add(self, x: Any, y: Any) -> Any:
        return self._pointwise("add", x, y)

    def silu_mul(self, gate: Any, up: Any) -> Any:
        return self._pointwise("silu_mul", gate, up)

    def gelu(self, x: Any) -> Any:
        return self._pointwise("gelu", x, x)

    def _pointwise(self, operation: str, x: Any, y: Any) -> Any:
        check_same(operation, x, y)
        form = check_rows(self.memory, "x", x)
        check_rows(self.memory, "y", y, (form,))
        out, columns = self.memory.empty(tuple(x.shape), form), x.shape[-1]
        a, b, c = (array.reshape(-1, columns) for array in (x, y, out))
        self._launch(elementwise.pointwise(operation, form), c.shape[0] * columns // 8, a, b, c)
        return out

    def rope(self, q: Any, k: Any, positions: Any, cos_sin: Any) -> tuple[Any, Any]:
        check_indices(self.memory, "positions", positions, len(cos_sin))
        return self._rotate("q", q, positions, cos_sin), self._rotate("k", k, positions, cos_sin)

    def _rotate(self, name: str, x: Any, positions: Any, cos_sin: Any) -> Any:
        form = check_rows(self.memory, name, x, multiple=16)
        refuse(x.shape[-1] != cos_sin.shape[1], f"{name} has heads of {x.shape[-1]}, cos_sin is {cos_sin.shape[1]} wide.")
        out, tokens = self.memory.empty(tuple(x.shape), form), x.shape[0]
        a, b = x.reshape(tokens, -1), out.reshape(tokens, -1)
        self._launch(elementwise.rope(form), tokens * a.shape[1] // 16, a, positions, cos_sin, b)
        return out

    # --- products ---

    def linear(self, x: Any, weight: Any, bias: Optional[Any] = None) -> Any:
        form = check_rows(self.memory, "x", x)
        refuse(x.shape[1] != weight.columns, f"x has {x.shape[1]} columns; the weight has {weight.columns}.")
        bias = self._no_bias if bias is None else bias
        out = self.memory.empty((len(x), weight.rows), form)
        if not len(x):
            return out
        if isinstance(weight, DenseRows):
            self._dense(x, weight, bias, out, form)
        else:
            self._quantized(x, weight, bias, out, form)
        return out

    def _dense(self, x: Any, weight: DenseRows, bias: Any, out: Any, form: str) -> None:
        if self.name == "cuda" and len(x) > 1:
            torch = self.memory.torch
            torch.mm(x, weight.data.T, out=out)
            if len(bias):
                out += bias
            return
        self.memory.launch(dense(form, weight.form), (ceil(weight.rows, 4), len(x)), BLOCK, x, weight.data, bias, out)

    def _quantized(self, x: Any, weight: PackedWeight, bias: Any, out: Any, form: str) -> None:
        refuse(weight.columns % 32, f"the weight has {weight.columns} columns; a quantized one needs a multiple of 32.")
        tokens, blocks = len(x), ceil(weight.columns, 128)
        codes, scales = self.memory.empty((tokens, blocks, 4, 8), "uint32"), self.memory.empty((tokens, 4 * blocks, 2), "float32")
        order = self._no_order if weight.order is None else weight.order
        self._launch(quantize(form, weight.order is not None), tokens * blocks * 16, x, order, codes, scales)
        arguments = weight.codes, weight.scales, codes, scales, bias, out
        if tokens <= MATVEC_TOKENS:
            self.memory.launch(matvec(weight.bits, weight.group, tokens, form), ceil(weight.rows, 8), BLOCK, *arguments)
        else:
            tiles = min(4, ceil(tokens, 16))
            grid = ceil(weight.rows, 32), ceil(tokens, 16 * tiles)
            self.memory.launch(matmul(weight.bits, weight.group, tiles, form), grid, BLOCK, *arguments)

    # --- attention ---

    def store_kv(self, k: Any, v: Any, slots: Any, key_cache: Any, value_cache: Any) -> None:
        check_same("k and v", k, v)
        form = check_rows(self.memory, "k", k)
        check_rows(self.memory, "v", v, (form,))
        blocks, size, heads, head_dim = key_cache.shape
        check_indices(self.memory, "slots", slots, blocks * size)
        refuse(tuple(k.shape[1:]) != (heads, head_dim), f"k has heads {tuple(k.shape[1:])}; the cache has {(heads, head_dim)}.")
        cache_form = check_rows(self.memory, "key_cache", key_cache, self.kv_dtypes)
        kernel = store_kv_int8(form, heads, head_dim) if cache_form == "int8" else elementwise.store_kv(form, cache_form)
        flat = [array.reshape(len(slots), -1) for array in (k, v)] + [slots]
        self._launch(kernel, len(slots) * heads * head_dim // 8, *flat, self._slots(key_cache), self._slots(value_cache))

    def attention(self, q: Any, key_cache: Any, value_cache: Any, block_tables: Any, query_start: Any, context_lengths: Any,
                  scale: float, window: int = 0) -> Any:
        check_rows(self.memory, "q", q)
        check_heads(q.shape[1], key_cache.shape[2], q.shape[2])
        refuse(q.shape[2] != key_cache.shape[3], f"q has heads of {q.shape[2]}, the cache of {key_cache.shape[3]}.")
        check_same("key_cache and value_cache", key_cache, value_cache)
        check_indices(self.memory, "block_tables", block_tables, key_cache.shape[0])
        check_indices(self.memory, "query_start", query_start, len(q) + 1)
        check_indices(self.memory, "context_lengths", context_lengths, block_tables.shape[1] * key_cache.shape[1] + 1)
        heads, cache_form = key_cache.shape[2], self.memory.form(key_cache)
        kept = Kept(f"int8x{heads}" if cache_form == "int8" else cache_form, key_cache.shape[1], heads)
        caches = self._slots(key_cache), self._slots(value_cache)
        return self._attention(q, caches, kept, (block_tables, query_start, context_lengths), scale, window)

    # --- sampling ---

    def sample(self, logits: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any, uniforms: Any) -> Any:
        memory, threads = self.memory, self.memory.sampling_threads
        logits = memory.cast(logits, "float32")
        options = [memory.cast(temperature, "float32"), memory.cast(top_k, "int32")]
        options += [memory.cast(x, "float32") for x in (top_p, min_p, uniforms)]
        ids, weights = memory.empty((len(logits),), "int32"), memory.empty(tuple(logits.shape), "float32")
        if len(logits):
            memory.launch(sample(threads), len(logits), threads, logits, *options, weights, ids)
        return ids

    def log_softmax(self, logits: Any) -> Any:
        logits = self.memory.cast(logits, "float32")
        out = self.memory.empty(tuple(logits.shape), "float32")
        if len(logits):
            self.memory.launch(norms.log_softmax, len(logits), BLOCK, logits, out)
        return out


def simulated_kernels(activations: str = "float32") -> CudaKernels:
    """The op set in the simulator, on NumPy arrays; call `kernels.cuda.simulate()` first."""
    return CudaKernels(SimulatedMemory(), activations)


def gpu_kernels(activations: str = "float16") -> CudaKernels:
    """The op set on the current CUDA device, on torch tensors."""
    return CudaKernels(TorchMemory(), activations)
