"""Which kernels run: one set for a device, and a learner's own ops in place of any of its ops."""

from __future__ import annotations

import contextlib
import functools
from contextvars import ContextVar
from typing import Any, Callable, Iterator, Mapping

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
        return _with_tensors(mine) if self.kernels.name == "cpu" else mine


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


@functools.lru_cache(maxsize=None)
def select(device: str = "auto") -> Selected:
    """The kernel set for a device: "cpu", "cuda", "cuda-sim" (the simulator), "reference" (plain torch) or "auto"."""
    if device == "auto":
        device = "cpu"
    if device == "cpu":
        from .cpu.kernel_set import CpuKernels

        return Selected(CpuKernels())
    if device == "reference":
        from .reference import ReferenceKernels

        return Selected(ReferenceKernels())
    raise InvalidRequest(f"Device {device!r} cannot run here yet; choose one of auto, cpu, reference.")
