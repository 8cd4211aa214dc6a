"""Every notebook runs from the top: nbval on the chapters, solutions by nbclient, and a dead kernel is noticed."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

FOLDER = Path(__file__).parents[2] / "notebooks"


@pytest.mark.full
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.name)
def test_a_chapter_gives_the_outputs_that_it_shows(path):
    """Strict: every output is compared, but for the cells that are tagged nbval-ignore-output because they hold timings."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--nbval", "--nbval-current-env",
               "--nbval-cell-timeout=600", "--nbval-sanitize-with", str(Path(__file__).parent / "sanitize.cfg"), str(path)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    run = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER.parent, env=environment)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-1000:]


@pytest.mark.full
@pytest.mark.parametrize("path", sorted((FOLDER / "solutions").glob("*.ipynb")), ids=lambda path: path.name)
def test_a_solution_runs_and_its_checks_pass(path):
    notebook = nbformat.read(path, 4)
    assert sum("assert verdict.passed" in cell.source for cell in notebook.cells) >= 3
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()


@pytest.mark.full
def test_a_dead_kernel_is_noticed():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import os; os._exit(3)"), nbformat.v4.new_code_cell("1")])
    with pytest.raises((DeadKernelError, CellExecutionError)):
        NotebookClient(notebook, timeout=60).execute()
