"""`python -m tinyserve.kernels.cpu`: compile every kernel into the cache, with a progress line."""

from . import kernel_set  # noqa: F401  (registers the kernels)
from .compiler import compile_all
from .dot import VARIANT
from .team import Team

if __name__ == "__main__":
    print(f"kernels for this processor ({VARIANT}):", flush=True)
    for done, total, name in compile_all():
        print(f"  compiled {done}/{total} {name}", flush=True)
    Team(1)
