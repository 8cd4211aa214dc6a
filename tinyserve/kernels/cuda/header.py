"""A kernel's header, read as data: its docstring gives the counts as formulas, and the tests hold the simulator's counts to them.

A line such as `global_read_bytes: 4 * rows * columns` is an expression in the sizes named in that docstring; `ceil(a, b)` rounds
a quotient up. The names are those of `simulator.Traffic`, and `flops` (one multiply-add is two).
"""

from __future__ import annotations

import re
from typing import Any

_FORMULA = re.compile(r"^\s*([a-z_]+): (.+)$", re.MULTILINE)
COUNTS = {
    "flops", "global_reads", "global_read_bytes", "global_writes", "global_write_bytes", "read_sectors", "write_sectors",
    "distinct_read_sectors", "shared_reads", "shared_read_bytes", "shared_writes", "shared_write_bytes", "shared_passes",
    "bank_conflicts", "atomics", "barriers",
}


def ceil(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def formulas(kernel: Any) -> dict[str, str]:
    """{count: expression} from the header of a `@cuda.jit` kernel."""
    text = getattr(kernel, "py_func", kernel).__doc__ or ""
    return {name: expression for name, expression in _FORMULA.findall(text) if name in COUNTS}


def expected(kernel: Any, **sizes: int) -> dict[str, int]:
    """The counts that the header promises for these sizes; an unknown size raises `NameError`."""
    names = {"__builtins__": {}, "ceil": ceil, "min": min, "max": max, "sum": sum, **sizes}
    return {name: eval(expression, names) for name, expression in formulas(kernel).items()}


def differences(kernel: Any, traffic: Any, **sizes: int) -> dict[str, tuple[int, int]]:
    """{count: (promised, counted)} where a launch's `Traffic` is not what the header says; empty if all is as promised."""
    promised = expected(kernel, **sizes)
    return {name: (value, getattr(traffic, name)) for name, value in promised.items()
            if name != "flops" and getattr(traffic, name) != value}
