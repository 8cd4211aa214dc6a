"""Everything that needs a GPU, in one command: `python benchmarks/gpu.py` (a few minutes).

First every kernel is checked against torch at real sizes; then the ones with a target are timed beside their peers (cuBLAS, torch's
attention) and beside the card's own copy bandwidth and matrix rate, with warm and with cold caches. The record goes to
benchmarks/records/.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyserve.bench.machine import commit
from tinyserve.bench.records import Record

FLUSH_BYTES = 512 * 2**20
REPEATS = 30


class Bench:
    """torch, the kernel set, random inputs and the clock."""

    def __init__(self, ops: Any, device: str = "cuda") -> None:
        import torch

        self.torch, self.ops, self.device = torch, ops, device
        self.generator, self.random = torch.Generator(device).manual_seed(0), np.random.default_rng(0)

    def normal(self, *shape: int, dtype: str = "float16") -> Any:
        return self.torch.randn(shape, generator=self.generator, device=self.device).to(getattr(self.torch, dtype))

    def seconds(self, call: Callable[[], Any], cold: bool) -> float:
        """The median time of one call by CUDA events; `cold` overwrites the L2 cache before each."""
        call()
        times, flush = [], self.torch.empty(FLUSH_BYTES, dtype=self.torch.uint8, device=self.device)
        for _ in range(REPEATS):
            if cold:
                flush.zero_()
            start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.torch.cuda._sleep(200_000)  # so that launches queue up and are not part of what is timed
            start.record()
            call()
            stop.record()
            self.torch.cuda.synchronize()
            times.append(start.elapsed_time(stop) / 1e3)
        return statistics.median(times)

    def quantized(self, rows: int, columns: int) -> tuple[Any, Any]:
        """A random INT4 weight on the card, and the float16 matrix that it stands for."""
        from tinyserve.kernels import layouts

        codes = self.random.integers(0, 16, (rows, columns)).astype(np.uint8)
        scales = self.random.uniform(0.001, 0.002, (rows, columns // 32)).astype(np.float16)
        packed = layouts.pack_int4(codes, scales, (-7.5 * scales).astype(np.float16))
        return self.ops.weight(packed), self.ops.array(layouts.dequantize(packed).astype(np.float16))

    def paged(self, rows: Sequence[int], contexts: Sequence[int], heads: int, key_heads: int, head_dim: int) -> tuple:
        """The arguments of `attention` for a ragged batch over shuffled blocks of 16."""
        block = 16
        counts = [-(-context // block) for context in contexts]
        order = 1 + self.random.permutation(sum(counts)).astype(np.int32)
        tables = np.zeros((len(rows), max(counts)), np.int32)
        for s, count in enumerate(counts):
            tables[s, :count], order = order[:count], order[count:]
        caches = [self.normal(sum(counts) + 1, block, key_heads, head_dim) for _ in range(2)]
        starts = np.concatenate([[0], np.cumsum(rows)]).astype(np.int32)
        places = [self.ops.array(x) for x in (tables, starts, np.array(contexts, np.int32))]
        return self.normal(sum(rows), heads, head_dim), *caches, *places, head_dim**-0.5

    def dense_context(self, arguments: tuple, sequence: int) -> tuple[Any, Any, Any]:
        """(q, k, v) of one sequence of `paged` as [1, heads, length, D]."""
        q, keys, values, tables, starts, lengths, _ = arguments
        first, last, context = starts[sequence], starts[sequence + 1], int(lengths[sequence])
        blocks = tables[sequence, :-(-context // keys.shape[1])].long()
        k, v = (cache[blocks].flatten(0, 1)[:context].transpose(0, 1)[None] for cache in (keys, values))
        return q[first:last].transpose(0, 1)[None], k, v


def close(name: str, got: Any, want: Any, tolerance: float) -> dict:
    error = ((got.float() - want.float()).abs().max() / want.float().abs().max()).item()
    return {"check": name, "relative_error": error, "ok": bool(error <= tolerance)}


def checks(bench: Bench, hidden: int = 4096, vocab: int = 49152, heads: tuple = (32, 8, 128),
           batches: tuple = (((1, 1, 1), (1, 517, 4096)), ((300, 1, 3), (300, 1000, 900)))) -> list[dict]:
    """Every op at real sizes against torch."""
    torch, ops, functional = bench.torch, bench.ops, bench.torch.nn.functional
    x, weight, wide = bench.normal(33, hidden), bench.normal(hidden, dtype="float32"), bench.normal(33, 2 * hidden)
    gate, up = wide[:, :hidden], wide[:, hidden:]
    found = [
        close("rms_norm", ops.rms_norm(x, weight, 1e-5), functional.rms_norm(x.float(), (hidden,), weight, 1e-5), 2e-3),
        close("silu_mul", ops.silu_mul(gate, up), functional.silu(gate.float()) * up.float(), 2e-3),
        close("gelu", ops.gelu(x), functional.gelu(x.float(), approximate="tanh"), 2e-3),
        close("log_softmax", ops.log_softmax(x.float()), torch.log_softmax(x.float(), -1), 1e-5),
    ]
    packed, matrix = bench.quantized(hidden, hidden)
    for tokens in (1, 7, 33):
        want = x[:tokens].float() @ matrix.float().T
        found.append(close(f"linear int4, {tokens} tokens", ops.linear(x[:tokens].contiguous(), packed), want, 2e-2))
    for rows, contexts in batches:
        arguments = bench.paged(rows, contexts, *heads)
        out, wants = ops.attention(*arguments), []
        for s in range(len(rows)):
            q, k, v = bench.dense_context(arguments, s)
            seen = torch.ones(rows[s], contexts[s], dtype=torch.bool, device=bench.device).tril(contexts[s] - rows[s])
            want = functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), seen, enable_gqa=True)
            wants.append(want[0].transpose(0, 1))
        found.append(close(f"attention, rows {rows}", out, torch.cat(wants), 5e-3))
    logits = bench.normal(4, vocab, dtype="float32")
    zeros, ones = np.zeros(4, np.float32), np.ones(4, np.float32)
    greedy = ops.sample(logits, zeros, zeros.astype(np.int32), ones, zeros, zeros)
    found.append({"check": "greedy sampling", "ok": bool((greedy == logits.argmax(-1)).all())})
    return found


def ceilings(bench: Bench) -> dict:
    """What the card itself reaches: bytes a second of a copy (read and written), operations a second of a large float16 product."""
    source = bench.torch.empty(2**30, dtype=bench.torch.uint8, device="cuda")
    target, a, b = bench.torch.empty_like(source), bench.normal(8192, 8192), bench.normal(8192, 8192)
    return {"copy_bytes_per_s": 2 * source.numel() / bench.seconds(lambda: target.copy_(source), False),
            "float16_flops": 2 * 8192**3 / bench.seconds(lambda: bench.torch.mm(a, b), False)}


def timings(bench: Bench, limits: dict) -> list[dict]:
    """The kernels with a target, each beside its peer, cold and warm."""
    torch, ops, functional = bench.torch, bench.ops, bench.torch.nn.functional
    found = []

    def add(name: str, ours: Callable, peer: Callable, peer_name: str, nbytes: int, flops: int) -> None:
        for cold in (True, False):
            mine, theirs = bench.seconds(ours, cold), bench.seconds(peer, cold)
            found.append({"kernel": name, "cache": "cold" if cold else "warm", "seconds": mine,
                          "peer": peer_name, "peer_seconds": theirs, "speedup": theirs / mine,
                          "of_copy_bandwidth": nbytes / mine / limits["copy_bytes_per_s"],
                          "of_float16_rate": flops / mine / limits["float16_flops"]})

    packed, matrix = bench.quantized(14336, 4096)
    for tokens in (1, 32):
        x = bench.normal(tokens, 4096)
        add(f"linear int4, {tokens} tokens", lambda x=x: ops.linear(x, packed), lambda x=x: torch.mm(x, matrix.T), "cuBLAS float16",
            packed.nbytes + 2 * tokens * (4096 + 14336), 2 * tokens * 4096 * 14336)
    decode = bench.paged([1] * 32, [4096] * 32, 32, 8, 128)
    dense = [torch.cat(parts) for parts in zip(*(bench.dense_context(decode, s) for s in range(32)))]
    add("attention, 32 sequences of 4096", lambda: ops.attention(*decode),
        lambda: functional.scaled_dot_product_attention(*dense, enable_gqa=True), "torch SDPA, contiguous",
        2 * 32 * 4096 * 8 * 128 * 2, 4 * 32 * 4096 * 32 * 128)
    prefill = bench.paged([4096], [4096], 32, 8, 128)
    q, k, v = bench.dense_context(prefill, 0)
    add("attention, 4096 new tokens", lambda: ops.attention(*prefill),
        lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), "torch SDPA, contiguous",
        2 * 4096 * (2 * 32 + 2 * 8) * 128, 2 * 4096 * 4096 * 32 * 128)
    return found


def describe(torch: Any) -> dict:
    """The card, as a record keeps it."""
    card = torch.cuda.get_device_properties(0)
    return {"gpu": card.name, "sms": card.multi_processor_count, "memory_bytes": card.total_memory, "cuda": torch.version.cuda}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checks-only", action="store_true", help="compare with torch, time nothing")
    arguments = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("No CUDA device here, so nothing was measured. The same kernels run in the simulator: pytest tests/kernels/cuda")
        return 2
    from tinyserve.kernels.cuda.kernel_set import gpu_kernels

    bench = Bench(gpu_kernels("float16"))
    found = checks(bench)
    for check in found:
        print("ok  " if check["ok"] else "FAIL", check["check"], check.get("relative_error", ""))
    if not arguments.checks_only:
        limits = ceilings(bench)
        rows = timings(bench, limits)
        for row in rows:
            print(f"{row['kernel']:<32} {row['cache']:<5} {row['seconds'] * 1e6:>9.1f} us  {row['speedup']:>5.2f}x {row['peer']:<22} "
                  f"{row['of_copy_bandwidth']:>5.0%} of copy  {row['of_float16_rate']:>5.0%} of float16 rate")
        print(Record("gpu", rows, {"repeats": REPEATS, **limits}, {"checks": found}, describe(torch), **commit()).save())
    return 0 if all(check["ok"] for check in found) else 1


if __name__ == "__main__":
    sys.exit(main())
