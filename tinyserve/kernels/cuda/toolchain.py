"""From a Numba kernel to PTX to machine code (SASS) with no GPU: the compiler, the assembler's figures and the listing.

Needs the PyPI packages nvidia-cuda-nvrtc, nvidia-cuda-nvcc (ptxas) and nvidia-cuda-nvdisasm. The assembler must be as new as the compiler,
so only theirs is used, never the machine's. Must run in a process where `numba.cuda` is real (`report.py` sees to that).
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

from ...errors import TinyserveError
from .mode import compile_for_real

PACKAGES = {"bin/ptxas": "nvidia-cuda-nvcc", "bin/nvdisasm": "nvidia-cuda-nvdisasm", "lib/libnvrtc.so": "nvidia-cuda-nvrtc"}


class ToolchainMissing(TinyserveError, RuntimeError):
    """A part of the offline compiler is not installed, or refused a kernel."""


@dataclass(frozen=True)
class Assembly:
    """What the assembler says of one kernel on one architecture: registers a thread, bytes, and the SASS listing."""

    registers: int
    spilled_bytes: int
    stack_bytes: int
    shared_bytes: int
    sass: str

    def count(self, opcode: str) -> int:
        """How many instructions of the listing start with this pattern, e.g. r'LDG\\.E\\S*128' or 'HMMA'."""
        return len(re.findall(rf"^\s*(?:/\*\w+\*/)?\s*(?:@!?U?P\w+\s+)?{opcode}", self.sass, re.MULTILINE))


def _find(name: str) -> Optional[Path]:
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations if spec else ()
    return next((found for folder in folders or () for found in sorted(Path(folder).glob(f"*/{name}*"))), None)


def missing_packages() -> list[str]:
    """The PyPI packages that offline compilation still needs; empty if it can run."""
    needed = [package for name, package in PACKAGES.items() if _find(name) is None]
    return needed + ["numba-cuda"] * (importlib.util.find_spec("numba_cuda") is None)


def tool(name: str) -> Path:
    """The path of a tool of the pip toolkit, e.g. "bin/ptxas"; raises `ToolchainMissing` naming the packages to install."""
    found = _find(name)
    if found is None:
        raise ToolchainMissing(f"{name} is not installed: run `pip install {' '.join(missing_packages())}`.")
    return found


def compile_ptx(kernel: Any, signature: str, cc: tuple[int, int]) -> str:
    """The PTX of a `@cuda.jit` kernel for argument types such as 'void(float32[::1], int32)' on compute capability `cc`."""
    compile_for_real()
    from numba import cuda
    from numba.cuda import dispatcher
    from numba.cuda.core.sigutils import normalize_signature

    _forget_devices(kernel)
    known, dispatcher.get_current_device = dispatcher.get_current_device, lambda: SimpleNamespace(compute_capability=cc)
    try:
        arguments, _ = normalize_signature(signature)
        options = {key: kernel.targetoptions[key] for key in ("fastmath",) if kernel.targetoptions.get(key)}
        return cuda.compile(kernel.py_func, cuda.types.void(*arguments), cc=cc, output="ptx", device=False, abi="numba", **options)[0]
    finally:
        dispatcher.get_current_device = known


def _forget_devices(kernel: Any) -> None:
    """Device functions keep the code of the first architecture they were compiled for: drop it, all the way down."""
    for value in _referenced(kernel.py_func):
        if hasattr(value, "overloads") and hasattr(value, "py_func"):
            value.overloads.clear()
            _forget_devices(value)


def _referenced(function: Callable) -> list:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return cells + [function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__]


def assemble(ptx: str, cc: tuple[int, int]) -> Assembly:
    """Assemble PTX for `cc` and read registers, spills, shared memory and the instruction listing."""
    arch = f"sm_{cc[0]}{cc[1]}"
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        figures = _run([tool("bin/ptxas"), "-v", f"-arch={arch}", source, "-o", cubin])
        sass = _run([tool("bin/nvdisasm"), "-c", cubin])
    return Assembly(_figure(r"Used (\d+) registers", figures), _figure(r"(\d+) bytes spill stores", figures),
                    _figure(r"(\d+) bytes stack frame", figures), _figure(r"(\d+) bytes smem", figures), sass)


def _figure(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found.group(1)) if found else 0


def _run(command: list) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise ToolchainMissing(f"{Path(command[0]).name} refused the kernel: {(done.stderr or done.stdout).strip()[:500]}")
    return done.stdout + done.stderr
