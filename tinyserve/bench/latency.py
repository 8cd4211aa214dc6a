"""`tinyserve bench latency`: one request at a time, by prompt and output length."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..llm import LLM
from ..text.params import SamplingParams
from .metrics import RequestTimes, summarize
from .records import Record, make


def random_prompt(llm: LLM, length: int, seed: int) -> list[int]:
    """Token ids that repeat nothing a cache could know."""
    return np.random.default_rng(seed).integers(100, llm.config.vocab - 100, length).tolist()


def one_request(llm: LLM, prompt: Sequence[int], new: int) -> RequestTimes:
    """Send a prompt, note when each token comes."""
    params = SamplingParams(temperature=0, max_tokens=new, ignore_eos=True)
    started, times = time.perf_counter(), []
    for output in llm.stream(list(prompt), params):
        if output.outputs[0].token_ids:
            times.append(time.perf_counter() - started)
    return RequestTimes(tuple(times), new)


def bench_latency(llm: LLM, prompts: Sequence[int] = (16, 128, 512), new: int = 64, repeats: int = 7, warmup: int = 1) -> Record:
    """TTFT, TPOT, ITL and e2e for each prompt length, the lengths taking turns."""
    taken: dict[int, list[RequestTimes]] = {length: [] for length in prompts}
    for round_ in range(warmup + repeats):
        for length in prompts:
            times = one_request(llm, random_prompt(llm, length, round_), new)
            if round_ >= warmup:
                taken[length].append(times)
    rows: list[dict[str, Any]] = []
    for length, requests in taken.items():
        summary = summarize(requests)
        rows.append({"prompt tokens": length, "output tokens": new, **{name: round(value, 3) for name, value in summary.items()},
                     "prefill tok/s": round(length / summary["median_ttft_ms"] * 1e3, 1),
                     "decode tok/s": round(1e3 / summary["median_tpot_ms"], 1)})
    samples = {str(length): [list(request.chunks) for request in requests] for length, requests in taken.items()}
    return make("latency", rows, {"repeats": repeats, "warmup": warmup, "order": "lengths in turn"}, samples, llm.engine.ops)
