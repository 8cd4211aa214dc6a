"""Latency metrics of requests, with the field names of `vllm bench serve`; milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RequestTimes:
    """When a request's chunks of text came, in seconds after it was sent, and how many tokens it had in all."""

    chunks: tuple[float, ...]
    tokens: int

    @property
    def ttft(self) -> float:
        return self.chunks[0]

    @property
    def e2e(self) -> float:
        return self.chunks[-1]

    @property
    def tpot(self) -> float | None:
        """(e2e - TTFT) / (tokens - 1); None for a single token."""
        return (self.e2e - self.ttft) / (self.tokens - 1) if self.tokens > 1 else None

    @property
    def itl(self) -> list[float]:
        """Gaps between chunks; a chunk may hold several tokens."""
        return [later - earlier for earlier, later in zip(self.chunks, self.chunks[1:])]


def summarize(requests: Sequence[RequestTimes], percentiles: Sequence[int] = (50, 99)) -> dict[str, float]:
    """mean, median and percentiles of TTFT, TPOT, ITL and e2e over requests, in milliseconds."""
    samples = {
        "ttft": [request.ttft for request in requests], "tpot": [t for request in requests if (t := request.tpot) is not None],
        "itl": [gap for request in requests for gap in request.itl], "e2el": [request.e2e for request in requests]}
    summary: dict[str, float] = {}
    for name, values in samples.items():
        if values:
            summary[f"mean_{name}_ms"] = float(np.mean(values)) * 1e3
            summary[f"median_{name}_ms"] = float(np.median(values)) * 1e3
            summary.update({f"p{p}_{name}_ms": float(np.percentile(values, p)) * 1e3 for p in percentiles if p != 50})
    return summary
