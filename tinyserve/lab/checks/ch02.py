"""Chapter 02: the KV cache. Functions take and return torch tensors, as `tinyserve.kernels.use` passes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .judge import Verdict, Wrong, expect, judge


def reference_kv_bytes(config: Any, tokens: int, element_bytes: int = 2) -> int:
    """Keys and values, every layer, every key/value head."""
    return 2 * config.layers * config.kv_heads * config.head_dim * element_bytes * tokens


def kv_bytes(mine: Callable) -> Verdict:
    """Bytes of cache for `tokens` tokens. Query heads do not count: they share."""
    from types import SimpleNamespace

    def cases() -> Iterator[Callable]:
        for layers, heads, kv, d in ((30, 9, 3, 64), (2, 8, 8, 16), (32, 32, 8, 128)):
            config = SimpleNamespace(layers=layers, heads=heads, kv_heads=kv, head_dim=d)
            for tokens, size in ((1, 2), (77, 4), (4096, 1)):
                yield lambda fn, a=(config, tokens, size): expect(
                    fn(*a), reference_kv_bytes(*a), f"kv_bytes of {a[0].layers} layers, {a[0].kv_heads} heads, {a[1]} tokens")

    return judge("kv_bytes", mine, reference_kv_bytes, cases())


def reference_store(k: Any, v: Any, slots: Any, key_cache: Any, value_cache: Any) -> None:
    """Slot = block * block size + offset."""
    size = key_cache.shape[1]
    index = slots.long()
    key_cache[index // size, index % size] = k.to(key_cache.dtype)
    value_cache[index // size, index % size] = v.to(value_cache.dtype)


def store(mine: Callable) -> Verdict:
    """Write k and v[T, Hk, D] at slots[T] of caches [B, P, Hk, D], and nothing anywhere else."""
    import torch

    def case(tokens: int, blocks: int, size: int, seed: int) -> Callable:
        def run(fn: Callable) -> None:
            make = torch.Generator().manual_seed(seed)
            k, v = (torch.randn(tokens, 3, 5, generator=make) for _ in range(2))
            slots = torch.randperm(blocks * size, generator=make)[:tokens].to(torch.int32)
            caches = [torch.full((blocks, size, 3, 5), float("nan")) for _ in range(2)]
            wanted = [cache.clone() for cache in caches]
            reference_store(k, v, slots, *wanted)
            fn(k, v, slots, *caches)
            for name, got, right in zip(("key", "value"), caches, wanted):
                if not torch.equal(got.isnan(), right.isnan()):
                    written, meant = int((~got.isnan()).sum()), int((~right.isnan()).sum())
                    raise Wrong(f"the {name} cache: {written} numbers were written where {meant} should be, or in other places.")
                expect(got.nan_to_num(0).numpy(), right.nan_to_num(0).numpy(), f"the {name} cache")
        return run

    return judge("store", mine, reference_store, [case(1, 2, 4, 0), case(5, 3, 4, 1), case(9, 4, 16, 2), case(3, 7, 1, 3)])


def reference_attend(q: Any, key_cache: Any, value_cache: Any, block_tables: Any, query_start: Any, context_lengths: Any,
                     scale: float, window: int = 0) -> Any:
    """One sequence after the other: gather its keys, mask what lies ahead, softmax, weigh the values."""
    import torch

    y = torch.empty_like(q, memory_format=torch.contiguous_format)
    size, kv_heads = key_cache.shape[1], key_cache.shape[2]
    for s, context in enumerate(context_lengths.tolist()):
        begin, end = int(query_start[s]), int(query_start[s + 1])
        positions = torch.arange(context)
        blocks = block_tables[s].long()[positions // size]
        keys, values = (cache[blocks, positions % size].float().repeat_interleave(q.shape[1] // kv_heads, dim=1)
                        for cache in (key_cache, value_cache))
        own = torch.arange(context - (end - begin), context)
        hidden = positions[None, :] > own[:, None]
        if window:
            hidden |= positions[None, :] <= own[:, None] - window
        scores = torch.einsum("qhd,khd->hqk", q[begin:end].float(), keys) * scale
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        y[begin:end] = torch.einsum("hqk,khd->qhd", weights, values)
    return y


def attend(mine: Callable) -> Verdict:
    """Causal attention over the paged cache, one sequence or several, one row each or many."""
    import torch

    def case(lengths: list[int], rows: list[int], size: int, seed: int) -> Callable:
        def run(fn: Callable) -> None:
            make = torch.Generator().manual_seed(seed)
            width = max(-(-n // size) for n in lengths)
            blocks = len(lengths) * width + 1
            order = torch.randperm(blocks - 1, generator=make)[: len(lengths) * width] + 1
            tables = order.reshape(len(lengths), width).to(torch.int32)
            caches = [torch.full((blocks, size, 2, 8), float("nan")) for _ in range(2)]
            for s, n in enumerate(lengths):
                where = torch.arange(n)
                for cache in caches:
                    cache[tables[s].long()[where // size], where % size] = torch.randn(n, 2, 8, generator=make)
            q = torch.randn(sum(rows), 6, 8, generator=make)
            starts = torch.tensor([0, *torch.tensor(rows).cumsum(0).tolist()], dtype=torch.int32)
            inputs = (q, *caches, tables, starts, torch.tensor(lengths, dtype=torch.int32), 0.3)
            got = fn(*inputs)
            if got is None or got is ...:
                raise Wrong("attend: it returned nothing.")
            expect(got.numpy(), reference_attend(*inputs).numpy(), f"attend, contexts {lengths}, rows {rows}, blocks of {size}", 1e-5)
        return run

    cases = [case([1], [1], 4, 0), case([7], [1], 4, 1), case([7], [7], 4, 2), case([9, 3], [1, 1], 2, 3),
             case([10, 6, 1], [4, 1, 1], 16, 4)]
    return judge("attend", mine, reference_attend, cases)
