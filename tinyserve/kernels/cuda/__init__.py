"""Numba CUDA kernels: one source that runs on a GPU, in the simulator, and through the offline compiler.

Importing this package loads neither numba nor a kernel: call `simulate()` first where there is no GPU, then import the kernels.

Read in this order: `ladder/` (first kernels, each a step faster than the last) - `warp/` (what 32 lanes can do together) -
`elements.py`, `block.py`, `norms.py`, `elementwise.py` - `linear/` (quantized products) - `attention/` - `sampling.py` - `kernel_set.py`
(the op set). `simulator/` runs them without a GPU and counts, checks and records; `header.py` holds their headers to the counts;
`report.py` compiles them for real and lists registers, spills and instructions.
"""

from .mode import WrongMode, simulate, simulated

__all__ = ["WrongMode", "simulate", "simulated"]
