"""The set-up cell: what this notebook runs on, and how large its examples are."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from types import SimpleNamespace

from ..errors import InvalidRequest
from .table import Table, table

SIZES = ("tiny", "full")
_size = "tiny"


def setup(chapter: str, size: str = "tiny") -> Table:
    """Say where the chapter runs. `size` "tiny" keeps every cell short, "full" uses sizes that a benchmark would.

    The environment variable TINYSERVE_SIZE overrides it, so that a whole course can be run at one size.
    """
    global _size
    _size = os.environ.get("TINYSERVE_SIZE", size)
    if _size not in SIZES:
        raise InvalidRequest(f"Size {_size!r} is not one of {', '.join(SIZES)}.")
    from ..kernels import select
    from ..kernels.cuda import simulated

    kernels = select("auto")
    device = f"{kernels.name}, {kernels.threads} threads, {kernels.variant} dot products" if kernels.name == "cpu" else kernels.name
    rows = [{"": "chapter", "here": chapter}, {"": "device", "here": device},
            {"": "python", "here": platform.python_version()}, {"": "size", "here": _size}]
    rows += [{"": name, "here": version(name)} for name in ("tinyserve", "numba", "numpy")]
    if simulated():
        rows.append({"": "CUDA kernels", "here": "SIM: simulated on this processor; counts are exact, their timings mean nothing"})
    caption = "" if kernels.name == "cuda" else "No GPU is used: timings are this processor's."
    return table(rows, caption)


def sizes(tiny: dict, full: dict) -> SimpleNamespace:
    """The numbers of this run: `sizes(dict(tokens=32), dict(tokens=512)).tokens`."""
    return SimpleNamespace(**(tiny if _size == "tiny" else full))
