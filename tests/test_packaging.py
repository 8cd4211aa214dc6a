"""pyproject.toml is the one list of dependencies; the conda files, Binder and the pins must say the same."""

import ast
import importlib.util
import re
import sys
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
LEFT_TO_TORCH = {"nvidia-cuda-runtime", "nvidia-cuda-nvrtc", "nvidia-nvvm"}
COME_WITH_OTHERS = {"llvmlite", "ipython", "pygments", "packaging"}  # with numba, jupyterlab, jupyterlab, pytest
ONLY_PIP = {"ruff"}  # a developer's tool, not in the conda files


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(lines: list[str]) -> dict[str, str]:
    """Name -> bounds, in one spelling."""
    parsed = [Requirement(line) for line in lines]
    return {CONDA_NAMES.get(normal(item.name), normal(item.name)): str(item.specifier) for item in parsed}


def conda(path: str) -> dict[str, str]:
    lines = [line for line in yaml.safe_load((ROOT / path).read_text())["dependencies"] if isinstance(line, str)]
    found = {}
    for line in lines:
        name, bounds = re.fullmatch(r"([A-Za-z0-9_-]+)(.*)", line).groups()
        found[normal(name).removesuffix("-gpu").removesuffix("-cpu")] = str(Requirement("x" + bounds).specifier)
    return found


RUN = requirements(PROJECT["dependencies"])
DEV = {name: bounds for name, bounds in requirements(PROJECT["optional-dependencies"]["dev"]).items()
       if not name.startswith("nvidia-") and name not in ONLY_PIP}


def test_environment_yml_is_pyproject_with_a_gpu():
    found = conda("environment.yml")
    assert found.pop("python") and found.pop("cuda-version")
    found.pop("pip")
    assert found == {**RUN, **DEV}


def test_binder_is_pyproject_without_tests():
    found = conda("binder/environment.yml")
    assert found.pop("python")
    found.pop("pip")
    assert found == RUN


@pytest.mark.parametrize("path, build", [("environment.yml", "pytorch-gpu"), ("binder/environment.yml", "pytorch-cpu")])
def test_conda_files_name_the_right_torch_and_one_channel(path, build):
    content = yaml.safe_load((ROOT / path).read_text())
    assert content["channels"] == ["conda-forge"]
    assert sum(str(line).startswith(build) for line in content["dependencies"]) == 1
    for lines in (line["pip"] for line in content["dependencies"] if isinstance(line, dict)):
        assert lines == ["-e ."], "conda hands these to pip as a requirements file, where most options are unknown"


def test_every_dependency_is_bounded_and_pinned_within_its_bounds():
    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pin = Requirement(line)
            pins[normal(pin.name)] = next(iter(pin.specifier)).version
    everything = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    for line in everything:
        item = Requirement(line)
        assert "<" in str(item.specifier) and ">=" in str(item.specifier), line
        if item.name in LEFT_TO_TORCH:
            continue
        assert item.specifier.contains(pins[normal(item.name)]), f"{line} is pinned to {pins[normal(item.name)]}"


@pytest.mark.skipif(sys.platform != "linux" or sys.version_info < (3, 11), reason="the pins are those of Linux, Python 3.11 and newer")
def test_everything_that_is_installed_is_pinned():
    """All that this project pulls in, but for what torch's CUDA build brings and pins itself."""
    pins = {normal(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    found, left = set(), [Requirement("tinyserve[dev]")]
    while left:
        item = left.pop()
        if (name := normal(item.name)) in found or name.startswith(("nvidia-", "cuda-toolkit")) or name == "triton":
            continue
        found.add(name)
        wanted = [Requirement(line) for line in distribution(name).requires or ()]
        extras = ["", *item.extras]
        left += [each for each in wanted if not each.marker or any(each.marker.evaluate({"extra": extra}) for extra in extras)]
    assert found - pins == {"tinyserve"}


def imported(folder: str) -> set[str]:
    """Top-level modules that the files of a folder import from outside it, tests' own helpers and the standard library left out."""
    files = [file for file in (ROOT / folder).rglob("*.py") if "runners" not in file.parts]  # a peer's runner has its own environment
    found: set[str] = set()
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module.split(".")[0])
    return found - sys.stdlib_module_names - {file.stem for file in files} - {"tinyserve"}


@pytest.mark.parametrize("folder", ["tinyserve", "tests", "benchmarks"])
def test_every_import_is_declared(folder):
    """A package that merely happens to be installed is missing from a clean environment."""
    extras = PROJECT["optional-dependencies"]["dev"] if folder == "tests" else []
    declared = {normal(Requirement(line).name) for line in [*PROJECT["dependencies"], *extras]} | COME_WITH_OTHERS
    found = packages_distributions()
    for module in imported(folder):
        assert declared & {normal(name) for name in found.get(module, [module])}, f"{module} is imported but not declared"


def test_binder_scripts_stop_at_errors_and_hand_over():
    assert "set -euo pipefail" in (ROOT / "binder/postBuild").read_text()
    start = (ROOT / "binder/start").read_text()
    assert "set -euo pipefail" in start and start.rstrip().endswith('exec "$@"')


def test_ci_runs_the_readme_command():
    assert "python3 start.py test" in (ROOT / ".ci/run").read_text()
    readme = (ROOT / "README.md").read_text()
    assert "python3 start.py\n" in readme and "python3 start.py test" in readme


def test_the_readme_shows_what_the_records_say():
    spec = importlib.util.spec_from_file_location("ladder", ROOT / "benchmarks" / "ladder.py")
    ladder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ladder)
    readme = ladder.README.read_text(encoding="utf-8")
    assert readme == ladder.written(readme, ladder.render()), "run benchmarks/ladder.py"


def test_the_reading_path_is_there_and_no_longer_than_it_says():
    path = (ROOT / "README.md").read_text(encoding="utf-8").split("<!-- path: begin -->")[1].split("<!-- path: end -->")[0]
    files = [ROOT / "tinyserve" / name for name in re.findall(r"`([^`]+)`", path)]
    assert len(files) > 10 and sum(file.read_text(encoding="utf-8").count("\n") for file in files) <= 1_800


def test_every_module_is_installed():
    """Each folder with modules is a package, or pip would leave it out."""
    for file in (ROOT / "tinyserve").rglob("*.py"):
        assert (file.parent / "__init__.py").exists() or "runners" in file.parts, file


def test_every_pin_can_be_met_beside_the_cuda_build_of_torch():
    """torch's CUDA build asks for its own release of these; a pin or a high bound here would make pip give up."""
    pinned = {re.split("=", line)[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert not pinned & LEFT_TO_TORCH
    for item in map(Requirement, PROJECT["optional-dependencies"]["dev"]):
        assert item.name not in LEFT_TO_TORCH or item.specifier.contains("13.0.88"), item


def test_licences_are_there():
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert "CC BY 4.0" in (ROOT / "LICENSE-TEXT").read_text()
    assert "SmolLM2" in (ROOT / "NOTICE").read_text()
    assert (ROOT / "tinyserve/py.typed").exists()
