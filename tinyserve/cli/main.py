"""The commands together, and how they end: bad input in one line and exit code 2, Ctrl-C in 130, never in a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ..errors import TinyserveError
from .answers import chat, generate
from .bench import bench
from .demo import demo
from .doctor import doctor

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  context_settings={"help_option_names": ["-h", "--help"]})
app.command()(doctor)
app.command()(generate)
app.command()(chat)
app.add_typer(bench, name="bench")
app.command(hidden=True)(demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        print(f"tinyserve {__version__}")
        raise typer.Exit()


_Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")]


@app.callback()
def _options(version: _Version = False) -> None:
    """Learn LLM inference by building the engine that serves it."""


@app.command()
def lab() -> None:
    """Open the course in JupyterLab."""
    notebook = Path(__file__).resolve().parents[2] / "notebooks" / "00_start_here.ipynb"
    if not notebook.exists():
        raise TinyserveError("The notebooks are not beside this package: clone the project and run `python3 start.py` there.")
    raise typer.Exit(subprocess.run([sys.executable, "-m", "jupyter", "lab", str(notebook)]).returncode)


def main() -> NoReturn:
    """Run the command line and exit: 0 done, 2 what was asked cannot be done, 130 interrupted, 1 a fault of tinyserve's own."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    sys.exit(_run())


def _run() -> int:
    try:
        code = app(standalone_mode=False, prog_name="tinyserve") or 0
        return _say("stopped.", code) if code == 130 else code
    except TinyserveError as problem:
        return _say(str(problem), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _say("stopped.", 130)
    except BrokenPipeError:  # the reader has gone: what is left in the buffer has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as problem:
        return _say(f"The system refused: {problem}.", 2)
    except Exception as problem:
        if hasattr(problem, "format_message"):
            return _usage(problem)
        if os.environ.get("TINYSERVE_DEBUG"):
            raise
        return _say(f"A fault of tinyserve's own ({type(problem).__name__}: {problem}); TINYSERVE_DEBUG=1 shows where.", 1)


def _usage(problem: Exception) -> int:
    """What the command line's parser did not understand; no command at all is answered with the help that it carries."""
    message, context = problem.format_message(), getattr(problem, "ctx", None)
    if type(problem).__name__ == "NoArgsIsHelpError":
        print(message, file=sys.stderr)
        return 2
    command = context.command_path if context else "tinyserve"
    return _say(f"{message.rstrip('.')}. `{command} --help` says what is possible.", 2)


def _say(text: str, code: int) -> int:
    print("tinyserve: " + " ".join(text.split()), file=sys.stderr)
    return code
