"""The op: attention of a ragged batch over the paged cache. It plans which kernel serves which sequence and owns the scratch memory.

Sequences with one row go to `decode`, which splits their context over CTAs; longer ones to `flash`, where its formats allow (q and cache
both float16, or both bfloat16; heads of 32, 64 or 128). What flash cannot take, decode serves row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Kept:
    """How keys and values lie in a cache: the format of an element, positions a block, key heads."""

    form: str
    block_size: int
    heads: int


class PagedAttention:
    """Call it with checked arguments, caches as one row a slot."""

    def __init__(self, memory: Any, split: int = SPLIT):
        self.memory, self.split = memory, split

    def __call__(self, q: Any, caches: tuple, kept: Kept, batch: tuple, scale: float, window: int) -> Any:
        """q[T, Hq, D] -> [T, Hq, D] in q's format; batch: block tables, query_start, context lengths."""
        memory = self.memory
        tokens, heads, head_dim = q.shape
        sequences, form = len(batch[2]), memory.form(q)
        out = memory.empty((tokens, heads, head_dim), form)
        if not tokens:
            return out
        numbers = np.float32(scale * LOG2_E), np.int32(window)
        flash = form == kept.form and form in FLASH_FORMS and head_dim in FLASH_HEADS and tokens > sequences
        rows, flat = q.reshape(tokens, -1), out.reshape(tokens, -1)
        if flash:
            self._flash(form, head_dim, kept, rows, (*caches, *batch, *numbers), flat)
        if not flash or sequences > 1:
            self._decode(form, head_dim, kept, rows, (*caches, *batch, *numbers), 1 if flash else tokens, flat)
        return out

    def _flash(self, form: str, head_dim: int, kept: Kept, q: Any, context: tuple, out: Any) -> None:
        starts, sequences, group = self.memory.host(context[3]), len(context[4]), q.shape[1] // head_dim // kept.heads
        most = len(q) if starts is None else int(np.diff(starts).max())
        kernel = flash_prefill(form, head_dim, group, kept.block_size)
        grid = ceil(most * group, QUERIES), kept.heads, sequences
        self.memory.launch(kernel, grid, BLOCK, q, *context, np.int32(2), out)

    def _decode(self, form: str, head_dim: int, kept: Kept, q: Any, context: tuple, most: int, out: Any) -> None:
        tokens, heads = len(q), q.shape[1] // head_dim
        splits = ceil(context[2].shape[1] * kept.block_size, self.split)
        partial = self.memory.empty((tokens, splits, heads, head_dim), "float32")
        weights = self.memory.empty((tokens, splits, heads, 2), "float32")
        kernel = paged_decode(form, kept.form, head_dim, heads // kept.heads, kept.block_size, self.split)
        self.memory.launch(kernel, (splits, kept.heads, tokens), BLOCK, q, *context, np.int32(most), partial, weights)
        merge, places = merge_splits(form, head_dim, self.split), context[3:5]
        units = ceil(tokens * heads * head_dim // 8, BLOCK)
        self.memory.launch(merge, units, BLOCK, partial, weights, *places, context[6], np.int32(most), out)
