"""What every kernel test does: run in the simulator with guarded, NaN-poisoned outputs, look for races, hold the header to the counts."""

import numpy as np

from tinyserve.kernels.cuda.header import differences
from tinyserve.kernels.cuda.memory import TorchMemory
from tinyserve.kernels.cuda.simulator import count_traffic, find_races, shuffled_lanes


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
    """No race is found, and another order of the lanes gives the same bits (the last argument is the output)."""
    with find_races() as found:
        kernel[launch](*arguments)
    assert not found.races, found.report()
    first = arguments[-1].tobytes()
    with shuffled_lanes(1):
        kernel[launch](*arguments)
    assert arguments[-1].tobytes() == first, "the result depends on the order in which lanes run"


TOLERANCE = {
    "float32": {"rtol": 2e-5, "atol": 2e-6},
    "float16": {"rtol": 2e-3, "atol": 2e-3},
    "bfloat16": {"rtol": 1.6e-2, "atol": 1.6e-2},
}


def to_format(values, form):
    """float32 values as an element format holds them (bfloat16: the upper 16 bits)."""
    if form == "bfloat16":
        return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(form)


def from_format(values, form):
    """What an array of an element format stands for, in float64."""
    if form == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float64)


def poisoned_format(form, *shape):
    return np.full(shape, 0x7FFF, np.uint16) if form == "bfloat16" else poisoned(*shape, dtype=np.dtype(form))


class TorchInSimulator(TorchMemory):
    """Torch tensors as on a GPU, in host memory; the kernels see them through NumPy."""

    device, sampling_threads = "cpu", 32

    def launch(self, kernel, grid, block, *arguments):
        tensors = [self._argument(x) if isinstance(x, self.torch.Tensor) else x for x in arguments]
        kernel[grid, block](*tensors)

    def _argument(self, value):
        return (value.view(self.torch.uint16) if value.dtype == self.torch.bfloat16 else value).numpy()
