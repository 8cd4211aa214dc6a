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
        print(f"{name.replace('_', ' '):<16} {_words(value)}")


def diagnose() -> dict[str, Any]:
    """Facts by name. A part that is broken is reported in its place and hides no other."""
    from ..bench import machine

    parts: dict[str, Callable[[], Any]] = {
        "system": lambda: f"{platform.system()} {platform.release()}, {platform.machine()}", "processor": machine.processor,
        "cores": _cores, "features": _features, "memory_gb": _memory_gb, "gpu": machine.gpu, "kernels": _kernels,
        "kernel_cache": _kernel_cache, "model_cache": _model_cache, "versions": machine.versions}
    facts = {name: _try(part) for name, part in parts.items()}
    facts["will_run"] = _verdict(facts)
    return facts


def _try(part: Callable[[], Any]) -> Any:
    try:
        return part()
    except Exception as problem:  # a doctor reports what is broken
        return f"broken: {type(problem).__name__}: {problem}"


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_words(part)}" for name, part in value.items())
    return (", ".join(map(str, value)) or "none known") if isinstance(value, list) else str(value)


def _cores() -> dict[str, int]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"here": os.cpu_count() or 1, "usable": usable}


def _features() -> list[str]:
    from llvmlite import binding

    found = binding.get_host_cpu_features()
    return [name for name in FEATURES if found.get(name)]


def _memory_gb() -> Optional[float]:
    """All memory; None where the system does not say."""
    if not hasattr(os, "sysconf"):
        return None
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)


def _kernels() -> dict[str, Any]:
    from ..kernels import select
    from ..kernels.cpu.dot import supported_variants

    chosen = select("auto")
    facts = {"chosen": chosen.name, "threads": chosen.threads}
    if chosen.name == "cpu":
        facts.update(dot_products=chosen.variant, possible=supported_variants())
    return facts


def _kernel_cache() -> dict[str, Any]:
    from ..paths import cache_dir

    folder = cache_dir("kernels")
    return {"folder": str(folder), "mb": round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6, 1)}


def _model_cache() -> dict[str, str]:
    from ..models.catalog import CATALOG
    from ..paths import cache_dir

    folder = cache_dir("models")
    here = {name: (folder / entry.file).exists() and (folder / entry.file).stat().st_size == entry.size for name, entry in CATALOG.items()}
    return {"folder": str(folder), **{name: "is there" if there else "is fetched on first use" for name, there in here.items()}}


def _verdict(facts: dict[str, Any]) -> str:
    kernels = facts["kernels"]
    if not isinstance(kernels, dict):
        return "nothing, until what is broken above is mended: run `python3 start.py` again"
    if kernels["chosen"] != "cpu":
        return f"the {kernels['chosen']} kernels"
    why = "no GPU can be used" if str(facts["gpu"]).startswith("none") else "GPU kernels are not yet chosen by themselves"
    best = kernels["dot_products"] == kernels["possible"][0]
    how = "the best that this processor has" if best else f"asked for by TINYSERVE_DOT; {kernels['possible'][0]} is faster here"
    return f"the CPU kernels on {kernels['threads']} threads ({why}), with {kernels['dot_products']} dot products ({how})"
