"""Exercise checks, a module a chapter: `checks.ch02.store(my_store)` says whether it is right, and if not, what broke.

`checks.kernel("sum_tree")(my_kernel)` makes an exercise of any CUDA kernel of the catalog."""

from . import ch00, ch01, ch02, ch03, ch04
from .judge import Verdict
from .kernel import kernel

__all__ = ["Verdict", "ch00", "ch01", "ch02", "ch03", "ch04", "kernel"]
