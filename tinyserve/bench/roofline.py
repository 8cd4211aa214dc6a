"""`tinyserve bench roofline`: what the machine allows, what one pass needs, and which share of the limit is reached.

Bytes and operations come from the model's own packed weights: a pass reads every weight once and multiplies it once a token.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..llm import LLM
from .latency import one_request, random_prompt
from .protocol import interleave, seconds
from .records import Record, make


def weight_bytes(llm: LLM) -> int:
    """Bytes of weights that a decode step reads."""
    return sum(weight.nbytes for weight in llm.engine.runner.decoder.weights.matrices)


def weight_count(llm: LLM) -> int:
    """Weights that a decode step multiplies by."""
    return sum(weight.rows * weight.columns for weight in llm.engine.runner.decoder.weights.matrices)


def _matrices(llm: LLM) -> dict[str, list[Any]]:
    """The model's matrices by what they do."""
    weights = llm.engine.runner.decoder.weights
    groups: dict[str, list[Any]] = {"qkv": [], "attention output": [], "gate and up": [], "down": []}
    for layer in weights.layers:
        groups["qkv"] += [part.weight for part in layer.qkv]
        groups["attention output"].append(layer.output.weight)
        groups["gate and up"] += [part.weight for part in layer.up]
        groups["down"].append(layer.down.weight)
    return {**groups, "output layer": [weights.head]}


def _multiply_all(llm: LLM, matrices: list[Any], tokens: int) -> Callable[[], float]:
    """One multiplication by each of these matrices, as one recorded step; returns seconds."""
    ops, rng = llm.engine.ops, np.random.default_rng(0)
    x = {columns: rng.standard_normal((tokens, columns)).astype(np.float32) for columns in {m.columns for m in matrices}}
    replay = ops.recorder().record(lambda: [ops.linear(x[matrix.columns], matrix) for matrix in matrices][-1])
    return lambda: seconds(replay)


def bench_roofline(llm: LLM, new: int = 64, repeats: int = 7) -> Record:
    """Limits of this machine, then every kind of matrix and the whole decode step against them."""
    ops = llm.engine.ops
    bandwidth, peak = ops.read_bandwidth(), ops.dot_rate()
    groups = _matrices(llm)
    sides = {name: _multiply_all(llm, matrices, 1) for name, matrices in groups.items()}
    sides["whole step"] = lambda: one_request(llm, random_prompt(llm, 16, time.perf_counter_ns()), new).tpot or 0.0
    taken = interleave(sides, repeats)
    rows: list[dict[str, Any]] = [{"what": "memory bandwidth, GB/s", "reached": round(bandwidth / 1e9, 2)},
                                  {"what": "INT8 dot products, Gop/s", "reached": round(peak / 1e9, 1)}]
    for name, values in taken.items():
        size = weight_bytes(llm) if name == "whole step" else sum(matrix.nbytes for matrix in groups[name])
        count = weight_count(llm) if name == "whole step" else sum(matrix.rows * matrix.columns for matrix in groups[name])
        median = statistics.median(values)
        rows.append({"what": f"{name}, one token", "MB": round(size / 1e6, 2), "operations a byte": round(2 * count / size, 2),
                     "ms": round(median * 1e3, 3), "GB/s": round(size / median / 1e9, 2),
                     "share of the limit": round(size / bandwidth / median, 3)})
    return make("roofline", rows, {"repeats": repeats, "order": "in turn", "new tokens": new}, taken, ops)
