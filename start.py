#!/usr/bin/env python3
"""Set up tinyserve and run it, with nothing but Python 3.10 or newer.

    python3 start.py                  environment, model, kernels, a short demo, then JupyterLab on the first chapter
    python3 start.py --no-lab         the same without JupyterLab (also what happens where there is no terminal)
    python3 start.py test [options]   every test and every notebook; --fast leaves out the slow ones, pytest gets the rest

Whatever is done already is skipped, so an interrupted run goes on where it stopped, and once everything is there no network is
needed.
"""

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
_ALL_THERE = """
import re
from importlib.metadata import requires, version
for line in requires("tinyserve"):
    ";" in line or version(re.match(r"[\\w.-]+", line)[0])
"""


def say(text):
    """A line of progress."""
    print(f"[tinyserve] {text}", flush=True)


def fail(text):
    """End with one sentence and exit code 2."""
    print(f"[tinyserve] {text}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def venv_python():
    """The environment's interpreter, where this system keeps it."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def succeeds(*arguments):
    """True if the environment's interpreter is there and runs this without an error."""
    if not venv_python().exists():
        return False
    try:
        return subprocess.run([str(venv_python()), *arguments], cwd=VENV, capture_output=True).returncode == 0
    except OSError:
        return False


def extras():
    """What to install beyond the package: its tests, and the CUDA toolkit where an NVIDIA driver answers."""
    return "dev,gpu" if shutil.which("nvidia-smi") else "dev"


def wanted():
    """Where the environment stands and what belongs into it: other requirements, pins or another folder make it stale."""
    digest = hashlib.sha256(extras().encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((ROOT / name).read_bytes())
    return f"{ROOT}\n{digest.hexdigest()}\n"


def installed():
    """What was installed the last time to the end; "" if never."""
    return DONE.read_text(encoding="utf-8") if DONE.exists() else ""


def make_environment():
    """`.venv` with everything that pyproject.toml asks for, at the versions of constraints.txt."""
    if installed() == wanted() and succeeds("-c", _ALL_THERE):
        return
    moved = bool(installed()) and installed().splitlines()[0] != str(ROOT)  # its scripts name their old place
    if moved or not succeeds("-m", "pip", "--version"):
        say("making .venv")
        shutil.rmtree(VENV, ignore_errors=True)
        try:
            venv.EnvBuilder(with_pip=True).create(VENV)
        except (OSError, subprocess.CalledProcessError) as problem:
            fail(f".venv could not be made ({problem}): free some space, or on Debian and Ubuntu install python3-venv; then run "
                 "this again.")
    say("installing packages: minutes the first time, a few gigabytes on Linux (torch brings its CUDA libraries)")
    DONE.unlink(missing_ok=True)
    code = subprocess.run([str(venv_python()), "-m", "pip", "install", "--disable-pip-version-check", "-c", str(ROOT / "constraints.txt"),
                           "-e", f"{ROOT}[{extras()}]"], cwd=ROOT).returncode
    if code:
        fail("the packages could not be installed: pip's last lines above say why. Check the network, the disk, and that Python is "
             f"3.10 to 3.14 (this is {sys.version.split()[0]}); then run this again.")
    DONE.write_text(wanted(), encoding="utf-8")


def step(title, *arguments):
    """Run a module of the environment; where it fails, its own message says why and its exit code is ours."""
    say(title)
    code = subprocess.run([str(venv_python()), *arguments], cwd=ROOT, env={**os.environ, "PYTHONUTF8": "1"}).returncode
    if code:
        raise SystemExit(code if code > 0 else 1)


def prepare():
    """Everything that a first cell would wait for."""
    make_environment()
    step("the model", "-m", "tinyserve.models.catalog", "smollm2")
    step("the kernels", "-m", "tinyserve.kernels.cpu")


def run_tests(arguments):
    """The tests in the environment, two at a time; returns pytest's exit code."""
    tier = ["-m", "not full"] if "--fast" in arguments else []
    chosen = [argument for argument in arguments if argument != "--fast"]
    # An outer notebook's JUPYTER_* variables would confuse the kernels that the tests start.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")}
    # Two workers of one thread each: two of two would wait for each other's cores at every barrier.
    environment.update(PYTHONHASHSEED="0", PYTHONUTF8="1", TINYSERVE_THREADS="1", OMP_NUM_THREADS="1")
    command = [str(venv_python()), "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope", *tier, *chosen]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


def main(arguments):
    """Returns the exit code."""
    if sys.version_info < (3, 10):
        fail(f"Python 3.10 or newer is needed; this is {sys.version.split()[0]}. Run start.py with a newer python3.")
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0
    if arguments[:1] == ["test"]:
        prepare()
        return run_tests(arguments[1:])
    if arguments not in ([], ["--no-lab"]):
        fail(f"{' '.join(arguments)} is not understood: give nothing, --no-lab, test, or --help.")
    prepare()
    step("a first answer", "-m", "tinyserve.cli", "demo")
    if arguments or not sys.stdout.isatty():
        say("ready: `python3 start.py` in a terminal opens the first chapter in JupyterLab.")
        return 0
    say("opening JupyterLab; Ctrl-C stops it")
    return subprocess.run([str(venv_python()), "-m", "jupyter", "lab", str(FIRST_CHAPTER)], cwd=ROOT).returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\n[tinyserve] stopped; run the same command to go on.", file=sys.stderr)
        sys.exit(130)
