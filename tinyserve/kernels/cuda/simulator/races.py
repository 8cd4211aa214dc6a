"""Finds data races in a simulated kernel: two lanes, one address, one of them writing, and nothing that orders them.

What orders two accesses: being made by the same lane; a barrier of the CTA between them; for lanes of one warp, `syncwarp`. Lanes
of different CTAs are never ordered within a launch. Two atomics do not race. `cp_async` writes at any time between its issue and
the end of the issuing lane's `cp_async_wait`: reading the target in between is a race even for the lane that asked for the copy.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .lanes import Lane
from .memory import WatchedArray, observers


@dataclass(frozen=True)
class Access:
    """Who touched an address, how, and in which line; `barriers` and `warp_barriers` are those that the lane had passed."""

    kind: str
    thread: tuple
    block: tuple
    warp: int
    number: int
    barriers: int
    warp_barriers: int
    file: str
    line: int

    @property
    def source(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"thread {self.thread} of CTA {self.block}: {self.kind} at {self.file.rpartition('/')[2]}:{self.line}  `{self.source}`"


@dataclass(frozen=True)
class Race:
    """Two unordered accesses to one byte of one array."""

    array: str
    address: int
    first: Access
    second: Access

    def __str__(self) -> str:
        return f"race on '{self.array}' (byte {self.address}), no barrier between\n  {self.first}\n  {self.second}"


def _ordered(a: Access, b: Access) -> bool:
    if a.block != b.block:
        return False
    if a.number == b.number or a.barriers != b.barriers:
        return True
    return a.warp == b.warp and a.warp_barriers != b.warp_barriers


class _Shadow:
    """What is remembered of one byte: its last write, the reads since, and a copy in flight."""

    __slots__ = ("write", "reads", "in_flight")

    def __init__(self) -> None:
        self.write: Any = None
        self.reads: dict[tuple, Access] = {}
        self.in_flight: Any = None


class RaceFinder:
    """An observer that collects `races`, one for each pair of source lines."""

    def __init__(self) -> None:
        self.races: list[Race] = []
        self._seen: set[tuple] = set()
        self._bytes: dict[tuple, _Shadow] = {}

    def report(self) -> str:
        """All races as text, or a sentence that there are none."""
        return "\n".join(map(str, self.races)) or "no races found"

    def launch(self, kernel: Any, grid: tuple, block: tuple) -> None:
        self._bytes.clear()

    def meeting(self, lanes: list[Lane], name: str) -> None:
        """Nothing to do: the lanes count their barriers themselves."""

    def cta_done(self, lanes: list[Lane]) -> None:
        self._bytes = {key: shadow for key, shadow in self._bytes.items() if key[0] == "global"}

    def access(self, lane: Lane, kind: str, array: WatchedArray, address: int, nbytes: int, frame: Any) -> None:
        access = Access(kind, lane.thread_idx, lane.block_idx, lane.warp, lane.number, lane.barriers, lane.warp_barriers,
                        frame.f_code.co_filename, frame.f_lineno)
        for byte in range(address, address + nbytes):
            shadow = self._bytes.setdefault((array.space, byte), _Shadow())
            if kind == "read":
                self._read(shadow, access, array, byte)
            else:
                self._write(shadow, access, array, byte)

    def _read(self, shadow: _Shadow, access: Access, array: WatchedArray, byte: int) -> None:
        if shadow.in_flight:
            self._report(array, byte, shadow.in_flight, access)
        elif shadow.write and not _ordered(shadow.write, access):
            self._report(array, byte, shadow.write, access)
        shadow.reads[access.block, access.number] = access

    def _write(self, shadow: _Shadow, access: Access, array: WatchedArray, byte: int) -> None:
        before = [*shadow.reads.values(), *([shadow.write] if shadow.write else [])]
        for other in before:
            if not _ordered(other, access) and not other.kind == access.kind == "atomic":
                self._report(array, byte, other, access)
        shadow.in_flight = access if access.kind == "async write" else None
        shadow.write, shadow.reads = access, {}

    def _report(self, array: WatchedArray, byte: int, first: Access, second: Access) -> None:
        pair = (first.file, first.line, first.kind, second.file, second.line, second.kind)
        if pair not in self._seen:
            self._seen.add(pair)
            self.races.append(Race(array.name, byte, first, second))


@contextmanager
def find_races() -> Iterator[RaceFinder]:
    """`with find_races() as found: kernel[grid, block](...)`, then `found.races` and `found.report()`."""
    finder = RaceFinder()
    observers.append(finder)
    try:
        yield finder
    finally:
        observers.remove(finder)
