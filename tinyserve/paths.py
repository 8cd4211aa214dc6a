"""Where tinyserve keeps what it can make again: models, converted tokenizers, compiled kernels."""

import os
import sys
from pathlib import Path


def cache_dir(*parts: str) -> Path:
    """A folder under the user's cache (`TINYSERVE_CACHE` overrides it), made if it is not there."""
    if root := os.environ.get("TINYSERVE_CACHE"):
        base = Path(root)
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "tinyserve"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches" / "tinyserve"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tinyserve"
    folder = base.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
