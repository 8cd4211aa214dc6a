"""`tinyserve doctor`: what this machine is, what will run here, and why."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import Any, Optional

from .options import Json, print_json

FEATURES = ("avx2", "avx512f", "avx512vnni", "avx512bf16", "amx-int8", "neon", "dotprod", "i8mm")


def doctor(as_json: Json = False) -> None:
    """What this machine is, which kernels will run here, and why."""
    facts = diagnose()
    if as_json:
        return print_json(facts)
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<20} {_words(value)}")


def diagnose() -> dict[str, Any]:
    """Facts by name. A part that is broken is reported in its place and hides no other."""
    from ..bench import machine

    parts: dict[str, Callable[[], Any]] = {
        "processor": machine.processor, "system": lambda: f"{platform.system()} {platform.release()}, {platform.machine()}",
        "cores": lambda: os.cpu_count() or 1, "features": _features, "memory_gb": _memory_gb, "gpu": machine.gpu}
    facts = {name: _try(part) for name, part in parts.items()}
    kernels = _try(lambda: _kernels(str(facts["gpu"])))
    facts.update(kernels if isinstance(kernels, dict) else {"kernels": kernels})
    return {**facts, **{name: _try(part) for name, part in (
        ("kernel_cache", _kernel_cache), ("models", _models), ("versions", machine.versions))}}


def _try(part: Callable[[], Any]) -> Any:
    try:
        return part()
    except Exception as problem:  # a doctor reports what is broken
        return f"broken: {type(problem).__name__}: {problem}"


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_words(part)}" for name, part in value.items())
    return (", ".join(map(str, value)) or "none known") if isinstance(value, list) else str(value)


def _features() -> list[str]:
    from llvmlite import binding

    found = binding.get_host_cpu_features()
    return [name for name in FEATURES if found.get(name)]


def _memory_gb() -> Optional[float]:
    """All memory; None where the system does not say."""
    if not hasattr(os, "sysconf"):
        return None
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)


def _kernels(gpu: str) -> dict[str, Any]:
    """Which kernels `LLM(...)` takes here, why, and what they can do at most (measured: takes a second)."""
    from ..kernels import select

    chosen = select("auto")
    facts = {"device": chosen.name, "threads": getattr(chosen, "threads", None)}
    if chosen.name != "cpu":
        return {**facts, "why": f"the GPU is there: {gpu}"}
    from ..kernels.cpu.dot import supported_variants

    possible = supported_variants()
    why = "no GPU can be used" if gpu.startswith("none") else "the GPU kernels are not chosen by themselves yet"
    best = "the best that this processor has" if chosen.variant == possible[0] else f"asked for by TINYSERVE_DOT; {possible[0]} is faster"
    return {**facts, "dot_products": chosen.variant, "dot_products_possible": possible,
            "why": f"{why}; {chosen.variant} dot products are {best}; all give the same bits",
            "read_bandwidth_gb_s": round(chosen.read_bandwidth() / 1e9, 1), "dot_gop_s": round(chosen.dot_rate() / 1e9)}


def _kernel_cache() -> dict[str, Any]:
    from ..paths import cache_dir

    folder = cache_dir("kernels")
    return {"folder": str(folder), "mb": round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6, 1)}


def _models() -> dict[str, str]:
    from ..models.catalog import CATALOG
    from ..paths import cache_dir

    folder = cache_dir("models")
    here = {name: (folder / entry.file).exists() and (folder / entry.file).stat().st_size == entry.size for name, entry in CATALOG.items()}
    return {"folder": str(folder), **{name: "is there" if there else "is fetched on first use" for name, there in here.items()}}
