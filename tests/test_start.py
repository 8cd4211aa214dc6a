"""start.py on an imitation of the environment's interpreter that notes its arguments, and on a real one without a network."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

START = Path(__file__).parent.parent / "start.py"
pytestmark = pytest.mark.skipif(os.name == "nt", reason="the imitation is a shell script")
IMITATION = """#!{python}
import json, os, sys
folder = {folder!r}
with open(folder + "/calls.jsonl", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
answers = json.load(open(folder + "/answers.json"))
line = " ".join(sys.argv[1:])
sys.exit(next((code for words, code in answers.items() if words in line), 0))
"""


class Project:
    """A folder with start.py and an imitated `.venv`; `answers` gives exit codes to calls that hold certain words."""

    def __init__(self, folder: Path):
        self.folder = folder
        shutil.copy(START, folder)
        (folder / "pyproject.toml").write_text("[project]\nname = 'tinyserve'\nversion = '0'\n")
        (folder / "constraints.txt").write_text("")
        self.answer({})
        self.imitate()

    def imitate(self):
        python = self.folder / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text(IMITATION.format(python=sys.executable, folder=str(self.folder)))
        python.chmod(0o755)

    def answer(self, answers: dict):
        (self.folder / "answers.json").write_text(json.dumps(answers))

    def start(self, *arguments: str, **environment: str):
        self.calls_file.unlink(missing_ok=True)
        return subprocess.run([sys.executable, "start.py", *arguments], cwd=self.folder, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env={**os.environ, **environment})

    @property
    def calls_file(self) -> Path:
        return self.folder / "calls.jsonl"

    @property
    def calls(self) -> list[str]:
        """What the environment's interpreter was asked to do, a line each; probes left out."""
        lines = [" ".join(json.loads(line)) for line in self.calls_file.read_text().splitlines()] if self.calls_file.exists() else []
        return [line for line in lines if not line.startswith("-c ") and "pip --version" not in line]

    @property
    def done(self) -> Path:
        return self.folder / ".venv" / "installed.txt"


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def steps(project) -> list[str]:
    return [call.split()[1] for call in project.calls]


def test_the_first_run_installs_fetches_compiles_and_shows_the_demo(project):
    run = project.start()
    assert run.returncode == 0, run.stderr
    assert steps(project) == ["pip", "tinyserve.models.catalog", "tinyserve.kernels.cpu", "tinyserve.cli"]
    install = project.calls[0]
    assert "-c " in install and "constraints.txt" in install and f"-e {project.folder}[dev" in install
    assert "ready" in run.stdout and "jupyter" not in " ".join(project.calls), "without a terminal there is no lab"


def test_the_second_run_installs_nothing(project):
    project.start()
    assert project.start("--no-lab").returncode == 0
    assert "pip" not in steps(project)


@pytest.mark.parametrize("change", ["pyproject.toml", "constraints.txt"])
def test_other_requirements_are_installed(project, change):
    project.start()
    with open(project.folder / change, "a") as file:
        file.write("# changed\n")
    project.start()
    assert steps(project)[0] == "pip"


def test_a_package_that_has_gone_is_installed_again(project):
    project.start()
    project.answer({"importlib.metadata": 1})
    project.start()
    assert steps(project)[0] == "pip"


def test_an_interrupted_installation_goes_on(project):
    project.answer({"pip install": 1})
    run = project.start()
    assert run.returncode == 2 and "run this again" in run.stderr and "Traceback" not in run.stderr
    assert not project.done.exists() and steps(project) == ["pip"]
    project.answer({})
    assert project.start().returncode == 0 and project.done.exists()


@pytest.mark.parametrize("words, reached", [("models.catalog", 2), ("kernels.cpu", 3), ("demo", 4)])
def test_a_step_that_fails_ends_the_run_with_its_exit_code(project, words, reached):
    project.answer({words: 7})
    run = project.start()
    assert run.returncode == 7 and len(project.calls) == reached and "Traceback" not in run.stderr


def test_tests_get_their_options_and_their_exit_code_is_ours(project):
    project.answer({"-m pytest": 5})
    run = project.start("test", "--fast", "-k", "test", "tests/test_cli.py")
    assert run.returncode == 5
    assert project.calls[-1] == "-m pytest -q -n 2 --dist loadscope -m not full -k test tests/test_cli.py"
    assert "tinyserve.cli" not in steps(project), "tests need no demo"
    project.start("test")
    assert project.calls[-1] == "-m pytest -q -n 2 --dist loadscope"


@pytest.mark.parametrize("arguments", [["tset"], ["--nolab"], ["--no-lab", "test"]])
def test_what_is_not_understood_is_refused_before_anything_is_done(project, arguments):
    run = project.start(*arguments)
    assert run.returncode == 2 and "not understood" in run.stderr and project.calls == []


def test_help_says_how(project):
    run = project.start("--help")
    assert run.returncode == 0 and "--no-lab" in run.stdout and project.calls == []


@pytest.mark.full
@pytest.mark.parametrize("damage", ["broken interpreter", "no pip", "half made", "moved"])
def test_a_damaged_environment_is_made_again(project, damage):
    """With a real interpreter: venv needs no network, and pip, which then has none, says so in one sentence."""
    python = project.folder / ".venv" / "bin" / "python"
    if damage == "broken interpreter":
        python.write_text("not a program")
    elif damage == "no pip":
        project.answer({"pip --version": 1})
    elif damage == "half made":
        shutil.rmtree(python.parent)
    else:
        project.done.write_text("/another/place\n0\n")
    run = project.start(PIP_NO_INDEX="1", PIP_FIND_LINKS="", PIP_CONFIG_FILE=os.devnull)
    assert "making .venv" in run.stdout
    assert (project.folder / ".venv" / "pyvenv.cfg").exists()
    assert run.returncode == 2 and "could not be installed" in run.stderr and "Traceback" not in run.stderr
