"""Attention as its definition: for each sequence, softmax(q . k * scale) over the positions it may see, times v."""

from __future__ import annotations

import torch
from torch import Tensor


def store_kv(k: Tensor, v: Tensor, slots: Tensor, key_cache: Tensor, value_cache: Tensor) -> None:
    """Write k, v[T,Hk,D] at slots[T] of the caches [B,P,Hk,D]; slot = block * P + offset."""
    block_size = key_cache.shape[1]
    where = (slots.long() // block_size, slots.long() % block_size)
    key_cache[where] = k.to(key_cache.dtype)
    value_cache[where] = v.to(value_cache.dtype)


def attention(q: Tensor, key_cache: Tensor, value_cache: Tensor, block_tables: Tensor, query_start: Tensor,
              context_lengths: Tensor, scale: float, window: int = 0) -> Tensor:
    """Causal attention over the paged cache -> [T,Hq,D]; shapes and meanings as in `api.KernelSet.attention`."""
    if q.shape[1] % key_cache.shape[2]:
        raise ValueError(f"{q.shape[1]} query heads are not a multiple of {key_cache.shape[2]} key/value heads.")
    y = torch.zeros_like(q)
    for s, length in enumerate(context_lengths.tolist()):
        begin, end = query_start[s : s + 2].tolist()
        if begin < end:
            first = max(0, length - (end - begin) - window + 1) if window else 0  # no row sees further back
            k = gather(key_cache, block_tables[s], first, length)
            v = gather(value_cache, block_tables[s], first, length)
            y[begin:end] = attend(q[begin:end], k, v, scale, window)
    return y


def gather(cache: Tensor, table: Tensor, first: int, stop: int) -> Tensor:
    """Positions first..stop-1 of one sequence, through its block table: cache[B,P,Hk,D] -> [stop-first,Hk,D]."""
    positions = torch.arange(first, stop)
    block_size = cache.shape[1]
    return cache[table.long()[positions // block_size], positions % block_size]


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int = 0) -> Tensor:
    """One sequence: q[R,Hq,D] are the last R rows of the context k, v[L,Hk,D] -> [R,Hq,D].

    Each key head serves Hq/Hk query heads."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1) for x in (k, v))  # [L, Hq, D]
    scores = torch.einsum("rhd,lhd->hrl", q.double(), k) * scale
    hidden = ~visible(len(q), len(k), window)
    weights = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1)
    return torch.einsum("hrl,lhd->rhd", weights, v).to(q.dtype)


def visible(rows: int, length: int, window: int = 0) -> Tensor:
    """[rows, length] booleans: the row at position p sees max(0, p - window + 1)..p (window 0: all up to p)."""
    row = torch.arange(length - rows, length)[:, None]
    column = torch.arange(length)
    causal = column <= row
    return causal & (column > row - window) if window else causal
