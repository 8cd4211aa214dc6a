"""Turns a Python function into a kernel: a compiled C function, cached on disk, that a program calls by address.

Every kernel has the one signature (arguments, thread, threads, barrier): the address of its row of 64-bit arguments, which
thread of how many this is, and the address of the barrier that the threads share. Compiling takes seconds, loading
milliseconds; the cache folder is keyed by the sources, so an edited or upgraded kernel is never mistaken for its past self.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import numba
from numba import cfunc, njit, types

from ...paths import cache_dir
from .dot import VARIANT
from .half import HARDWARE

SIGNATURE = types.void(types.int64, types.int64, types.int64, types.int64)


def _cache_key() -> str:
    digest = hashlib.sha256(f"{numba.__version__} {VARIANT} {HARDWARE}".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def cached(decorator: Callable, function: Callable):
    """Apply a Numba decorator with this package's own cache folder."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_dir("kernels", _KEY))
    try:
        return decorator(function)
    finally:
        numba.config.CACHE_DIR = before


_KEY = _cache_key()
_REGISTRY: dict[str, Kernel] = {}


class Kernel:
    """A kernel that compiles, or loads from the cache, when its address is first asked for."""

    def __init__(self, function: Callable):
        self.name, self.python = function.__name__, function
        self.__doc__ = function.__doc__
        _REGISTRY[self.name] = self

    @cached_property
    def compiled(self):
        return cached(cfunc(SIGNATURE, cache=True), self.python)

    @cached_property
    def address(self) -> int:
        return self.compiled.address


def kernel(function: Callable) -> Kernel:
    """Decorator: register `function` as a kernel."""
    return Kernel(function)


inline = njit(error_model="numpy")
# Copied into its caller as source: lets a kernel hand a function to a loop and still be cached.
template = njit(error_model="numpy", inline="always")


def compile_all() -> Iterator[tuple[int, int, str]]:
    """Compile every kernel, yielding (done, total, name) as each is ready."""
    for done, (name, item) in enumerate(sorted(_REGISTRY.items()), 1):
        item.address
        yield done, len(_REGISTRY), name
