"""What every kernel test does: run in the simulator with guarded, NaN-poisoned outputs, look for races, hold the header to the counts."""

import numpy as np

from tinyserve.kernels.cuda.header import differences
from tinyserve.kernels.cuda.simulator import count_traffic, find_races


def poisoned(*shape, dtype=np.float32):
    """An output that is wrong wherever the kernel leaves it alone: NaN, or the largest integer."""
    out = np.empty(shape, dtype)
    out.fill(np.nan if out.dtype.kind == "f" else np.iinfo(out.dtype).max)
    return out


def counted(kernel, launch, *arguments):
    """Launch and return the `Traffic`."""
    with count_traffic() as counter:
        kernel[launch](*arguments)
    return counter.last


def assert_header(kernel, traffic, **sizes):
    wrong = differences(kernel, traffic, **sizes)
    assert not wrong, f"(promised, counted): {wrong}"


def assert_no_races(kernel, launch, *arguments):
    with find_races() as found:
        kernel[launch](*arguments)
    assert not found.races, found.report()
