"""The kernels that the offline compiler is held to: argument types, threads a CTA, and the instructions that must be there.

Plain data: reading it imports no kernel.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

WIDE_LOAD, WIDE_STORE, COPY = "128-bit loads", "128-bit stores", "128-bit async copies"
MMA, INTEGER_MMA, TILES, SHUFFLE, BYTE_DOT = "mma", "int8 mma", "ldmatrix", "shuffles", "byte dots"
OPCODES = {
    WIDE_LOAD: r"LDG\.E\S*128", WIDE_STORE: r"STG\.E\S*128", COPY: r"LDGSTS\.E\S*128", MMA: "HMMA", INTEGER_MMA: "IMMA",
    TILES: "LDSM", SHUFFLE: "SHFL", BYTE_DOT: "IDP",
}

V, M = "float32[::1]", "float32[:,::1]"
M16 = "float16[:,::1]"


@dataclass(frozen=True)
class Build:
    """One kernel to compile: where it is, its argument types, threads a CTA, and what its SASS must hold (keys of OPCODES).
    `sizes` are the arguments of a kernel factory; a plain kernel has none."""

    module: str
    name: str
    types: tuple[str, ...]
    threads: int
    must: tuple[str, ...] = ()
    sizes: tuple = ()
    dynamic_shared: int = 0

    @property
    def label(self) -> str:
        return self.name + (f"[{', '.join(map(str, self.sizes))}]" if self.sizes else "")

    @property
    def signature(self) -> str:
        return f"void({', '.join(self.types)})"

    def load(self) -> Any:
        """The `@cuda.jit` kernel itself; imports its module (and so `numba.cuda`)."""
        found = getattr(importlib.import_module(f"{__package__}.{self.module}"), self.name)
        return found(*self.sizes) if self.sizes else found


LADDER = (
    Build("ladder.vector_add", "vector_add", (V, V, V), 256),
    Build("ladder.vector_add", "vector_add_wide", (V, V, V), 256, (WIDE_LOAD, WIDE_STORE)),
    Build("ladder.coalescing", "scale_thread_per_row", (M, "float32", M), 256),
    Build("ladder.coalescing", "scale_thread_per_column", (M, "float32", M), 256),
    Build("ladder.transpose", "transpose_naive", (M, M), 256),
    Build("ladder.transpose", "transpose_tiled", (M, M), 256),
    Build("ladder.transpose", "transpose_padded", (M, M), 256),
    Build("ladder.reduction", "sum_atomic", (V, V), 256),
    Build("ladder.reduction", "sum_tree", (V, V), 128),
    Build("ladder.reduction", "sum_shuffles", (V, V), 128, (SHUFFLE,)),
    Build("ladder.softmax", "softmax_three_passes", (M, M), 32, (SHUFFLE,)),
    Build("ladder.softmax", "softmax_online", (M, M), 32, (SHUFFLE,)),
    Build("ladder.matvec", "matvec_thread_per_row", (M, V, V), 128),
    Build("ladder.matvec", "matvec_warp_per_row", (M, V, V), 128, (SHUFFLE,)),
    Build("ladder.matvec", "matvec_float16_wide", (M16, V, V), 128, (WIDE_LOAD, SHUFFLE)),
    Build("ladder.matmul", "matmul_naive", (M, M, M), 256),
    Build("ladder.matmul", "matmul_tiled", (M, M, M), 256),
    Build("ladder.matmul", "matmul_tensor_cores", (M16, M16, M), 128, (MMA, TILES, COPY)),
    Build("ladder.practice", "saxpy", ("float32", V, V), 256),
    Build("ladder.practice", "quarter_turn", (M, M), 256),
    Build("ladder.practice", "row_max", (M, V), 128),
)

_ROWS = {"float32": M, "float16": M16, "bfloat16": "uint16[:,::1]"}
_WIDE = (WIDE_LOAD, WIDE_STORE)

_I1 = "int32[::1]"


def _rowwise(form: str) -> tuple[Build, ...]:
    rows = _ROWS[form]
    return (
        Build("norms", "rms_norm", (rows, M, "float32", rows), 128, (*_WIDE, SHUFFLE), (form,)),
        Build("elementwise", "rope", (rows, _I1, M, rows), 128, _WIDE, (form,)),
        Build("elementwise", "pointwise", (rows, rows, rows), 128, _WIDE, ("silu_mul", form)),
        Build("elementwise", "store_kv", (rows, rows, _I1, rows, rows), 128, _WIDE, (form, form)),
    )


ELEMENTWISE = (
    *_rowwise("float32"), *_rowwise("float16"), *_rowwise("bfloat16"),
    Build("norms", "layer_norm", (M16, M, M, "float32", M16), 128, (*_WIDE, SHUFFLE), ("float16",)),
    Build("norms", "log_softmax", (M, M), 128, (SHUFFLE,)),
    Build("elementwise", "pointwise", (M16, M16, M16), 128, _WIDE, ("add", "float16")),
    Build("elementwise", "pointwise", (M16, M16, M16), 128, _WIDE, ("gelu", "float16")),
    Build("elementwise", "pointwise", ("float16[:,:]", "float16[:,:]", M16), 128, _WIDE, ("silu_mul", "float16")),
    Build("elementwise", "take_rows", (M16, _I1, M), 128, _WIDE, ("float16", "float32")),
)

_U4, _U5, _H4, _F3 = "uint32[:,:,:,::1]", "uint32[:,:,:,:,::1]", "float16[:,:,:,::1]", "float32[:,:,::1]"
_PACKED = {4: (_U4, _U4), 8: (_U5, _H4)}

LINEAR = (
    *(Build("linear.activations", "quantize", (rows, _I1, _U4, _F3), 128, (WIDE_LOAD, SHUFFLE), (form, False))
      for form, rows in _ROWS.items()),
    Build("linear.activations", "quantize", (M16, _I1, _U4, _F3), 128, (SHUFFLE,), ("float16", True)),
    *(Build("linear.matvec", "matvec", (*_PACKED[bits], _U4, _F3, V, M), 128, (WIDE_LOAD, BYTE_DOT, SHUFFLE),
            (bits, group, tokens, "float32"))
      for bits, group, tokens in ((4, 32, 1), (4, 32, 4), (4, 32, 8), (4, 64, 1), (4, 128, 1), (8, 32, 1), (8, 32, 8), (8, 128, 1))),
    *(Build("linear.matmul", "matmul", (*_PACKED[bits], _U4, _F3, V, M), 128, (WIDE_LOAD, INTEGER_MMA), (bits, group, tiles, "float32"))
      for bits, group, tiles in ((4, 32, 1), (4, 32, 4), (4, 128, 4), (8, 32, 1), (8, 32, 4), (8, 128, 4))),
    Build("linear.matvec", "matvec", (*_PACKED[4], _U4, _F3, V, M16), 128, (WIDE_LOAD, BYTE_DOT), (4, 32, 1, "float16")),
    Build("linear.matmul", "matmul", (*_PACKED[4], _U4, _F3, V, _ROWS["bfloat16"]), 128, (WIDE_LOAD, INTEGER_MMA), (4, 32, 2, "bfloat16")),
    *(Build("linear.embed", "embed", (*_PACKED[bits], _I1, M), 128, (), (bits, 32, "float32")) for bits in (4, 8)),
    *(Build("linear.dense", "dense", (_ROWS[form], _ROWS[kept], V, _ROWS[form]), 128, (WIDE_LOAD, SHUFFLE), (form, kept))
      for form, kept in (("float32", "float32"), ("float32", "bfloat16"), ("float16", "float16"), ("bfloat16", "bfloat16"))),
)

_F4 = "float32[:,:,:,::1]"
_PAGED = ("int32[:,::1]", _I1, _I1, "float32", "int32")

ATTENTION = (
    Build("attention.naive", "attention_naive", (M, M, M, "float32", M, M), 32, (SHUFFLE,)),
    Build("attention.online", "attention_online", (M, M, M, "float32", M), 32, (SHUFFLE,), (128,)),
    Build("attention.one_warp", "paged_one_warp", (V, _F3, _F3, _I1, "int32", "float32", V), 32, (SHUFFLE,)),
    *(Build("attention.decode", "paged_decode", (_ROWS[form], _ROWS[kept], _ROWS[kept], *_PAGED, "int32", _F4, _F4), 128,
            (WIDE_LOAD, SHUFFLE), (form, kept, dim, group, 16, 256))
      for form, kept, dim, group in (("float32", "float32", 64, 3), ("float32", "float16", 64, 3), ("float16", "float16", 64, 3),
                                     ("float16", "float16", 128, 4), ("float16", "float16", 128, 8), ("bfloat16", "bfloat16", 128, 4))),
    Build("attention.decode", "paged_decode", (M16, "uint8[:,::1]", "uint8[:,::1]", *_PAGED, "int32", _F4, _F4), 128, (SHUFFLE,),
          ("float16", "int8x8", 128, 4, 16, 256)),
    Build("kv_int8", "store_kv_int8", (M16, M16, _I1, "uint8[:,::1]", "uint8[:,::1]"), 128, (WIDE_LOAD, SHUFFLE), ("float16", 8, 128)),
    *(Build("attention.merge", "merge_splits", (_F4, _F4, _I1, _I1, "int32", "int32", _ROWS[form]), 128, (WIDE_LOAD, WIDE_STORE),
            (form, 128, 256))
      for form in _ROWS),
    *(Build("attention.flash", "flash_prefill", (_ROWS[form], _ROWS[form], _ROWS[form], *_PAGED, "int32", _ROWS[form]), 128,
            (MMA, TILES, COPY, SHUFFLE), (form, dim, group, 16))
      for form, dim, group in (("float16", 32, 1), ("float16", 64, 3), ("float16", 128, 4), ("bfloat16", 128, 4))),
)

SAMPLING = (Build("sampling", "sample", (M, V, _I1, V, V, V, M, _I1), 512, (SHUFFLE,), (512,)),)

BUILDS = LADDER + ELEMENTWISE + LINEAR + ATTENTION + SAMPLING
