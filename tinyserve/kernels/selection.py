"""Which kernels run: one set for a device, and a learner's own ops in place of any of its ops."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..errors import InvalidRequest
from .api import OPS

_overrides: ContextVar[Mapping[str, Callable]] = ContextVar("overrides", default={})
DEVICES = ("auto", "cpu", "reference", "cuda", "cuda-sim")


def overridden() -> bool:
    """True inside `use(...)`: every op is then called one by one, never replayed from a recording."""
    return bool(_overrides.get())


@contextlib.contextmanager
def use(**ops: Callable) -> Iterator[None]:
    """Run your own ops inside the real engine: `with use(attention=mine): llm.generate(...)`.

    Each function takes and returns torch tensors with the meaning that `kernels.api.KernelSet` gives that op. On the CPU the
    tensors are views of the engine's own arrays, so writing to a cache tensor writes to the cache.
    """
    unknown = [name for name in ops if name not in OPS]
    if unknown:
        raise InvalidRequest(f"There is no op named {unknown[0]!r}; the ops are {', '.join(OPS)}.")
    token = _overrides.set({**_overrides.get(), **ops})
    try:
        yield
    finally:
        _overrides.reset(token)


class Selected:
    """A kernel set whose ops give way to those of `use`."""

    def __init__(self, kernels: Any):
        self.kernels = kernels

    def __getattr__(self, name: str) -> Any:
        mine = _overrides.get().get(name)
        if mine is None:
            return getattr(self.kernels, name)
        return _with_tensors(mine) if self.kernels.name in ("cpu", "cuda-sim") else mine


def _with_tensors(op: Callable) -> Callable:
    """`op` on torch tensors, called with NumPy arrays; views both ways."""
    import torch

    def inward(x: Any) -> Any:
        return torch.from_numpy(x) if isinstance(x, np.ndarray) else x

    def outward(x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(outward(part) for part in x)
        if isinstance(x, torch.Tensor):
            return x.detach().to(torch.float32 if x.is_floating_point() else torch.int32).contiguous().numpy()
        return x

    def call(*arguments: Any, **named: Any) -> Any:
        return outward(op(*map(inward, arguments), **{key: inward(value) for key, value in named.items()}))

    return call


@functools.cache
def select(device: str = "auto") -> Selected:
    """The kernel set for a device: "cpu", "cuda", "cuda-sim" (the simulator), "reference" (plain torch) or "auto".

    "auto" is "cpu": the CUDA set is proven in the simulator and by its compiler's reports, not yet on a GPU, so it runs where it is
    named. Raises `InvalidRequest`."""
    if device not in DEVICES:
        raise InvalidRequest(f"Device {device!r} is not one of {', '.join(DEVICES)}.")
    return select("cpu") if device == "auto" else Selected(_KERNEL_SETS[device]())


def _gpu_works() -> bool:
    """Whether kernels could run on a GPU; asked without importing torch or numba.cuda where there is no driver."""
    if not any(os.path.exists(sign) for sign in ("/dev/nvidiactl", "/dev/dxg", os.path.expandvars(r"%SystemRoot%\System32\nvcuda.dll"))):
        return False
    from numba import cuda

    return bool(cuda.is_available())


def _cpu() -> Any:
    from .cpu.kernel_set import CpuKernels

    return CpuKernels()


def _reference() -> Any:
    from .reference import ReferenceKernels

    return ReferenceKernels()


def _cuda() -> Any:
    if not _gpu_works():
        raise InvalidRequest("There is no GPU that numba can use here; choose device \"cpu\", or \"cuda-sim\" to step through the kernels.")
    from .cuda.kernel_set import gpu_kernels

    return gpu_kernels()


def _cuda_sim() -> Any:
    from .cuda.mode import simulate

    simulate()
    from .cuda.kernel_set import simulated_kernels

    return simulated_kernels()


_KERNEL_SETS: Mapping[str, Callable[[], Any]] = {"cpu": _cpu, "reference": _reference, "cuda": _cuda, "cuda-sim": _cuda_sim}
