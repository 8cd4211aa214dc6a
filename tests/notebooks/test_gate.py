"""The notebooks in the repository are canonical, whole and keep the course's rules; the gate catches those that are not."""

import copy
from pathlib import Path

import nbformat
import pytest

from tinyserve.lab import notebook as gate
from tinyserve.lab.rules import problems

FOLDER = Path(__file__).parents[2] / "notebooks"
CHAPTERS = sorted(FOLDER.glob("*.ipynb"))
ALL = [*CHAPTERS, *sorted((FOLDER / "solutions").glob("*.ipynb"))]


def test_there_is_a_solution_for_every_chapter():
    assert CHAPTERS
    assert {path.name for path in CHAPTERS} == {path.name for path in (FOLDER / "solutions").glob("*.ipynb")}


@pytest.mark.parametrize("path", ALL, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_gate_finds_nothing(path):
    assert list(gate.check(path)) == []


def spoil_count(notebook):
    next(cell for cell in notebook.cells if cell.cell_type == "code").execution_count = 7


def spoil_section(notebook):
    for cell in notebook.cells:
        cell.source = cell.source.replace("## Predict", "## Guess")


def spoil_network(notebook):
    notebook.cells[3].source = "!pip install something"


def spoil_path(notebook):
    notebook.cells[4].source += "\nopen('/home/me/model')"


def spoil_name(notebook):
    notebook.cells[0].source += "\n`tinyserve.kernels.no_such_thing`"


def spoil_output(notebook):
    cell = next(cell for cell in notebook.cells if cell.cell_type == "code")
    cell.outputs = [nbformat.v4.new_output("error", ename="ValueError", evalue="", traceback=[])]


def spoil_alt(notebook):
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("metadata", {}).pop("image/png", None)


@pytest.mark.parametrize("spoil, words", [
    (spoil_count, "execution counts"), (spoil_section, "'## Predict' is missing"), (spoil_network, "installs packages"),
    (spoil_path, "absolute path"), (spoil_name, "does not exist"), (spoil_output, "an error is saved"), (spoil_alt, "alternative text")])
def test_the_gate_notices(spoil, words):
    path = CHAPTERS[0]
    notebook = copy.deepcopy(nbformat.read(path, 4))
    assert not [problem for problem in problems(notebook, path) if words in problem]
    spoil(notebook)
    assert [problem for problem in problems(notebook, path) if words in problem]


def test_fixing_brings_a_file_into_canonical_form_and_is_stable():
    notebook = nbformat.read(CHAPTERS[0], 4)
    for cell in notebook.cells:
        cell["id"] = "x" + cell["id"]
        cell["metadata"]["collapsed"] = True
    notebook["metadata"]["widgets"] = {"state": {}}
    fixed = nbformat.writes(gate.canonical(notebook)).rstrip("\n") + "\n"
    assert fixed == CHAPTERS[0].read_text(encoding="utf-8")
