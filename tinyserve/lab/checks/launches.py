"""A few small launches for every kernel of the catalog: what an exercise runs a learner's kernel on.

The ladder's arguments are written out here. The engine's kernels get theirs from the op set: an op is called in the simulator on
small arrays, and the launch that it makes of the kernel is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...kernels import layouts
from ...kernels.cuda.catalog import BUILDS, Build
from ...kernels.cuda.header import ceil


@dataclass(frozen=True)
class Launch:
    """`kernel[where](*arguments)` as the project makes it; arguments as they were before the launch."""

    kernel: Any
    where: tuple
    arguments: tuple

    def copies(self) -> list[Any]:
        """The arguments, for one run."""
        return [x.copy() if isinstance(x, np.ndarray) else x for x in self.arguments]


def _normal(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def _empty(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


def _vectors(per_thread: int) -> list[tuple]:
    return [((ceil(n, 32 * per_thread), 32), (_normal(n), _normal(n, seed=1), _empty(n))) for n in (4, 36 * per_thread)]


def _scaled(rows: int, columns: int) -> list[tuple]:
    return [((2, 32), (_normal(rows, columns), np.float32(3), _empty(rows, columns)))]


def _transposes() -> list[tuple]:
    return [(((ceil(n, 32), ceil(m, 32)), (32, 8)), (_normal(m, n), _empty(n, m))) for m, n in ((32, 64), (33, 5))]


def _sums(out: Callable[[], np.ndarray]) -> list[tuple]:
    """Whole numbers: their sum is exact in any order."""
    return [((2, 128), (np.arange(1, n + 1, dtype=np.float32), out())) for n in (300, 1)]


def _slopes(columns: int) -> np.ndarray:
    """Two rows below zero: the largest of one stands at its end, that of the other at its beginning."""
    rising = np.arange(-columns, 0, dtype=np.float32)
    return np.stack([rising, rising[::-1]])


def _products(block: int, rows: int, dtype: str = "float32") -> list[tuple]:
    return [((ceil(n, rows), block), (_normal(n, 64, dtype=dtype), _normal(64), _empty(n))) for n in (34, 3)]


def _matrices() -> list[tuple]:
    return [(((ceil(n, 16), ceil(m, 16)), (16, 16)), (_normal(m, 32), _normal(n, 32, seed=1), _empty(m, n)))
            for m, n in ((16, 16), (5, 3))]


_LADDER: dict[str, Callable[[], list[tuple]]] = {
    "vector_add": lambda: _vectors(1),
    "vector_add_wide": lambda: _vectors(4),
    "scale_thread_per_row": lambda: _scaled(40, 16),
    "scale_thread_per_column": lambda: _scaled(9, 40),
    "transpose_naive": _transposes,
    "transpose_tiled": _transposes,
    "transpose_padded": _transposes,
    "sum_atomic": lambda: [((3, 128), arguments) for _, arguments in _sums(lambda: np.zeros(1, np.float32))],
    "sum_tree": lambda: _sums(lambda: _empty(2)),
    "sum_shuffles": lambda: _sums(lambda: _empty(2)),
    "softmax_three_passes": lambda: [((3, 32), (60 * _normal(3, n), _empty(3, n))) for n in (77, 1)],
    "softmax_online": lambda: [((3, 32), (60 * _normal(3, n), _empty(3, n))) for n in (77, 1)],
    "matvec_thread_per_row": lambda: _products(32, 32),
    "matvec_warp_per_row": lambda: _products(128, 4),
    "matvec_float16_wide": lambda: _products(128, 4, "float16"),
    "matmul_naive": _matrices,
    "matmul_tiled": _matrices,
    "matmul_tensor_cores": lambda: [(((1, 1), 128), (_normal(5, 40, dtype="float16"), _normal(61, 40, dtype="float16"), _empty(5, 61)))],
    "saxpy": lambda: [((2, 32), (np.float32(3), _normal(n), _normal(n, seed=1))) for n in (200, 5)],
    "quarter_turn": _transposes,
    "row_max": lambda: [((len(x), 128), (x, _empty(len(x)))) for x in (_slopes(300), _slopes(5))],
    "attention_naive": lambda: [((3, 32), (_normal(3, 40), _normal(35, 40), _normal(35, 40, seed=1), np.float32(0.2),
                                           _empty(3, 35), _empty(3, 40)))],
    "attention_online": lambda: [((3, 32), (_normal(3, 128), _normal(35, 128), _normal(35, 128, seed=1), np.float32(0.1),
                                            _empty(3, 128)))],
    "paged_one_warp": lambda: [((1, 32), (_normal(32), _normal(6, 4, 32), _normal(6, 4, 32, seed=1), _integers(3, 1, 5, 0), np.int32(n),
                                          np.float32(0.3), _empty(32))) for n in (9, 1)],
}


def _quantized(ops: Any, rows: int = 20, columns: int = 64) -> Any:
    rng = np.random.default_rng(5)
    scales = rng.uniform(0.04, 0.08, (rows, columns // 32)).astype(np.float16)
    return ops.weight(layouts.pack_int4(rng.integers(0, 16, (rows, columns)).astype(np.uint8), scales, (-7.5 * scales).astype(np.float16)))


def _integers(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def _stored(ops: Any, form: str, kept: str, heads: int = 2) -> tuple[Any, Any]:
    caches, (k, v) = ops.new_cache(6, 4, heads, 32, kept), (_normal(20, heads, 32, dtype=form, seed=seed) for seed in range(2))
    ops.store_kv(k, v, _integers(*range(4, 24)), *caches)
    return caches


def _attend(form: str, heads: int, *rows: int) -> Callable[[Any], Any]:
    """Two sequences of 9 and 6 tokens, the last `rows` of each asking; two query heads for each of the key heads."""
    def call(ops: Any) -> Any:
        tables, starts = np.array([[3, 1, 5], [2, 4, 0]], np.int32), np.cumsum([0, *rows]).astype(np.int32)
        q, caches = _normal(sum(rows), 2 * heads, 32, dtype=form), _stored(ops, form, form, heads)
        return ops.attention(q, *caches, tables, starts, _integers(9, 6), 0.2)
    return call


def _sample(ops: Any) -> Any:
    options = np.array([[0, 1, 0.8], [0, 0, 5], [1, 0.9, 0.95], [0, 0, 0.05], [0.3, 0.6, 0.9]], np.float32)
    return ops.sample(_normal(3, 45), *options)


_OPS: dict[str, Callable[[Any], Any]] = {
    "rms_norm": lambda ops: ops.rms_norm(_normal(3, 40), _normal(40), 0.1),
    "layer_norm": lambda ops: ops.layer_norm(_normal(3, 40), _normal(40), _normal(40, seed=1), 1e-5),
    "log_softmax": lambda ops: ops.log_softmax(_normal(3, 50)),
    "rope": lambda ops: ops.rope(_normal(3, 2, 16), _normal(3, 1, 16), _integers(0, 5, 2), _normal(6, 16)),
    "pointwise": lambda ops: ops.silu_mul(_normal(3, 40), _normal(3, 40, seed=1)),
    "store_kv": lambda ops: _stored(ops, "float32", "float32"),
    "store_kv_int8": lambda ops: _stored(ops, "float16", "int8"),
    "take_rows": lambda ops: ops.take_rows(_normal(5, 16), _integers(4, 0)),
    "embed": lambda ops: ops.embed(_integers(19, 0, 7), _quantized(ops)),
    "dense": lambda ops: ops.linear(_normal(3, 64), ops.weight(layouts.pack_dense(_normal(20, 64))), _normal(20)),
    "quantize": lambda ops: ops.linear(_normal(3, 64), _quantized(ops)),
    "matvec": lambda ops: ops.linear(_normal(3, 64), _quantized(ops), _normal(20)),
    "matmul": lambda ops: ops.linear(_normal(11, 64), _quantized(ops), _normal(20)),
    "paged_decode": _attend("float32", 2, 1, 1),
    "merge_splits": _attend("float32", 2, 1, 1),
    "flash_prefill": _attend("float16", 1, 5, 1),
    "sample": _sample,
}


def find(name: str) -> Build | None:
    """The catalog's entry for a kernel's name, or for a rung of the ladder (`reduction`): its last kernel."""
    named = [build for build in BUILDS if build.name == name]
    rung = [build for build in BUILDS if build.module == f"ladder.{name}"]
    return named[0] if named else rung[-1] if rung else None


def launches(build: Build) -> Sequence[Launch]:
    """Small launches of one kernel, odd sizes among them; needs the simulator."""
    if build.name in _LADDER:
        return [Launch(build.load(), where, arguments) for where, arguments in _LADDER[build.name]()]
    return _recorded(build.name)


def _recorded(name: str) -> Sequence[Launch]:
    from ...kernels.cuda.kernel_set import CudaKernels
    from ...kernels.cuda.memory import SimulatedMemory

    kept: list[Launch] = []

    class Recording(SimulatedMemory):
        def launch(self, kernel: Any, grid: Any, block: int, *arguments: Any) -> None:
            if kernel.__name__ == name:
                before = tuple(x.copy() if isinstance(x, np.ndarray) else x for x in arguments)
                kept.append(Launch(kernel, (grid, block), before))
            super().launch(kernel, grid, block, *arguments)

    _OPS[name](CudaKernels(Recording()))
    return kept
