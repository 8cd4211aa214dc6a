"""What the name `cuda` means inside a simulated kernel, and the loop over the CTAs of a launch.

`install()` puts both in the place of Numba's own: same kernels, same launches, but with the lanes of `lanes.py` and the arrays of
`memory.py`. Numba's simulator starts an operating-system thread per lane (0.1 ms each) and cannot exchange values in a warp.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.cuda.simulator import kernel as numba_kernel
from numba.cuda.simulator import kernelapi
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray
from numba.np.numpy_support import as_dtype

from .lanes import Cta, KernelFault, Lane, current, instruction, kernel_frame, meet
from .memory import WatchedArray, observers, pointer, poisoned

ALIGNMENT = 256
STATIC_SHARED_BYTES = 48 * 1024


class _Local:
    def array(self, shape: Any, dtype: Any, alignment: Any = None) -> np.ndarray:
        return poisoned(shape, _numpy_dtype(dtype))


class _Shared:
    """Shared memory of the running CTA: one buffer for each place that asks for one."""

    def __init__(self, dynamic_bytes: int):
        self.dynamic_bytes = dynamic_bytes
        self.clear()

    def clear(self) -> None:
        self.arrays: dict[tuple, WatchedArray] = {}
        self._dynamic = poisoned(self.dynamic_bytes, np.uint8)
        self._end = self.dynamic_bytes

    def array(self, shape: Any, dtype: Any, alignment: Any = None) -> WatchedArray:
        dtype, frame = _numpy_dtype(dtype), kernel_frame(2)
        if shape == 0:
            whole = self.dynamic_bytes // dtype.itemsize * dtype.itemsize
            return WatchedArray(self._dynamic[:whole].view(dtype), "shared", f"dynamic shared, line {frame.f_lineno}", 0)
        key = instruction(frame)
        if key not in self.arrays:
            self.arrays[key] = self._allocate(shape, dtype, alignment or dtype.itemsize, f"shared, line {frame.f_lineno}")
        return self.arrays[key]

    def _allocate(self, shape: Any, dtype: np.dtype, alignment: int, name: str) -> WatchedArray:
        """A new array, no better aligned than it was asked for: what works here does not hang on luck."""
        start = -(-self._end // alignment) * alignment
        start += alignment * (start % (2 * alignment) == 0)
        array = WatchedArray(poisoned(shape, dtype), "shared", name, start)
        self._end = start + array.data.nbytes
        asked = array.data.nbytes + sum(other.data.nbytes for other in self.arrays.values())
        if asked > STATIC_SHARED_BYTES:
            raise KernelFault(f"The kernel asks for {asked} bytes of static shared memory; a CTA has {STATIC_SHARED_BYTES}. Use smaller "
                              "tiles, or dynamic shared memory.")
        return array


def _numpy_dtype(dtype: Any) -> np.dtype:
    return np.dtype(dtype) if isinstance(dtype, (type, np.dtype)) else as_dtype(dtype)


class _Atomic:
    """Numba's atomics, seen by the observers as one access each."""

    def __getattr__(self, name: str) -> Callable:
        plain = getattr(kernelapi.FakeCUDAAtomic(), name)

        def atomic(array: WatchedArray, index: Any, *values: Any) -> Any:
            array._checked(index)
            if observers:
                array.touch("atomic", index, array.data.itemsize)
            return plain(array.data, index, *values)
        return atomic


class _InPlace:
    """How an array reaches a simulated kernel: as it is. (Numba's own way copies it there and back, and refuses strided views.)"""

    def __init__(self, array: np.ndarray):
        self.array = array

    def to_device(self, retr: list, stream: Any = 0) -> FakeCUDAArray:
        return FakeCUDAArray(self.array)


def _root(array: np.ndarray) -> np.ndarray:
    """The array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class SimulatedCuda(kernelapi.FakeCUDAModule):
    """`cuda` inside a kernel: Numba's module, with our lanes, memories and barriers. One object lives for one launch."""

    def __init__(self, grid_dim: tuple, block_dim: tuple, dynshared_size: int):
        super().__init__(grid_dim, block_dim, dynshared_size)
        self._shared, self._local, self._atomic = _Shared(dynshared_size), _Local(), _Atomic()
        self.arguments: Any = None
        self._bases: dict[int, int] = {}
        self._end = ALIGNMENT
        self._swapped: set[int] = set()
        self._swaps = contextlib.ExitStack()

    threadIdx = property(lambda self: current().thread_dim)
    blockIdx = property(lambda self: current().block_dim)
    laneid = property(lambda self: current().lane)

    def syncthreads(self) -> None:
        meet("syncthreads", None, lambda brought: brought, whole_cta=True)

    def syncthreads_count(self, value: Any) -> int:
        return meet("syncthreads_count", value, lambda brought: [sum(map(bool, brought))] * len(brought), whole_cta=True)

    def syncthreads_and(self, value: Any) -> int:
        return meet("syncthreads_and", value, lambda brought: [int(all(brought))] * len(brought), whole_cta=True)

    def syncthreads_or(self, value: Any) -> int:
        return meet("syncthreads_or", value, lambda brought: [int(any(brought))] * len(brought), whole_cta=True)

    def syncwarp(self, mask: int = 0xFFFFFFFF) -> None:
        if mask not in (0xFFFFFFFF, -1):
            raise KernelFault("The simulator knows syncwarp of whole warps only: leave the mask out.")
        meet("syncwarp", None, lambda brought: brought)

    def enter(self, function: Callable) -> None:
        """Let `cuda` mean this object in the module of a device function, until `leave`."""
        module = id(function.__globals__)
        if module not in self._swapped:
            self._swapped.add(module)
            self._swaps.enter_context(kernelapi.swapped_cuda_module(function, self))

    def leave(self) -> None:
        self._swapped.clear()
        self._swaps.close()

    def bind(self, function: Callable, arguments: tuple) -> tuple:
        """The kernel's arguments as watched arrays, at addresses that stay the same for every CTA of the launch."""
        if self.arguments is None:
            names = function.__code__.co_varnames
            self.arguments = [self._bound(name, argument) for name, argument in zip(names, arguments)]
            for observer in observers:
                observer.launch(function, tuple(self.gridDim), tuple(self.blockDim))
        return tuple(self.arguments)

    def _bound(self, name: str, argument: Any) -> Any:
        if not isinstance(argument, numba_kernel.FakeWithinKernelCUDAArray):
            return argument
        data = argument._item._ary
        root = _root(data)
        if id(root) not in self._bases:
            self._bases[id(root)] = self._end
            self._end += -(-max(root.nbytes, 1) // ALIGNMENT) * ALIGNMENT
        return WatchedArray(data, "global", name, self._bases[id(root)] + pointer(data) - pointer(root))


class CtaRunner:
    """Runs one CTA after the other; it takes the place of Numba's `BlockManager`."""

    def __init__(self, function: Callable, grid_dim: tuple, block_dim: tuple, debug: bool):
        self.function, self.block_dim = function, block_dim

    def run(self, block_idx: tuple, *arguments: Any) -> None:
        cuda = numba_kernel._get_kernel_context()
        arguments = cuda.bind(self.function, arguments)
        cuda.shared.clear()
        lanes = [self._lane(block_idx, number) for number in range(int(np.prod(self.block_dim)))]
        try:
            Cta(lanes, _tell_meeting).run(lambda: self.function(*arguments))
        finally:
            cuda.leave()
        for observer in observers:
            observer.cta_done(lanes)

    def _lane(self, block_idx: tuple, number: int) -> Lane:
        x, y, _ = self.block_dim
        thread_idx = (number % x, number // x % y, number // (x * y))
        lane = Lane(thread_idx, tuple(block_idx), number)
        lane.thread_dim, lane.block_dim = kernelapi.Dim3(*thread_idx), kernelapi.Dim3(*block_idx)
        return lane


def _tell_meeting(lanes: list[Lane]) -> None:
    for observer in observers:
        observer.meeting(lanes, lanes[0].waits.name)


_plain_call = numba_kernel.FakeCUDAKernel.__call__


def _call(kernel: Any, *arguments: Any) -> Any:
    """A launch, or the call of a device function from a kernel (Numba's own way exchanges `cuda` anew at every call)."""
    cuda = numba_kernel._get_kernel_context()
    if cuda is None:
        return _plain_call(kernel, *arguments)
    cuda.enter(kernel.fn)
    return kernel.fn(*arguments)


def install() -> None:
    """Make `kernel[grid, block](...)` of Numba's simulator use these lanes and arrays; safe to call again."""
    numba_kernel.FakeCUDAModule = SimulatedCuda
    numba_kernel.BlockManager = CtaRunner
    numba_kernel.InOut = _InPlace
    numba_kernel.FakeCUDAKernel.__call__ = _call
