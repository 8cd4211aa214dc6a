"""What the kernel tests share: random inputs, caches full of NaN outside the contexts, outputs between guard bands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tinyserve.kernels.cpu.kernel_set import CpuKernels
from tinyserve.kernels.layouts import Weight, pack_dense, pack_int4, pack_int8

FORMATS = ("float32", "bfloat16", "int8", "int4")
BAND = 4096
POISON = 0xFF  # float32 and float16 made of these bytes are NaN


def floats(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Normal random float32."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32) * np.float32(scale)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def strided(x: np.ndarray, before: int = 5, after: int = 3) -> np.ndarray:
    """The same rows as a slice of wider ones, with NaN between them (no rows: as they are)."""
    if not len(x):
        return x
    size = int(np.prod(x.shape[1:]))
    wide = np.full((len(x), before + size + after), np.nan, np.float32)
    view = wide[:, before : before + size]
    view[:] = x.reshape(len(x), size)
    return view.reshape(x.shape)


def random_weight(kind: str, n: int, k: int, seed: int = 0) -> Weight:
    """A weight of one of FORMATS with entries of about unit size and full-range codes."""
    rng = np.random.default_rng([seed, n, k])
    if kind == "float32":
        return pack_dense(rng.standard_normal((n, k), np.float32))
    if kind == "bfloat16":
        return pack_dense((rng.standard_normal((n, k), np.float32).view(np.uint32) >> 16).astype(np.uint16))
    scales = (0.5 + rng.random((n, k // 32))).astype(np.float16)
    if kind == "int8":
        return pack_int8(rng.integers(-128, 128, (n, k)).astype(np.int8), scales / np.float16(64))
    return pack_int4(rng.integers(0, 16, (n, k)).astype(np.uint8), scales / np.float16(4), -2 * scales)


class GuardedKernels(CpuKernels):
    """The CPU kernels with every output and scratch buffer poisoned, between bands that nothing may write."""

    def __init__(self, threads: int):
        super().__init__(threads)
        self._bands: list[np.ndarray] = []
        self._machine.empty = self._guarded

    def _guarded(self, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        raw = np.full(size + 2 * BAND, POISON, np.uint8)
        self._bands += [raw[:BAND], raw[BAND + size :]]
        return raw[BAND : BAND + size].view(dtype).reshape(shape)

    def check_bands(self) -> None:
        """Fail if an op wrote outside of a buffer."""
        assert all((band == POISON).all() for band in self._bands), "a kernel wrote outside of its buffer"
        self._bands.clear()


@dataclass
class Paged:
    """The inputs of one `attention` call."""

    q: np.ndarray
    key_cache: np.ndarray
    value_cache: np.ndarray
    block_tables: np.ndarray
    query_start: np.ndarray
    context_lengths: np.ndarray

    def arguments(self) -> tuple[np.ndarray, ...]:
        return self.q, self.key_cache, self.value_cache, self.block_tables, self.query_start, self.context_lengths

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return tuple(torch.from_numpy(x) for x in self.arguments())


def paged(ops: Any, sequences: list[tuple[np.ndarray, np.ndarray, np.ndarray]], block_size: int, dtype: str = "float32",
          window: int = 0, seed: int = 0) -> Paged:
    """Lay sequences of (q[R,Hq,D], k[L,Hk,D], v[L,Hk,D]) into a cache of shuffled blocks; what no row sees is NaN."""
    lengths = [len(k) for _, k, _ in sequences]
    heads, d = sequences[0][1].shape[1:]
    needed = [-(-length // block_size) for length in lengths]
    order = 1 + np.random.default_rng(seed).permutation(sum(needed)).astype(np.int32)
    tables = np.zeros((len(sequences), max(needed) + 1), np.int32)
    keys, values = ops.new_cache(sum(needed) + 1, block_size, heads, d, dtype)
    if dtype == "int8":  # the scales are not in the view
        nothing = np.full((sum(needed) + 1) * block_size, np.nan, np.float32)[:, None, None].repeat(heads, 1).repeat(d, 2)
        ops.store_kv(nothing, nothing, np.arange(len(nothing), dtype=np.int32), keys, values)
    else:
        keys[:], values[:] = np.nan, np.nan
    for s, (q, k, v) in enumerate(sequences):
        tables[s, : needed[s]], order = order[: needed[s]], order[needed[s] :]
        at = np.arange(max(0, lengths[s] - len(q) - window + 1) if window else 0, lengths[s])
        blocks = tables[s, at // block_size]
        if dtype == "int8":
            ops.store_kv(k[at], v[at], blocks * block_size + (at % block_size).astype(np.int32), keys, values)
        else:
            keys[blocks, at % block_size], values[blocks, at % block_size] = k[at], v[at]
    starts = np.concatenate([[0], np.cumsum([len(q) for q, _, _ in sequences])]).astype(np.int32)
    q = np.concatenate([q for q, _, _ in sequences])
    return Paged(q, keys, values, tables, starts, np.array(lengths, np.int32))


def sequence(rows: int, length: int, heads: int, kv_heads: int, d: int,
             seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random (q, k, v) of one sequence whose last `rows` tokens are asked about."""
    k, v = (floats(length, kv_heads, d, seed=seed + i) for i in (1, 2))
    return floats(rows, heads, d, seed=seed, scale=2), k, v
