"""What a figure was measured on: processor, threads, versions, commit."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("tinyserve", "numpy", "numba", "llvmlite", "torch", "transformers", "tokenizers", "numba-cuda")


def processor() -> str:
    """The processor's own name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Installed versions of what matters, Python's too."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _git(*arguments: str) -> str | None:
    try:
        run = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() if run.returncode == 0 else None


def commit() -> dict[str, Any]:
    """{"commit": hash or None, "dirty": whether tracked files differ from it}."""
    status = _git("status", "--porcelain", "--untracked-files=no", "--", "tinyserve")
    return {"commit": _git("rev-parse", "HEAD"), "dirty": bool(status) if status is not None else None}


def describe(kernels: Any) -> dict[str, Any]:
    """The machine as a record keeps it."""
    return {"cpu": processor(), "system": f"{platform.system()} {platform.machine()}", "threads": kernels.threads,
            "dot products": getattr(kernels, "variant", kernels.name)}


def gpu() -> str:
    """The GPU that could be used, or why there is none."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "none: no NVIDIA driver answers (nvidia-smi is not there)"
    if run.returncode or not run.stdout.strip():
        return "none: nvidia-smi finds no GPU"
    return run.stdout.strip().splitlines()[0]


def resident_mb() -> float:
    """The most memory that this process has held so far, in MB; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0.0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3 / 1.024)
