"""The CPU kernel set: Numba kernels over packed weights, run by a team of threads. See `kernel_set.CpuKernels`."""
