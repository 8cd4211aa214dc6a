"""Keeps what every barrier and collective of a simulated kernel saw, to be played back step by step in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.cuda.simulator import kernel as numba_kernel

from .lanes import Lane
from .memory import WatchedArray, observers


@dataclass(frozen=True)
class Step:
    """One meeting: which CTA, what (`syncthreads`, `shfl_xor` ...), at which line, the threads that met, what each brought, where
    every thread of the CTA waits at that moment ("syncthreads file:line", "" if it has left), and the contents of shared memory."""

    block: tuple
    name: str
    line: str
    threads: tuple[int, ...]
    brought: tuple
    waits: tuple[str, ...]
    shared: dict[str, np.ndarray]


class StepRecorder:
    """An observer that appends a `Step` to `steps` at each meeting."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def launch(self, kernel: Any, grid: tuple, block: tuple) -> None:
        """Nothing to do: steps of several launches follow each other."""

    def access(self, lane: Lane, kind: str, array: WatchedArray, address: int, nbytes: int, frame: Any) -> None:
        """Nothing to do: only meetings are kept."""

    def meeting(self, lanes: list[Lane], name: str) -> None:
        arrays = numba_kernel._get_kernel_context().shared.arrays.values()
        shared = {array.name: array.data.copy() for array in arrays}
        threads, brought = zip(*((lane.number, lane.waits.brings) for lane in lanes))
        waits = tuple(f"{lane.waits.name} {lane.waits.line}" if lane.waits else "" for lane in lanes[0].cta)
        self.steps.append(Step(lanes[0].block_idx, name, lanes[0].waits.line, threads, brought, waits, shared))

    def cta_done(self, lanes: list[Lane]) -> None:
        """Nothing to do: the last meeting has been kept."""


@contextmanager
def record_steps() -> Iterator[StepRecorder]:
    """`with record_steps() as recorder: kernel[grid, block](...)`, then `recorder.steps`."""
    recorder = StepRecorder()
    observers.append(recorder)
    try:
        yield recorder
    finally:
        observers.remove(recorder)
