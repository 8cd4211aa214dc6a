"""Makes a peer's own virtual environment under `.peers/`, on request, and remembers what was installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

from ...errors import InvalidRequest
from .recipes import RECIPES, Recipe

RUNNERS = Path(__file__).parent / "runners"
_DONE = "made.json"


def peers_folder() -> Path:
    """`.peers/` of the current folder; TINYSERVE_PEERS overrides it."""
    return Path(os.environ.get("TINYSERVE_PEERS") or ".peers").resolve()


def recipe_for(name: str) -> Recipe:
    """The recipe of a peer; raises `InvalidRequest` for a name that has none."""
    if name not in RECIPES:
        raise InvalidRequest(f"There is no peer named {name!r}; the peers are {', '.join(RECIPES)}.")
    return RECIPES[name]


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment, there or not."""
    folder = peers_folder() / name
    return folder / "Scripts" / "python.exe" if sys.platform == "win32" else folder / "bin" / "python"


def is_made(name: str) -> bool:
    """True when `make` has finished for this recipe as it stands."""
    done = peers_folder() / name / _DONE
    return done.exists() and json.loads(done.read_text())["requirements"] == list(recipe_for(name).requirements)


def make(name: str) -> dict[str, str]:
    """Make a peer's environment and return its installed versions. An interrupted make starts again where pip left it.

    Raises `InvalidRequest` for an unknown name and `subprocess.CalledProcessError` when a step of the recipe fails.
    """
    recipe, folder = recipe_for(name), peers_folder() / name
    if not python_of(name).exists():
        venv.create(folder, with_pip=True)
    _pip(name, "install", *recipe.options, *recipe.requirements)
    if recipe.remove:
        _pip(name, "uninstall", "-y", *recipe.remove)
    versions = installed_versions(name)
    (folder / _DONE).write_text(json.dumps({"requirements": list(recipe.requirements), "versions": versions}, indent=1))
    return versions


def _pip(name: str, *arguments: str) -> None:
    subprocess.run([str(python_of(name)), "-m", "pip", *arguments], check=True, env={**os.environ, **recipe_for(name).environment})


def installed_versions(name: str) -> dict[str, str]:
    """Every distribution of a peer's environment and its version."""
    listing = subprocess.run([str(python_of(name)), "-m", "pip", "list", "--format=json"], check=True, capture_output=True, text=True)
    return {entry["name"]: entry["version"] for entry in json.loads(listing.stdout)}
