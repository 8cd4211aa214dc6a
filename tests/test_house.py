"""The house rules of the design, as far as a program can check them."""

import ast
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "tinyserve").rglob("*.py"))
KERNELS = ("kernels/cpu", "kernels/cuda")
ROOMS = [file for file in FILES if not any(room in file.as_posix() for room in (*KERNELS, "bench/peers/runners"))]


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def length(node):
    return node.end_lineno - node.lineno + 1


def doors(tree):
    """Functions, classes and methods that a reader may call from outside the file."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (item for item in node.body if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"))


def untyped(node):
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return node.returns is None or any(item.annotation is None for item in arguments if item.arg not in ("self", "cls"))


def test_rooms_import_only_what_lies_above_them():
    run = subprocess.run([str(Path(sys.executable).parent / "lint-imports")], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_is_short_and_so_are_its_functions(file):
    source = file.read_text()
    assert source.count("\n") <= 300, "split it: a file is at most 300 lines"
    limit = 90 if any(room in file.as_posix() for room in KERNELS) else 60
    for node in functions(ast.parse(source)):
        assert length(node) <= limit, f"{node.name} is longer than {limit} lines"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_says_what_it_is_for(file):
    assert ast.get_docstring(ast.parse(file.read_text())), "every module starts with a docstring"


@pytest.mark.parametrize("file", ROOMS, ids=lambda file: str(file.relative_to(ROOT)))
def test_doors_are_typed_and_documented(file):
    """What Numba compiles has no types, and what is as short as its name says it all."""
    for node in doors(ast.parse(file.read_text())):
        assert ast.get_docstring(node) or length(node) <= 5, f"{node.name} has no docstring"
        assert isinstance(node, ast.ClassDef) or not untyped(node), f"{node.name} is not typed"


def test_the_whole_house_stays_small():
    lengths = sorted(length(node) for file in FILES for node in functions(ast.parse(file.read_text())))
    lines = [file.read_text().count("\n") for file in FILES]
    assert sum(lines) <= 17_000 and statistics.median(lines) <= 150
    assert statistics.median(lengths) <= 10 and lengths[len(lengths) * 9 // 10] <= 30


def test_nothing_is_ever_unpickled():
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            assert not {"pickle", "dill", "joblib", "cloudpickle"} & set(names), file
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in {("torch", "load"), ("np", "load")}, file


def test_importing_the_package_loads_neither_torch_nor_numba_nor_jupyter():
    code = ("import sys, tinyserve; tinyserve.SamplingParams; "
            "print([name for name in ('torch', 'numba', 'IPython', 'ipywidgets', 'matplotlib', 'transformers') if name in sys.modules])")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout.strip() == "[]", run.stdout + run.stderr


def test_generating_on_the_cpu_needs_no_torch():
    code = ("import sys; from tinyserve.kernels import select; import tinyserve.llm; select('cpu'); "
            "print([name for name in ('torch', 'transformers', 'IPython') if name in sys.modules])")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout.strip() == "[]", run.stdout + run.stderr
