"""Timings on a GPU from a notebook that simulates: they come from another process, or from the newest record."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ..bench import machine
from ..bench.records import FOLDER
from .records import record
from .table import Table, table

LIMIT = 240  # seconds: compiling twenty kernels, and a few milliseconds each


def gpu_ladder(folder: Path = FOLDER) -> Table:
    """Chapter 03's kernels timed on this machine's GPU; without one the newest record, or that none is recorded yet."""
    if not machine.gpu().startswith("none"):
        environment = {key: value for key, value in os.environ.items() if key != "NUMBA_ENABLE_CUDASIM"}
        command = [sys.executable, "-m", "tinyserve.bench.cuda_ladder"]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment)
        except subprocess.TimeoutExpired:
            return table([{"GPU": machine.gpu(), "result": f"no answer within {LIMIT} s"}])
        if run.returncode:
            return table([{"GPU": machine.gpu(), "result": (run.stderr.strip().splitlines() or ["no reason given"])[-1]}])
    return record("cuda-ladder", folder)
