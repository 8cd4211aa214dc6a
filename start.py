#!/usr/bin/env python3
"""Set up tinyserve and run it, with nothing but Python 3.10 or newer.

    python3 start.py            environment, model, kernels, a short demo, then JupyterLab on the first chapter
    python3 start.py --no-lab   the same without JupyterLab (also what happens where there is no terminal)
    python3 start.py test       every test and every notebook; `test --fast` leaves out the slow ones

Each step that is done is skipped the next time, so an interrupted run goes on where it stopped, and with everything in the
cache no network is needed.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
DONE = VENV / "installed.txt"
FIRST_CHAPTER = ROOT / "notebooks" / "00_start_here.ipynb"


def venv_python(folder: Path = VENV) -> Path:
    """The environment's interpreter, where this system keeps it."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def wanted() -> str:
    """A fingerprint of what is to be installed: it changes with the requirements, the pins and the interpreter."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {ROOT}".encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def say(text: str) -> None:
    print(f"[tinyserve] {text}", flush=True)


def fail(text: str) -> "NoReturn":  # noqa: F821
    print(f"[tinyserve] {text}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def works(python: Path) -> bool:
    """True where the interpreter is there and has pip; half an environment is made again."""
    if not python.exists():
        return False
    return subprocess.run([str(python), "-m", "pip", "--version"], capture_output=True).returncode == 0


def make_environment() -> None:
    """`.venv` with everything that pyproject.toml asks for, at the versions of constraints.txt."""
    python = venv_python()
    if DONE.exists() and DONE.read_text() == wanted() and python.exists():
        return
    if not works(python):
        say("making .venv")
        shutil.rmtree(VENV, ignore_errors=True)
        try:
            venv.EnvBuilder(with_pip=True).create(VENV)
        except (OSError, subprocess.CalledProcessError) as problem:
            fail(f".venv could not be made ({problem}); on Debian and Ubuntu, install python3-venv, then run this again.")
    say("installing packages (a few minutes the first time; pip shows each)")
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "on",
               "-c", str(ROOT / "constraints.txt"), "-e", f"{ROOT}[dev]"]
    if subprocess.run(command, cwd=ROOT).returncode:
        fail("the packages could not be installed; see pip's last line above, check the network and the disk, and run this again.")
    DONE.write_text(wanted())


def step(title: str, *arguments: str) -> None:
    """Run a module of the environment; its own message says what went wrong."""
    say(title)
    code = subprocess.run([str(venv_python()), *arguments], cwd=ROOT).returncode
    if code:
        raise SystemExit(code if code > 0 else 1)


def prepare() -> None:
    make_environment()
    step("the model", "-m", "tinyserve.models.catalog", "smollm2")
    step("the kernels", "-m", "tinyserve.kernels.cpu")


def run_tests(arguments: list) -> int:
    """All tests in the environment; JUPYTER_* variables of an outer notebook would confuse the kernels that the tests start."""
    fast = "--fast" in arguments
    arguments = [argument for argument in arguments if argument != "--fast"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JUPYTER")}
    environment.update(PYTHONHASHSEED="0", PIP_DISABLE_PIP_VERSION_CHECK="1")
    tier = ["-m", "not full"] if fast else []
    command = [str(venv_python()), "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope", *tier, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


def open_lab() -> int:
    say("opening JupyterLab; stop it with Ctrl-C")
    return subprocess.run([str(venv_python()), "-m", "jupyter", "lab", str(FIRST_CHAPTER)], cwd=ROOT).returncode


def main() -> int:
    if sys.version_info < (3, 10):
        fail(f"Python 3.10 or newer is needed; this is {sys.version.split()[0]}. Run start.py with a newer python3.")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["test"], help="test: run every test")
    parser.add_argument("--no-lab", action="store_true", help="stop after the demo")
    options, rest = parser.parse_known_args()
    if rest and options.what != "test":
        parser.error(f"unknown option {rest[0]}")
    prepare()
    if options.what == "test":
        return run_tests(rest)
    step("a first answer", "-m", "tinyserve.cli", "demo")
    if options.no_lab or not sys.stdout.isatty():
        say("ready. `python3 start.py` in a terminal opens the first chapter in JupyterLab.")
        return 0
    return open_lab()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\n[tinyserve] stopped; run the same command to go on.", file=sys.stderr)
        sys.exit(130)
