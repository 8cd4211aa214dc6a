"""Tiny random checkpoints made by other libraries, and our decoder's logits for a text, in one chunk or in several."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from tinyserve.cache.store import KVStore
from tinyserve.kernels import select
from tinyserve.models.batch import ForwardBatch
from tinyserve.models.loading import load_model

OPS, BLOCK = select("cpu"), 4


def logits(model: Path, ids: Sequence[int], cuts: Sequence[int] = (), dtype: str = "float32", kv: str = "float32") -> np.ndarray:
    """[T, V]: the logits after each token of `ids`, computed in chunks that end at `cuts`."""
    return decode(load_model(model, OPS, dtype, len(ids)).decoder, ids, cuts, kv)


def decode(decoder: Any, ids: Sequence[int], cuts: Sequence[int] = (), kv: str = "float32") -> np.ndarray:
    config, blocks = decoder.config, -(-len(ids) // BLOCK)
    store = KVStore(OPS, layers=config.layers, blocks=blocks + 1, block_size=BLOCK, kv_heads=config.kv_heads,
                    head_dim=config.head_dim, dtype=kv)
    table = np.arange(blocks, 0, -1, dtype=np.int32)[None]  # backwards: a kernel that ignores the table is found out
    rows, start = [], 0
    for stop in (*cuts, len(ids)):
        at = np.arange(start, stop, dtype=np.int32)
        batch = ForwardBatch(
            np.array(ids[start:stop], np.int32), at, store.slots(table, np.zeros_like(at), at), table,
            np.array([0, stop - start], np.int32), np.array([stop], np.int32), np.arange(stop - start, dtype=np.int32))
        rows.append(np.array(OPS.numpy(decoder.forward(batch, store.layers))))
        start = stop
    return np.concatenate(rows)


def difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference relative to the largest logit of its row."""
    return float((np.abs(ours - theirs).max(-1) / np.abs(theirs).max(-1)).max())


def cuts_of(sizes: Sequence[int], length: int) -> list[int]:
    return [stop for stop in accumulate(sizes) if stop < length]
