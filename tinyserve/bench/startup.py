"""A new process until its first token, the memory it then holds, and what importing the package costs."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

from ..kernels import select
from .records import Record, make

_FIRST_TOKEN = """
import time; started = time.perf_counter()
import json, sys
from tinyserve import LLM, SamplingParams
from tinyserve.bench.machine import resident_mb
llm = LLM(sys.argv[1])
loaded = time.perf_counter() - started
for output in llm.stream("The first token of a new process", SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)):
    if output.outputs[0].token_ids and "first" not in globals():
        first = time.perf_counter() - started
print(json.dumps({"loaded": loaded, "first": first, "resident": resident_mb()}))
"""
_IMPORT = "import time; started = time.perf_counter(); import tinyserve, json; print(json.dumps({'import': time.perf_counter() - started}))"


def _run(code: str, *arguments: str) -> dict[str, Any]:
    """A fresh interpreter; the time counts from its first line, so Python's own start is added by the caller's clock."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def bench_startup(model: str = "smollm2", repeats: int = 5) -> Record:
    """Medians over fresh processes, with warm caches (one uncounted run fills them)."""
    _run(_FIRST_TOKEN, model)
    taken: dict[str, list[float]] = {"import": [], "loaded": [], "first": [], "resident": []}
    for _ in range(repeats):
        for code, arguments in ((_IMPORT, ()), (_FIRST_TOKEN, (model,))):
            for name, value in _run(code, *arguments).items():
                taken[name].append(value)
    what = {"import": "import tinyserve, s", "loaded": "model loaded, s", "first": "first token, s",
            "resident": "resident after 64 tokens, MB"}
    rows = [{"what": what[name], "median": round(statistics.median(values), 3), "largest": round(max(values), 3)}
            for name, values in taken.items()]
    return make("startup", rows, {"repeats": repeats, "caches": "warm"}, taken, select("cpu"))
