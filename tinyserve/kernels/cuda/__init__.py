"""Numba CUDA kernels: one source that runs on a GPU, in the simulator, and through the offline compiler.

Importing this package imports nothing else: call `mode.simulate()` first where there is no GPU, then import the kernels.
"""
