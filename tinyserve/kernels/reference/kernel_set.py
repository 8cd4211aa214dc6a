"""The reference kernel set: torch functions under the names of `api.OPS`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..layouts import Weight
from . import attention, linear, rowwise, sampling

_KV_TYPES = {"float32": torch.float32, "float16": torch.float16}


class ReferenceKernels:
    """`api.KernelSet` on torch tensors in host memory: slow, exact, and short enough to read in one sitting.

    Packed weights stay NumPy arrays. Any op can be handed to `kernels.use(...)` in place of a fast one.
    """

    name = "reference"
    kv_dtypes = tuple(_KV_TYPES)

    embed = staticmethod(rowwise.embed)
    rms_norm = staticmethod(rowwise.rms_norm)
    layer_norm = staticmethod(rowwise.layer_norm)
    add = staticmethod(rowwise.add)
    rope = staticmethod(rowwise.rope)
    silu_mul = staticmethod(rowwise.silu_mul)
    gelu = staticmethod(rowwise.gelu)
    linear = staticmethod(linear.linear)
    take_rows = staticmethod(rowwise.take_rows)
    store_kv = staticmethod(attention.store_kv)
    attention = staticmethod(attention.attention)
    sample = staticmethod(sampling.sample)
    log_softmax = staticmethod(sampling.log_softmax)

    @property
    def threads(self) -> int:
        """How many threads torch uses inside an op."""
        return torch.get_num_threads()

    def array(self, host: np.ndarray) -> Tensor:
        """A copy as a tensor."""
        return torch.from_numpy(np.array(host))

    def numpy(self, array: Tensor) -> np.ndarray:
        """The tensor's own memory as a NumPy array."""
        return array.detach().numpy()

    def weight(self, packed: Weight) -> Weight:
        """The weight itself: it is read where it lies."""
        return packed

    def new_cache(self, blocks: int, block_size: int, heads: int, head_dim: int, dtype: str) -> tuple[Tensor, Tensor]:
        """Zeroed key and value caches [B,P,Hk,D], 'float32' or 'float16'."""
        if dtype not in _KV_TYPES:
            raise ValueError(f"KV dtype {dtype!r} is not one of {', '.join(_KV_TYPES)}.")
        shape = (blocks, block_size, heads, head_dim)
        return torch.zeros(shape, dtype=_KV_TYPES[dtype]), torch.zeros(shape, dtype=_KV_TYPES[dtype])

    def recorder(self) -> None:
        """None: every op runs as it is called."""
        return None
