"""The compile report: what each kernel of the catalog costs on an architecture, without a GPU.

`compile_report()` starts a process of its own, because a process that simulates cannot compile. On the command line:
`python -m tinyserve.kernels.cuda.report [kernel ...]` prints the table.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from .catalog import BUILDS, OPCODES, Build
from .occupancy import ARCHITECTURES, occupancy
from .toolchain import ToolchainMissing, assemble, compile_ptx, missing_packages

DOUBLE = r"(?:D(?:ADD|MUL|FMA|SETP|MNMX)|\S*F64)"
LOCAL = r"(?:LDL|STL)"


@dataclass(frozen=True)
class Row:
    """One kernel on one architecture. `occupancy`: resident warps of all that fit, worked out from registers, shared memory and
    threads; `local`: local-memory instructions; `double`: float64 ones; `found`: how often each required instruction occurs."""

    kernel: str
    arch: str
    threads: int
    registers: int
    spilled_bytes: int
    stack_bytes: int
    shared_bytes: int
    occupancy: float
    local: int
    double: int
    found: dict[str, int]

    @property
    def faults(self) -> list[str]:
        """What breaks the rules for a kernel that is used: spills, local memory, float64, an instruction that is not there."""
        faults = [f"{count} {name}" for name, count in
                  (("spilled bytes", self.spilled_bytes), ("bytes of stack", self.stack_bytes),
                   ("local-memory instructions", self.local), ("float64 instructions", self.double)) if count]
        return faults + [f"no {name}" for name, count in self.found.items() if not count]


def measure(build: Build, arch: str) -> Row:
    """Compile and assemble one kernel in this process (where `numba.cuda` must be real)."""
    cc = ARCHITECTURES[arch].compute_capability
    assembly = assemble(compile_ptx(build.load(), build.signature, cc), cc)
    shared = assembly.shared_bytes + build.dynamic_shared
    return Row(build.label, arch, build.threads, assembly.registers, assembly.spilled_bytes, assembly.stack_bytes, shared,
               occupancy(arch, build.threads, assembly.registers, shared), assembly.count(LOCAL), assembly.count(DOUBLE),
               {name: assembly.count(OPCODES[name]) for name in build.must})


def compile_report(names: Sequence[str] = (), archs: Sequence[str] = ("sm_80", "sm_90")) -> list[Row]:
    """Compile the catalog (or the kernels named) for each architecture; about a second each and processor. Raises `ToolchainMissing`."""
    if missing := missing_packages():
        raise ToolchainMissing(f"The offline compiler is not complete: run `pip install {' '.join(missing)}`.")
    command = [sys.executable, "-m", __spec__.name, "--json", *(f"--arch={arch}" for arch in archs), *names]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ToolchainMissing((done.stderr.strip().splitlines() or ["the compile report failed"])[-1])
    return [Row(**row) for row in json.loads(done.stdout)]


def table(rows: Sequence[Row]) -> str:
    """The report as aligned text."""
    head = f"{'kernel':<34} {'arch':<6} {'threads':>7} {'regs':>5} {'spills':>6} {'shared':>7} {'warps':>6}  instructions"
    lines = [f"{row.kernel:<34} {row.arch:<6} {row.threads:>7} {row.registers:>5} {row.spilled_bytes:>6} {row.shared_bytes:>7} "
             f"{row.occupancy:>6.0%}  " + ("; ".join(row.faults) or ", ".join(f"{count} {name}" for name, count in row.found.items()))
             for row in rows]
    return "\n".join([head, *lines])


def main(arguments: Sequence[str]) -> None:
    archs = [argument.removeprefix("--arch=") for argument in arguments if argument.startswith("--arch=")] or ["sm_80", "sm_90"]
    names = [argument for argument in arguments if not argument.startswith("--")]
    builds = [build for build in BUILDS if not names or build.name in names]
    if not builds:
        raise SystemExit(f"No kernel of the catalog is named {' or '.join(names)}.")
    tasks = [(build, arch) for build in builds for arch in archs]
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(tasks)), get_context("spawn")) as workers:
        rows = list(workers.map(measure, *zip(*tasks), chunksize=4))
    print(json.dumps([dataclasses.asdict(row) for row in rows]) if "--json" in arguments else table(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
