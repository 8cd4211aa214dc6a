"""The memory behind the blocks: one key and one value cache a layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from .pool import NULL_BLOCK


class KVStore:
    """Caches [blocks, block_size, kv_heads, head_dim] for every layer, allocated by the kernel set that reads them."""

    def __init__(self, ops: Any, *, layers: int, blocks: int, block_size: int, kv_heads: int, head_dim: int, dtype: str):
        self.block_size, self.blocks, self.dtype = block_size, blocks, dtype
        self.layers = [ops.new_cache(blocks, block_size, kv_heads, head_dim, dtype) for _ in range(layers)]
        head_bytes = {"float32": 4 * head_dim, "float16": 2 * head_dim, "bfloat16": 2 * head_dim, "int8": head_dim + 4}[dtype]
        self.token_bytes = layers * 2 * kv_heads * head_bytes

    def slots(self, tables: np.ndarray, owners: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Where the keys and values of tokens go: token t is at positions[t] of the sequence tables[owners[t]]; int32[T]."""
        blocks, offsets = np.divmod(positions, self.block_size)
        return tables[owners, blocks] * self.block_size + offsets

    def tables(self, tables: list[list[int]], width: int) -> np.ndarray:
        """Block tables side by side, int32[S, width], filled up with the null block."""
        rows = np.full((len(tables), width), NULL_BLOCK, np.int32)
        for row, table in zip(rows, tables):
            count = min(len(table), width)
            row[:count] = table[:count]
        return rows
