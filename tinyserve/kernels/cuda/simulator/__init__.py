"""The simulator's engine room: lanes that meet, arrays that are watched, and the tools that watch them.

Importing it makes Numba's CUDA simulator run on these lanes. `count_traffic()` counts what a kernel reads and writes;
`find_races()` reports lanes that touch one address without a barrier between them; `record_steps()` keeps what each barrier saw;
`shuffled_lanes(seed)` runs lanes in another order, which must not matter; `judge(...)` says what is wrong with a kernel.
"""

from ..mode import WrongMode, simulated

if not simulated():
    raise WrongMode("The simulator's tools need the simulator: call tinyserve.kernels.cuda.simulate() before this import.")

from .device import install  # noqa: E402
from .judge import judge  # noqa: E402
from .lanes import KernelFault, LanesApart, shuffled_lanes  # noqa: E402
from .races import Race, find_races  # noqa: E402
from .steps import Step, record_steps  # noqa: E402
from .traffic import Traffic, count_traffic  # noqa: E402

install()

__all__ = ["KernelFault", "LanesApart", "Race", "Step", "Traffic", "count_traffic", "find_races", "judge", "record_steps", "shuffled_lanes"]
