"""A team of threads that run one program together, meeting at a barrier after each instruction.

The caller's thread takes part, so one thread needs no hand-over at all. Threads spin at the barrier (the wait is shorter than
a system call) and yield the processor when it takes long. Work inside an instruction is claimed in chunks, so a core
that the system has borrowed slows the others little; the result never depends on who computed what.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
from collections import deque

import llvmlite.ir as ir
import numpy as np
from numba import njit, types

from .compiler import cached
from .memory import load_i64
from .vectors import I32, I64, call, op, pointer

MAX_THREADS = 64
_RELEASE = type(threading.Lock()).release
_GENERATION, _YIELD, _SLEEP = 64, 128, 136
_SPINS_BEFORE_YIELD = 2048
_YIELDS_BEFORE_SLEEP = 64
_NAP = 50  # microseconds


def _atomic_add(builder, address, amount):
    return builder.atomic_rmw("add", pointer(builder, address, I64), I64(amount), "seq_cst")


@op(types.int64, types.int64)
def claim(builder, arguments):
    """The next chunk of this instruction that nobody has taken: 0, 1, 2, … (the counter is the row's second word)."""
    return _atomic_add(builder, builder.add(arguments, I64(8)), 1)


@op(types.int64, types.int64)
def _arrive(builder, address):
    return _atomic_add(builder, address, 1)


@op(types.int64, types.int64)
def _load_shared(builder, address):
    return builder.load_atomic(pointer(builder, address, I64), "seq_cst", 8, typ=I64)


@op(types.void, types.int64, types.int64)
def _store_shared(builder, address, value):
    builder.store_atomic(value, pointer(builder, address, I64), "seq_cst", 8)


@op(types.void)
def _pause(builder):
    """Tell the core that it is spinning (nothing where it has no such instruction)."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        call(builder, "llvm.x86.sse2.pause", ir.VoidType())


@op(types.void, types.int64)
def _call_yield(builder, function):
    kind = ir.FunctionType(I32, [])
    builder.call(pointer(builder, function, kind), [])


@op(types.void, types.int64, types.int32)
def _call_sleep(builder, function, time):
    kind = ir.FunctionType(I32, [I32])
    builder.call(pointer(builder, function, kind), [time])


@op(types.void, types.int64, types.int64, types.int64, types.int64, types.int64)
def _call_kernel(builder, function, arguments, thread, threads, barrier):
    kind = ir.FunctionType(ir.VoidType(), [I64] * 4)
    builder.call(pointer(builder, function, kind), [arguments, thread, threads, barrier])


@njit
def wait_for_all(threads, barrier):
    """Return when all threads have come here."""
    if threads == 1:
        return
    generation = _load_shared(barrier + _GENERATION)
    if _arrive(barrier) == threads - 1:
        _store_shared(barrier, 0)
        _store_shared(barrier + _GENERATION, generation + 1)
        return
    spins = yields = 0
    while _load_shared(barrier + _GENERATION) == generation:
        _pause()
        spins += 1
        if spins == _SPINS_BEFORE_YIELD:
            spins = 0
            yields += 1
            # A thread that is still missing has lost its core to another program, perhaps to our own spinning.
            if yields < _YIELDS_BEFORE_SLEEP:
                _call_yield(load_i64(barrier + _YIELD))
            else:
                _call_sleep(load_i64(barrier + _SLEEP), _NAP)


def _execute(program, instructions, stride, thread, threads, barrier):
    for index in range(instructions):
        row = program + index * stride
        _call_kernel(load_i64(row), row, thread, threads, barrier)
        wait_for_all(threads, barrier)


def _system_calls() -> tuple[int, int]:
    """Addresses of the system's 'let another thread run' and 'sleep' (microseconds; milliseconds on Windows)."""
    if sys.platform == "win32":
        calls = (ctypes.windll.kernel32.SwitchToThread, ctypes.windll.kernel32.Sleep)
    else:
        library = ctypes.CDLL(None)
        calls = (library.sched_yield, library.usleep)
    yielding, sleeping = (ctypes.cast(call, ctypes.c_void_p).value for call in calls)
    return yielding, sleeping


def default_threads() -> int:
    """The processors that this process may use (`TINYSERVE_THREADS` overrides it)."""
    if wanted := os.environ.get("TINYSERVE_THREADS"):
        return max(1, min(MAX_THREADS, int(wanted)))
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MAX_THREADS, usable)


class Team:
    """`threads` threads, the caller's among them; the others sleep between programs."""

    def __init__(self, threads: int):
        self.threads = threads
        self._execute = cached(njit(types.void(*[types.int64] * 6), nogil=True, cache=True), _execute)
        self._barrier = np.zeros(32, np.int64)
        self._barrier[_YIELD // 8], self._barrier[_SLEEP // 8] = _system_calls()
        self._lock = threading.Lock()
        self._job: tuple[int, int, int] = (0, 0, 0)
        self._asleep = [threading.Lock() for _ in range(threads - 1)]
        for lock in self._asleep:
            lock.acquire()
        for thread in range(1, threads):
            threading.Thread(target=self._work, args=(thread,), daemon=True, name=f"tinyserve-{thread}").start()

    def _work(self, thread: int) -> None:
        while True:
            self._asleep[thread - 1].acquire()
            self._execute(*self._job, thread, self.threads, self._barrier.ctypes.data)

    def run(self, program: np.ndarray) -> None:
        """Run program[instructions, words] (int64; word 0 the kernel's address, word 1 its work counter)."""
        with self._lock:
            program[:, 1] = 0
            self._job = (program.ctypes.data, program.shape[0], program.strides[0])
            mine = (*self._job, 0, self.threads, self._barrier.ctypes.data)
            wake_all = map(_RELEASE, self._asleep)
            try:
                deque(wake_all, 0)
            except BaseException:  # Ctrl-C, after the call: the others are awake and will wait for this thread
                self._execute(*mine)
                raise
            self._execute(*mine)
