"""Where the arrays of a kernel set live: NumPy in the simulator, torch on a GPU. Few methods, so that the ops are written once."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .elements import FORMATS


class SimulatedMemory:
    """NumPy arrays; bfloat16 as uint16."""

    name = "cuda-sim"
    sampling_threads = 32

    def array(self, host: np.ndarray) -> np.ndarray:
        return np.array(host)

    def numpy(self, array: np.ndarray) -> np.ndarray:
        return array

    def empty(self, shape: tuple, form: str) -> np.ndarray:
        """Memory for results, poisoned: what a kernel leaves out is seen."""
        dtype = np.dtype(FORMATS[form].dtype if form in FORMATS else form)
        return np.full(shape, np.nan if dtype.kind == "f" else np.iinfo(dtype).max, dtype)

    def zeros(self, shape: tuple, form: str) -> np.ndarray:
        return np.zeros(shape, FORMATS[form].dtype if form in FORMATS else form)

    def codes_of_slots(self, buffer: np.ndarray, heads: int, head_dim: int) -> np.ndarray:
        """The codes [B, P, Hk, D] at the beginning of each slot of an int8 buffer [B, P, bytes]."""
        return np.lib.stride_tricks.as_strided(buffer, (*buffer.shape[:2], heads, head_dim), (*buffer.strides[:2], head_dim, 1))

    def bytes_of_slots(self, cache: np.ndarray, width: int) -> np.ndarray:
        """A cache of INT8 codes [B, P, Hk, D] as the rows of bytes that it is a view of: uint8 [B * P, width]."""
        shape, strides = (cache.shape[0] * cache.shape[1], width), (width, 1)
        return np.lib.stride_tricks.as_strided(cache.view(np.uint8), shape, strides)

    def form(self, array: np.ndarray) -> str:
        return {np.dtype(np.uint16): "bfloat16"}.get(array.dtype, array.dtype.name)

    def host(self, array: np.ndarray) -> np.ndarray | None:
        """The values, where looking at them costs nothing."""
        return array

    def cast(self, array: Any, form: str) -> np.ndarray:
        return np.ascontiguousarray(array, form)

    def launch(self, kernel: Any, grid: Any, block: int, *arguments: Any) -> None:
        kernel[grid, block](*arguments)


@functools.cache
def _numba_stream(handle: int) -> Any:
    from numba import cuda

    return cuda.external_stream(handle)


class TorchMemory:
    """torch tensors on the current CUDA device; kernels run on torch's current stream."""

    name, device = "cuda", "cuda"
    sampling_threads = 512

    def __init__(self) -> None:
        import torch

        self.torch = torch

    def array(self, host: np.ndarray) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(host)).to(self.device, copy=True)

    def numpy(self, array: Any) -> np.ndarray:
        return (array.float() if array.dtype == self.torch.bfloat16 else array).cpu().numpy()

    def empty(self, shape: tuple, form: str) -> Any:
        return self.torch.empty(shape, dtype=getattr(self.torch, form), device=self.device)

    def zeros(self, shape: tuple, form: str) -> Any:
        return self.torch.zeros(shape, dtype=getattr(self.torch, form), device=self.device)

    def codes_of_slots(self, buffer: Any, heads: int, head_dim: int) -> Any:
        return buffer.as_strided((*buffer.shape[:2], heads, head_dim), (*buffer.stride()[:2], head_dim, 1))

    def bytes_of_slots(self, cache: Any, width: int) -> Any:
        return cache.view(self.torch.uint8).as_strided((cache.shape[0] * cache.shape[1], width), (width, 1))

    def form(self, array: Any) -> str:
        return str(array.dtype).rpartition(".")[2]

    def host(self, array: Any) -> None:
        """None: reading device memory would stop the stream."""

    def cast(self, array: Any, form: str) -> Any:
        return self.torch.as_tensor(array, device=self.device).to(getattr(self.torch, form)).contiguous()

    def launch(self, kernel: Any, grid: Any, block: int, *arguments: Any) -> None:
        stream = _numba_stream(self.torch.cuda.current_stream().cuda_stream)
        kernel[grid, block, stream](*(self._argument(argument) for argument in arguments))

    def _argument(self, value: Any) -> Any:
        from numba import cuda

        if not isinstance(value, self.torch.Tensor):
            return value
        return cuda.as_cuda_array(value.view(self.torch.uint16) if value.dtype == self.torch.bfloat16 else value, sync=False)
