"""The op: attention of a ragged batch over the paged cache. It plans which kernel serves which sequence and owns the scratch memory.

Sequences with one row go to `decode`, which splits their context over CTAs; longer ones to `flash`, where its formats allow (q and cache
both float16, or both bfloat16; heads of 32, 64 or 128). What flash cannot take, decode serves row by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..header import ceil
from .decode import paged_decode
from .flash import QUERIES, flash_prefill
from .merge import merge_splits

LOG2_E = 1.4426950408889634
SPLIT = 256
BLOCK = 128
FLASH_FORMS, FLASH_HEADS = ("float16", "bfloat16"), (32, 64, 128)


class PagedAttention:
    """Call it with the op set's arguments (already checked)."""

    def __init__(self, memory: Any, split: int = SPLIT):
        self.memory, self.split = memory, split

    def __call__(self, q: Any, key_cache: Any, value_cache: Any, tables: Any, query_start: Any, lengths: Any, scale: float,
                 window: int) -> Any:
        """q[T, Hq, D] -> [T, Hq, D] in q's format."""
        memory = self.memory
        tokens, heads, head_dim = q.shape
        sequences = len(lengths)
        form, cache_form = memory.form(q), memory.form(key_cache)
        out = memory.empty((tokens, heads, head_dim), form)
        if not tokens:
            return out
        caches = [cache.reshape(-1, cache.shape[2] * head_dim) for cache in (key_cache, value_cache)]
        batch = tables, query_start, lengths
        numbers = np.float32(scale * LOG2_E), np.int32(window)
        flash = form == cache_form and form in FLASH_FORMS and head_dim in FLASH_HEADS and tokens > sequences
        rows, flat = q.reshape(tokens, -1), out.reshape(tokens, -1)
        if flash:
            self._flash(form, key_cache.shape, rows, caches, batch, numbers, flat)
        if not flash or sequences > 1:
            self._decode(form, cache_form, key_cache.shape, rows, caches, batch, numbers, 1 if flash else tokens, flat)
        return out

    def _flash(self, form: str, cache_shape: tuple, q: Any, caches: list, batch: tuple, numbers: tuple, out: Any) -> None:
        _, block_size, key_heads, head_dim = cache_shape
        sequences = len(batch[2])
        group, most = q.shape[1] // head_dim // key_heads, len(q) - sequences + 1
        kernel = flash_prefill(form, head_dim, group, block_size)
        grid = ceil(most * group, QUERIES), key_heads, sequences
        self.memory.launch(kernel, grid, BLOCK, q, *caches, *batch, *numbers, np.int32(2), out)

    def _decode(self, form: str, cache_form: str, cache_shape: tuple, q: Any, caches: list, batch: tuple, numbers: tuple, most: int,
                out: Any) -> None:
        _, block_size, key_heads, head_dim = cache_shape
        tokens, heads = len(q), q.shape[1] // head_dim
        splits = ceil(batch[0].shape[1] * block_size, self.split)
        partial = self.memory.empty((tokens, splits, heads, head_dim), "float32")
        weights = self.memory.empty((tokens, splits, heads, 2), "float32")
        kernel = paged_decode(form, cache_form, head_dim, heads // key_heads, block_size, self.split)
        self.memory.launch(kernel, (splits, key_heads, tokens), BLOCK, q, *caches, *batch, *numbers, np.int32(most), partial, weights)
        merge = merge_splits(form, head_dim, self.split)
        self.memory.launch(merge, ceil(tokens * heads * head_dim // 8, BLOCK), BLOCK, partial, weights, *batch[1:], numbers[1],
                           np.int32(most), out)
