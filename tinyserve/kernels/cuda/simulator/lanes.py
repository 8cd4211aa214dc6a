"""Runs the lanes (CUDA threads) of a CTA one at a time, switching where they meet: barriers and warp collectives.

Each lane is a greenlet that runs until it must wait. When all have stopped, the meetings whose members are all there take
place and those lanes go on. So a run is deterministic, a value can be exchanged without locks, and a meeting that can never
be complete is an error at once instead of a hang.
"""

from __future__ import annotations

import contextlib
import contextvars
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import greenlet
import numpy as np

from ....errors import TinyserveError

WARP = 32
OWN_CODE = ("tinyserve.kernels.cuda.warp", "tinyserve.kernels.cuda.simulator", "numba.")


class KernelFault(TinyserveError, RuntimeError):
    """A kernel did in the simulator what would crash, hang or be undefined on a GPU; the message names the lane and line."""


class LanesApart(KernelFault):
    """Lanes that had to meet at one barrier or collective were found at different places."""


@dataclass(slots=True)
class Meeting:
    """What a waiting lane waits for: a named operation at one place of the kernel, with what it brings."""

    name: str
    frame: Any
    brings: Any
    settle: Callable[[list], Sequence]
    whole_cta: bool

    @property
    def line(self) -> str:
        return line_of(kernel_part(self.frame))


class Lane:
    """One CUDA thread: its place in the CTA, and how many barriers it has passed."""

    __slots__ = ("thread_idx", "block_idx", "number", "warp", "lane", "waits", "result", "barriers", "warp_barriers", "copies",
                 "run", "cta", "thread_dim", "block_dim")

    def __init__(self, thread_idx: tuple, block_idx: tuple, number: int):
        self.thread_idx, self.block_idx, self.number = thread_idx, block_idx, number
        self.warp, self.lane = divmod(number, WARP)
        self.waits: Optional[Meeting] = None
        self.result: Any = None
        self.barriers = self.warp_barriers = 0
        self.copies: list[list] = [[]]
        self.run: Any = None
        self.cta: Sequence[Lane] = ()
        self.thread_dim: Any = None
        self.block_dim: Any = None

    def __str__(self) -> str:
        return f"thread {self.thread_idx} of CTA {self.block_idx}"


PATIENCE = 3_000_000
_running: list[Lane] = []
_accesses = [0]
_shuffles: list[random.Random] = []


@contextlib.contextmanager
def shuffled_lanes(seed: int) -> Iterator[None]:
    """Inside, lanes that may run are run in a random order (the same for the same seed) instead of by number. A kernel whose
    result changes depends on an order that a GPU does not promise."""
    _shuffles.append(random.Random(seed))
    try:
        yield
    finally:
        _shuffles.pop()


def _in_turn(lanes: list[Lane]) -> list[Lane]:
    return _shuffles[-1].sample(lanes, len(lanes)) if _shuffles else lanes


def current() -> Lane:
    """The lane that is running; outside a simulated kernel, an error."""
    if not _running:
        raise KernelFault("This function works inside a kernel only: launch a kernel that calls it.")
    return _running[-1]


def count_access() -> None:
    """Called at every element access: a lane that makes millions between two meetings waits for a value that no one will write,
    because the others cannot run until it meets them."""
    _accesses[0] += 1
    if _accesses[0] > PATIENCE:
        raise KernelFault(f"{current()} made {PATIENCE:,} memory accesses without a barrier (line {line_of(kernel_frame(3))}): it seems "
                          "to wait in a loop for another lane; use a barrier instead.")


def kernel_frame(depth: int = 1) -> Any:
    """The innermost Python frame that belongs to the kernel or one of its device functions."""
    return kernel_part(sys._getframe(depth))


def kernel_part(frame: Any) -> Any:
    """The first frame from here outwards that is no part of the simulator, the warp layer or Numba."""
    while frame.f_back is not None and _is_own(frame):
        frame = frame.f_back
    return frame


_own: dict[int, tuple] = {}


def _is_own(frame: Any) -> bool:
    code = frame.f_code
    found = _own.get(id(code))
    if found is None:
        found = _own[id(code)] = code, frame.f_globals.get("__name__", "").startswith(OWN_CODE)
    return found[1]


def line_of(frame: Any) -> str:
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


_positions: dict[int, tuple] = {}


def instruction(frame: Any) -> tuple:
    """What names the expression that a frame is at: its code and span of source columns. (Its offset in the bytecode will not
    do: CPython moves it by the inline caches once an instruction has been specialised.)"""
    code = frame.f_code
    if id(code) not in _positions:
        _positions[id(code)] = code, list(code.co_positions()) if hasattr(code, "co_positions") else None
    spans = _positions[id(code)][1]
    return id(code), spans[frame.f_lasti // 2] if spans else frame.f_lasti


def _same_place(a: Any, b: Any) -> bool:
    """True if two waiting frames are at the same instruction, and so are the calls that led there."""
    while a is not None and b is not None:
        if a.f_code is not b.f_code or (a.f_lasti != b.f_lasti and instruction(a) != instruction(b)):
            return False
        a, b = a.f_back, b.f_back
    return a is b


def meet(name: str, brings: Any, settle: Callable[[list], Sequence], whole_cta: bool = False) -> Any:
    """Wait until every lane of the warp (or CTA) is at this same call, then go on with this lane's part of the outcome.

    `settle` gets what the lanes brought, in lane order, and gives one result per lane.
    """
    lane = current()
    lane.waits = Meeting(name, sys._getframe(1), brings, settle, whole_cta)
    greenlet.getcurrent().parent.switch()
    return lane.result


def _ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 5] -> '0-2, 5'."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}-{b}" if a != b else f"{a}" for a, b in runs)


class Cta:
    """The lanes of one CTA and the loop that runs them."""

    def __init__(self, lanes: list[Lane], on_meeting: Callable[[list[Lane]], None]):
        self.lanes, self.on_meeting = lanes, on_meeting

    def run(self, body: Callable[[], None]) -> None:
        """Run `body` in every lane to its end; raises `KernelFault` (with the lane and line) if one fails or cannot go on."""
        with np.errstate(all="ignore"):
            context = contextvars.copy_context()
        for lane in self.lanes:
            lane.run, lane.cta = greenlet.greenlet(body), self.lanes
            lane.run.gr_context = context
        try:
            ready = self.lanes
            while ready:
                for lane in _in_turn(ready):
                    self._resume(lane)
                ready = self._hold_meetings()
        finally:
            for lane in self.lanes:
                if not lane.run.dead:
                    lane.run.throw()

    def _resume(self, lane: Lane) -> None:
        lane.waits, _accesses[0] = None, 0
        _running.append(lane)
        try:
            lane.run.switch()
        except KernelFault:
            raise
        except Exception as error:
            raise KernelFault(f"{lane} failed at {_deepest_line(error)}: {type(error).__name__}: {error}") from error
        finally:
            _running.pop()

    def _hold_meetings(self) -> list[Lane]:
        waiting = [lane for lane in self.lanes if lane.waits]
        if not waiting:
            return []
        groups = [self.lanes[i:i + WARP] for i in range(0, len(self.lanes), WARP)]
        complete = [group for group in groups if self._together(group, whole_cta=False)]
        if not complete and self._together(self.lanes, whole_cta=True):
            complete = [self.lanes]
        if not complete:
            raise LanesApart(self._explain(groups))
        for group in complete:
            self._settle(group)
        return [lane for group in complete for lane in group]

    @staticmethod
    def _together(group: list[Lane], whole_cta: bool) -> bool:
        meetings = [lane.waits for lane in group]
        if any(meeting is None or meeting.whole_cta != whole_cta for meeting in meetings):
            return False
        first = meetings[0].frame
        return (whole_cta or len(group) == WARP) and all(_same_place(first, meeting.frame) for meeting in meetings[1:])

    def _settle(self, group: list[Lane]) -> None:
        self.on_meeting(group)
        meeting = group[0].waits
        for lane, result in zip(group, meeting.settle([lane.waits.brings for lane in group])):
            lane.result = result
            lane.barriers += meeting.whole_cta
            lane.warp_barriers += meeting.name == "syncwarp"

    def _explain(self, groups: list[list[Lane]]) -> str:
        apart = next((g for g in groups if any(lane.waits and not lane.waits.whole_cta for lane in g)), self.lanes)
        where: dict[str, list[int]] = {}
        for lane in apart:
            text = f"wait at {lane.waits.name} ({lane.waits.line})" if lane.waits else "have left the kernel"
            where.setdefault(text, []).append(lane.number)
        if len(where) == 1 and len(apart) < WARP:
            where["do not exist: give the CTA a multiple of 32 threads"] = list(range(apart[-1].number + 1, apart[0].number + WARP))
        who = "; ".join(f"threads {_ranges(numbers)} {text}" for text, numbers in where.items())
        kind = "CTA" if apart is self.lanes else "warp"
        return (f"The lanes of a {kind} can never meet (CTA {apart[0].block_idx}): {who}. Every lane must reach the same "
                "barrier or collective: move it out of the branch or loop that only some lanes run.")


def _deepest_line(error: BaseException) -> str:
    """The kernel line that an exception came through last."""
    line, tb = "?", error.__traceback__
    while tb is not None:
        if not _is_own(tb.tb_frame):
            line = f"{tb.tb_frame.f_code.co_filename.rpartition('/')[2]}:{tb.tb_lineno}"
        tb = tb.tb_next
    return line
