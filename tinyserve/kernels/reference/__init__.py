"""The op set in plain torch: what every op means, and the oracle that the fast kernels are tested against."""

from .kernel_set import ReferenceKernels

__all__ = ["ReferenceKernels"]
