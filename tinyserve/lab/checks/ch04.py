"""Chapter 04: attention kernels. States are (m, l, a): the largest score, the sum of weights relative to it, the weighted sum of
values. `paged_decode` takes a kernel, and judges it in the simulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .judge import Verdict, Wrong, expect, judge

State = tuple[float, float, np.ndarray]


def reference_online_step(state: State, score: float, value: np.ndarray) -> State:
    """Add one key: rescale what was summed to the new maximum, then add."""
    m, total, a = state
    higher = max(m, score)
    keep, weight = math.exp(m - higher), math.exp(score - higher)
    return higher, total * keep + weight, a * keep + weight * value


def _attention(scores: np.ndarray, values: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum() @ values


def online_step(mine: Callable) -> Verdict:
    """(m, l, a), a score and its value[D] -> the new (m, l, a); begins at (-inf, 0, zeros)."""
    def case(keys: int, spread: float, seed: int) -> Callable:
        def run(fn: Callable) -> None:
            rng = np.random.default_rng(seed)
            order = "falling" if seed % 2 else "rising"
            scores, values = np.sort(rng.standard_normal(keys) * spread)[::-1 if seed % 2 else 1], rng.standard_normal((keys, 5))
            state: Any = (-math.inf, 0.0, np.zeros(5))
            for i, (score, value) in enumerate(zip(scores, values)):
                state = fn(state, float(score), value)
                if state is None or state is ...:
                    raise Wrong("online_step: it returned nothing; return the new (m, l, a).")
                if not math.isclose(state[0], scores[:i + 1].max()):
                    raise Wrong(f"online_step: after {i + 1} keys m is {state[0]:.4g}; the largest is {scores[:i + 1].max():.4g}.")
            expect(state[2] / state[1], _attention(scores, values), f"online_step, {keys} keys in {order} order", 1e-9)
        return run

    cases = [case(1, 1, 0), case(7, 1, 0), case(7, 1, 1), case(50, 30, 2), case(50, 400, 3)]
    return judge("online_step", mine, reference_online_step, cases)


def reference_merge(one: State, other: State) -> State:
    """Both to the larger maximum, then add. A part that saw nothing is (-inf, 0, zeros)."""
    m = max(one[0], other[0])
    if m == -math.inf:
        return one
    keep, weight = math.exp(one[0] - m), math.exp(other[0] - m)
    return m, one[1] * keep + other[1] * weight, one[2] * keep + other[2] * weight


def merge(mine: Callable) -> Verdict:
    """Two parts of one context -> the state of both together. Either may be empty."""
    def state(scores: np.ndarray, values: np.ndarray) -> State:
        if not len(scores):
            return -math.inf, 0.0, np.zeros(values.shape[1])
        weights = np.exp(scores - scores.max())
        return float(scores.max()), float(weights.sum()), weights @ values

    def case(keys: int, cut: int, spread: float, seed: int) -> Callable:
        def run(fn: Callable) -> None:
            rng = np.random.default_rng(seed)
            scores, values = rng.standard_normal(keys) * spread, rng.standard_normal((keys, 3))
            got = fn(state(scores[:cut], values[:cut]), state(scores[cut:], values[cut:]))
            if got is None or got is ...:
                raise Wrong("merge: it returned nothing; return (m, l, a).")
            if keys == 0:
                expect(got[1], 0.0, "merge of two empty parts: l")
                return
            expect(got[0], scores.max(), f"merge of {cut} and {keys - cut} keys: m", 1e-12)
            expect(got[2] / got[1], _attention(scores, values), f"merge of {cut} and {keys - cut} keys", 1e-9)
        return run

    cases = [case(8, 4, 1, 0), case(9, 1, 20, 1), case(300, 256, 100, 2), case(5, 0, 1, 3), case(5, 5, 1, 4), case(0, 0, 1, 5)]
    return judge("merge", mine, reference_merge, cases)


def _launched(fn: Any, launch: tuple, arguments: list, wanted: np.ndarray, what: str, **limits: int) -> None:
    """Judge a kernel whose last argument is its output."""
    from ...kernels.cuda.simulator import judge as judge_kernel

    if not hasattr(fn, "__getitem__"):
        raise Wrong("it is a plain function; put @cuda.jit on the line above it.")
    findings = judge_kernel(fn, launch, arguments, {len(arguments) - 1: wanted}, rtol=1e-4, atol=1e-5, limits=limits)
    if findings:
        raise Wrong(f"{what}: {findings[0]}")


def paged_decode(mine: Callable) -> Verdict:
    """A kernel (q[32], key_cache[B, P, 32], value_cache[B, P, 32], table[M], context, scale, out[32]), launched as [1, 32]."""
    from ...kernels.cuda.attention.one_warp import paged_one_warp
    from ...kernels.cuda.header import expected

    def case(context: int, size: int, seed: int) -> Callable:
        def run(fn: Callable) -> None:
            rng = np.random.default_rng(seed)
            count = -(-context // size)
            table = (1 + rng.permutation(count + 2)[:count + 1]).astype(np.int32)
            caches = [np.full((count + 4, size, 32), np.nan, np.float32) for _ in range(2)]
            where = table[np.arange(context) // size], np.arange(context) % size
            k, v = rng.standard_normal((2, context, 32)).astype(np.float32)
            caches[0][where], caches[1][where] = k, v
            q, scale = rng.standard_normal(32).astype(np.float32) * 4, np.float32(0.3)
            wanted = _attention((k @ q * scale).astype(np.float64), v).astype(np.float32)
            _launched(fn, (1, 32), [q, *caches, table, np.int32(context), scale, np.zeros(32, np.float32)], wanted,
                      f"context {context}, blocks of {size}", **expected(paged_one_warp, context=context))
        return run

    return judge("paged_decode", mine, paged_one_warp, [case(1, 4, 0), case(8, 4, 1), case(13, 4, 2), case(5, 1, 3), case(9, 16, 4)])


def reference_dequantize(word: int, scale: float, minimum: float) -> list[float]:
    """Columns 0 to 3 in the low nibbles of the four bytes, 4 to 7 in the high ones: w = scale * code + minimum."""
    codes = [word >> (8 * (i % 4) + 4 * (i // 4)) & 15 for i in range(8)]
    return [scale * code + minimum for code in codes]


def dequantize(mine: Callable) -> Verdict:
    """A 32-bit word -> eight weights, in the order of their columns."""
    def cases() -> Iterator[Callable]:
        for word in (0x00000001, 0x00000010, 0xF0000000, 0x76543210, 0xFFFFFFFF, 0x80C4A2E6):
            for scale, minimum in ((1.0, 0.0), (0.5, -4.0)):
                yield lambda fn, a=(word, scale, minimum): expect(
                    fn(*a), reference_dequantize(*a), f"dequantize of 0x{a[0]:08X} with scale {a[1]} and minimum {a[2]}")

    return judge("dequantize", mine, reference_dequantize, cases())
