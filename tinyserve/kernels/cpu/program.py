"""Programs: a step of the model as rows of numbers, so that replaying it costs one call and no Python in between.

A row is one kernel call: its address, its work counter, its arguments (addresses, strides, sizes). Outside a recording an op is
a program of one row that runs at once; inside one it appends its row and computes nothing. Buffers that a recorded op asks
for come from an arena, and go back to it when the Python object that holds them dies, so a recording of thirty layers
needs the memory of one. This is CUDA graphs' idea with the allocator's private pool, in a hundred lines.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from typing import Any, Optional

import numpy as np

from .compiler import Kernel
from .team import Team

WORDS = 32
_ALIGN = 64


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An uninitialized array that starts on a cache line."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + _ALIGN, np.uint8)
    start = -raw.ctypes.data % _ALIGN
    return raw[start:start + size].view(dtype).reshape(shape)


def touched_as_used(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A zeroed array whose memory is taken page by page as it is written: huge pages would take 2 MB for one token's keys."""
    memory = mmap.mmap(-1, math.prod(shape) * np.dtype(dtype).itemsize)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype).reshape(shape)


def address(array: np.ndarray) -> int:
    """Where the array begins in memory."""
    return array.__array_interface__["data"][0]


class _Lease:
    """A buffer that returns to its arena when nothing refers to it any more."""

    def __init__(self, arena: Arena, buffer: np.ndarray, shape: tuple[int, ...], dtype: Any):
        self._arena, self._buffer = arena, buffer
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": np.dtype(dtype).str, "data": (address(buffer), False)}

    def __del__(self) -> None:
        self._arena.free.setdefault(self._buffer.nbytes, []).append(self._buffer)


class Arena:
    """Buffers of one recording, reused by exact size as its arrays die."""

    def __init__(self) -> None:
        self.free: dict[int, list[np.ndarray]] = {}

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array whose memory is shared with earlier, dead arrays of the recording."""
        size = -(-math.prod(shape) * np.dtype(dtype).itemsize // _ALIGN) * _ALIGN
        spare = self.free.get(size)
        buffer = spare.pop() if spare else aligned((size,), np.uint8)
        return np.asarray(_Lease(self, buffer, shape, dtype))


class Machine:
    """Runs kernels with a team, or records them."""

    def __init__(self, team: Team):
        self.team = team
        self._rows: Optional[list[list[int]]] = None
        self._keep: list[Any] = []
        self._arena: Optional[Arena] = None

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        """An output or scratch buffer of the op being called."""
        return aligned(shape, dtype) if self._arena is None else self._arena.empty(shape, dtype)

    def call(self, kernel: Kernel, *arguments: Any) -> None:
        """Run, or record, one kernel; arrays pass as their addresses, None as 0."""
        row = [kernel.address, 0]
        for x in arguments:
            if isinstance(x, np.ndarray):
                row.append(address(x))
                # Arena buffers outlive their lease through the arena itself; holding the array would stop their reuse.
                if self._rows is not None and not _leased(x):
                    self._keep.append(x)
            else:
                row.append(x or 0)
        row += [0] * (WORDS - len(row))
        if self._rows is None:
            self.team.run(np.array([row], np.int64))
        else:
            self._rows.append(row)

    def record(self, step: Callable[[], Any]) -> Callable[[], Any]:
        """Call `step` without computing; returns a function that replays it and returns the same output."""
        self._rows, self._keep, self._arena = [], [], Arena()
        try:
            output = step()
            program, keep, arena = np.array(self._rows, np.int64), self._keep, self._arena
        finally:
            self._rows, self._keep, self._arena = None, [], None

        def replay(_alive: Any = (keep, arena)) -> Any:
            self.team.run(program)
            return output

        return replay


def _leased(array: np.ndarray) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, _Lease)
