"""Counts what a simulated kernel moves: reads, writes, bytes, 32-byte sectors, shared-memory passes, barriers.

The counts do not depend on the machine, so they can be compared exactly. Accesses that the lanes of a warp make at the same
instruction, the same time round, are one request, as the hardware issues them: a request to global memory costs the number of
32-byte sectors that it touches; one to shared memory costs a pass for each different word that the busiest bank must deliver.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .lanes import Lane, instruction, line_of
from .memory import WatchedArray, observers

SECTOR, BANKS, WORD = 32, 32, 4


@dataclass
class Traffic:
    """The counts of one launch. Reads and writes count one per lane and instruction, whatever its width; bytes are what the
    lanes asked for; sectors are what the memory moved for them; `by_line` holds the same counts for each source line."""

    kernel: str = ""
    grid: tuple = ()
    block: tuple = ()
    global_reads: int = 0
    global_read_bytes: int = 0
    global_writes: int = 0
    global_write_bytes: int = 0
    read_sectors: int = 0
    write_sectors: int = 0
    distinct_read_sectors: int = 0
    shared_reads: int = 0
    shared_read_bytes: int = 0
    shared_writes: int = 0
    shared_write_bytes: int = 0
    shared_passes: int = 0
    bank_conflicts: int = 0
    atomics: int = 0
    barriers: int = 0
    by_line: dict[str, Counter] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, line: str, **counts: int) -> None:
        for name, count in counts.items():
            setattr(self, name, getattr(self, name) + count)
            self.by_line[line][name] += count

    @property
    def counts(self) -> dict[str, int]:
        """Every count by name, zeros left out."""
        return {name: value for name, value in vars(self).items() if isinstance(value, int) and value}

    @property
    def read_efficiency(self) -> float:
        """The share of the sectors' bytes that lanes asked for: 1.0 when every access is coalesced, above it when lanes share."""
        return self.global_read_bytes / (SECTOR * self.read_sectors) if self.read_sectors else 1.0

    def table(self) -> str:
        """The counts as lines of text, for a notebook."""
        return "\n".join(f"{name.replace('_', ' '):>22}  {value:>12,}" for name, value in self.counts.items())


def shared_passes(accesses: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """(passes, passes without conflicts) of one warp's accesses, each (address, bytes). Lanes are served 32, 16 or 8 at a time
    for 4, 8 or 16 bytes each; within a pass a bank delivers one word, to as many lanes as want it."""
    lanes_at_once = BANKS * WORD // max(WORD, accesses[0][1])
    passes = phases = 0
    for start in range(0, len(accesses), lanes_at_once):
        words = {(address + offset) // WORD for address, nbytes in accesses[start:start + lanes_at_once]
                 for offset in range(0, nbytes, WORD)}
        passes += max(Counter(word % BANKS for word in words).values())
        phases += 1
    return passes, phases


class TrafficCounter:
    """An observer that fills one `Traffic` per launch; `launches` holds them in order."""

    def __init__(self) -> None:
        self.launches: list[Traffic] = []
        self._turns: Counter = Counter()
        self._requests: dict[tuple, list] = defaultdict(list)
        self._read: set[int] = set()

    @property
    def last(self) -> Traffic:
        """The counts of the newest launch."""
        return self.launches[-1]

    def launch(self, kernel: Any, grid: tuple, block: tuple) -> None:
        self.launches.append(Traffic(kernel.__name__, grid, block))
        self._read = set()

    def access(self, lane: Lane, kind: str, array: WatchedArray, address: int, nbytes: int, frame: Any) -> None:
        if kind == "async done":
            return
        action = kind.removeprefix("async ")
        what = (instruction(frame), action, array.space)
        self._turns[lane.number, what] += 1
        turn = self._turns[lane.number, what]
        self._requests[lane.warp, what, turn, line_of(frame)].append((address, nbytes))

    def meeting(self, lanes: list[Lane], name: str) -> None:
        if name.startswith("syncthreads"):
            self.last.add(lanes[0].waits.line, barriers=1)

    def cta_done(self, lanes: list[Lane]) -> None:
        for (_, (_, action, space), _, line), accesses in self._requests.items():
            getattr(self, f"_{space}")(action, line, accesses)
        self._turns.clear()
        self._requests.clear()

    def _global(self, action: str, line: str, accesses: list) -> None:
        sectors = {part for address, nbytes in accesses for part in range(address // SECTOR, (address + nbytes - 1) // SECTOR + 1)}
        nbytes = sum(size for _, size in accesses)
        if action == "atomic":
            self.last.add(line, atomics=len(accesses))
        elif action == "write":
            self.last.add(line, global_writes=len(accesses), global_write_bytes=nbytes, write_sectors=len(sectors))
        else:
            new = len(sectors - self._read)
            self._read |= sectors
            self.last.add(line, global_reads=len(accesses), global_read_bytes=nbytes, read_sectors=len(sectors), distinct_read_sectors=new)

    def _shared(self, action: str, line: str, accesses: list) -> None:
        passes, without_conflicts = shared_passes(accesses)
        nbytes = sum(size for _, size in accesses)
        self.last.add(line, shared_passes=passes, bank_conflicts=passes - without_conflicts)
        if action == "atomic":
            self.last.add(line, atomics=len(accesses))
        elif action == "write":
            self.last.add(line, shared_writes=len(accesses), shared_write_bytes=nbytes)
        else:
            self.last.add(line, shared_reads=len(accesses), shared_read_bytes=nbytes)


@contextmanager
def count_traffic() -> Iterator[TrafficCounter]:
    """`with count_traffic() as counter: kernel[grid, block](...)`, then `counter.last` is that launch's `Traffic`."""
    counter = TrafficCounter()
    observers.append(counter)
    try:
        yield counter
    finally:
        observers.remove(counter)
