"""Where `numba.cuda` runs in this process: on a GPU, or in the simulator. It is decided once, before its first import."""

from __future__ import annotations

import sys

from ...errors import TinyserveError


class WrongMode(TinyserveError, RuntimeError):
    """The simulator was asked for in a process that already drives the real compiler, or the other way round."""


def simulated() -> bool:
    """True if `numba.cuda` is, or will be, the simulator in this process."""
    import numba

    return bool(numba.config.ENABLE_CUDASIM)


def simulate() -> None:
    """Make `numba.cuda` the simulator in this process; call it before anything imports `numba.cuda`.

    Raises `WrongMode` if the real `numba.cuda` has been imported already: then start a new process (or kernel).
    """
    import numba

    if not numba.config.ENABLE_CUDASIM and "numba.cuda.dispatcher" in sys.modules:
        raise WrongMode("numba.cuda is already imported for real in this process; call simulate() first thing in a new one.")
    numba.config.ENABLE_CUDASIM = 1


def compile_for_real() -> None:
    """Check that `numba.cuda` is the real compiler here; raises `WrongMode` in a process that simulates."""
    if simulated():
        raise WrongMode("This process simulates CUDA; compile in another one (kernels.cuda.report starts it for you).")
