"""These tests run kernels in Numba's CUDA simulator: it must be chosen before anything in the process imports numba.cuda.
What needs the real compiler runs in a process of its own (see test_report.py)."""

from tinyserve.kernels.cuda import simulate

simulate()
