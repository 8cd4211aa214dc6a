"""What the ops refuse before they launch anything: a kernel given a wrong array would not fail, it would read someone else's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from ...errors import TinyserveError
from .elements import FORMATS

HEAD_SIZES = (16, 32, 64, 128, 256)


class BadArgument(TinyserveError, ValueError):
    """An array that a kernel cannot take; the message names the argument and what is expected."""


def refuse(condition: Any, message: str) -> None:
    if condition:
        raise BadArgument(message)


def check_rows(memory: Any, name: str, x: Any, forms: Sequence[str] = tuple(FORMATS), multiple: int = 8) -> str:
    """The element format of an array whose last axis is contiguous and a multiple of `multiple`."""
    form = memory.form(x)
    refuse(form not in forms, f"{name} is {form}; it must be {' or '.join(forms)}.")
    refuse(x.shape[-1] % multiple, f"{name} has {x.shape[-1]} columns; they must be a multiple of {multiple}.")
    step = x.strides[-1] // x.itemsize if isinstance(x, np.ndarray) else x.stride(-1)
    apart = step != 1 and x.shape[-1] > 1 and 0 not in x.shape
    refuse(apart, f"{name} must have neighbouring values in its last axis; make it contiguous.")
    return form


def check_indices(memory: Any, name: str, x: Any, limit: Optional[int] = None) -> None:
    """A contiguous int32 array, with values in 0..limit-1 where they can be seen from the host."""
    refuse(memory.form(x) != "int32", f"{name} is {memory.form(x)}; it must be int32.")
    refuse(not (x.flags.c_contiguous if isinstance(x, np.ndarray) else x.is_contiguous()), f"{name} must be contiguous.")
    seen = memory.host(x)
    if seen is not None and limit is not None and seen.size:
        refuse(seen.min() < 0 or seen.max() >= limit, f"{name} holds {seen.min()}..{seen.max()}; it must stay in 0..{limit - 1}.")


def check_same(name: str, x: Any, other: Any) -> None:
    refuse(tuple(x.shape) != tuple(other.shape), f"{name}: shapes {tuple(x.shape)} and {tuple(other.shape)} differ.")


def check_heads(query_heads: int, key_heads: int, head_dim: int) -> None:
    refuse(query_heads % key_heads, f"q has {query_heads} heads, which is not a multiple of the cache's {key_heads}.")
    refuse(head_dim not in HEAD_SIZES, f"q has heads of {head_dim}; the kernels know {', '.join(map(str, HEAD_SIZES))}.")
