"""The gate of the notebooks: `python -m tinyserve.lab.notebook check`, `fix` or `run`, with paths or for all of them.

check says what is wrong with a notebook, fix brings its file into canonical form, run executes it from the top and then fixes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat

from .rules import problems

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
TIMEOUT = 300  # seconds a cell, while a chapter is being written on a busy machine


def notebooks(arguments: list[str]) -> list[Path]:
    """The named notebooks, or every chapter and every solution."""
    return [Path(argument) for argument in arguments] or sorted([*FOLDER.glob("*.ipynb"), *(FOLDER / "solutions").glob("*.ipynb")])


def canonical(notebook: Any) -> Any:
    """The same notebook in canonical form: stable ids, counts 1..N, no run-dependent metadata, text outputs joined."""
    count = 0
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{index:02d}"
        tags = cell.get("metadata", {}).get("tags")
        cell["metadata"] = {"tags": sorted(tags)} if tags else {}
        if cell.cell_type != "code":
            continue
        ran = bool(cell.source.strip())
        count += ran
        cell["execution_count"] = count if ran else None
        cell["outputs"] = [_output(output, count) for output in _joined(cell.outputs)]
    notebook["metadata"] = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                            "language_info": {"name": "python"}}
    notebook["nbformat"], notebook["nbformat_minor"] = 4, 5
    return notebook


def _output(output: Any, count: int) -> Any:
    if "execution_count" in output:
        output["execution_count"] = count
    if "data" in output:
        output["data"] = {kind: value for kind, value in output["data"].items() if not kind.startswith("application/vnd.jupyter.widget")} \
            or {"text/plain": "(a widget: run the notebook to use it)"}
    return output


def _joined(outputs: Any) -> list[Any]:
    """Pieces of one stream as one output."""
    joined: list[Any] = []
    for output in outputs:
        if output.output_type == "stream" and joined and joined[-1].get("name") == output.name:
            joined[-1]["text"] += output.text
        else:
            joined.append(output)
    return joined


def write(path: Path, notebook: Any) -> None:
    """Write with nbformat's own layout and one newline at the end."""
    path.write_text(nbformat.writes(notebook).rstrip("\n") + "\n", encoding="utf-8")


def run(path: Path) -> None:
    """Execute from the top in a fresh kernel, in the notebook's folder; an error stops it and names the cell."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    notebook = nbformat.read(path, 4)
    try:
        NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}).execute()
    except (CellExecutionError, DeadKernelError) as problem:
        raise SystemExit(f"{path.name}: {problem}") from None
    write(path, canonical(notebook))


def check(path: Path) -> Iterator[str]:
    """What is wrong with the notebook, a sentence each."""
    notebook = nbformat.read(path, 4)
    yield from problems(notebook, path)
    if nbformat.writes(canonical(nbformat.read(path, 4))).rstrip("\n") + "\n" != path.read_text(encoding="utf-8"):
        yield "the file is not in canonical form; `python -m tinyserve.lab.notebook fix` brings it there"


def main(arguments: list[str]) -> int:
    """0 when all is well, 1 when a check failed, 2 for a wrong call."""
    if not arguments or arguments[0] not in ("check", "fix", "run"):
        print("usage: python -m tinyserve.lab.notebook check|fix|run [notebook ...]", file=sys.stderr)
        return 2
    found = 0
    for path in notebooks(arguments[1:]):
        if arguments[0] == "run":
            run(path)
        elif arguments[0] == "fix":
            write(path, canonical(nbformat.read(path, 4)))
        for problem in check(path):
            found += 1
            print(f"{path.name}: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
