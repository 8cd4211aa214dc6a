"""The command: bad input is one line on stderr and exit code 2, help is for newcomers, JSON is for programs."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_model import write_model

from tinyserve.cli import main

ROOT = Path(__file__).parent.parent
COMMANDS = ("doctor", "generate", "chat", "bench", "lab")
BENCHES = ("latency", "roofline", "steps", "context", "kv", "startup", "peers", "targets")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(write_model(tmp_path_factory.mktemp("model")))


@pytest.fixture
def run(monkeypatch, capsys):
    """Call the command in this process: (exit code, stdout, stderr)."""
    def call(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["tinyserve", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        return code, *capsys.readouterr()

    return call


def outside(*arguments, stdin=b"", **environment):
    """The command in a process of its own."""
    return subprocess.run([sys.executable, "-m", "tinyserve.cli", *arguments], input=stdin, capture_output=True, cwd=ROOT,
                          env={**os.environ, **environment})


def refused(result, *words):
    code, out, err = result
    assert code == 2 and out == ""
    assert err.count("\n") == 1 and err.startswith("tinyserve: ") and all(word in err for word in words), err


# --- bad input ---

@pytest.mark.parametrize(("arguments", "words"), [
    (["generate", "hi", "-m", "no-such-model"], ["no-such-model", "catalog"]),
    (["generate", "hi", "-m", "owner/no-such-model"], ["owner/no-such-model", "hf download"]),
    (["generate", "hi", "--model", "."], ["config.json"]),
    (["generate"], ["prompt", "generate --help"]),
    (["generate", "hi", "--colour"], ["--colour"]),
    (["generate", "hi", "--max-tokens", "many"], ["--max-tokens", "integer"]),
    (["generate", "hi", "--temperature", "nan"], ["temperature"]),
    (["generate", "hi", "--temperature", "-1"], ["temperature"]),
    (["generate", "hi", "--max-tokens", "0"], ["max_tokens"]),
    (["sing"], ["sing"]),
    (["chat", "--temperature", "inf"], ["temperature"]),
    (["chat", "-m", "no-such-model"], ["no-such-model"]),
], ids=lambda value: " ".join(value))
def test_bad_input_without_a_model(arguments, words, run):
    refused(run(*arguments), *words)


def test_bad_input_for_a_model(folder, run):
    refused(run("generate", "", "-m", folder), "empty")
    refused(run("generate", "-", "-m", folder), "empty")
    refused(run("generate", "hi", "-m", folder, "--dtype", "float8"), "float8", "bfloat16")
    refused(run("generate", "x" * 300, "-m", folder), "256")
    refused(run("generate", "x" * 300, "-m", folder, "--json"), "256")


def test_files_that_are_no_models(tmp_path, run):
    for name, content in (("a.gguf", b"GGUF\3\0\0\0"), ("b.gguf", b""), ("c.bin", b"x")):
        (tmp_path / name).write_bytes(content)
        refused(run("generate", "hi", "-m", str(tmp_path / name)), name)
    (tmp_path / "config.json").write_text("{")
    refused(run("generate", "hi", "-m", str(tmp_path)), "config.json")


def test_no_traceback_from_a_process(tmp_path):
    for arguments, stdin, environment in (
            (["generate", "hi", "-m", str(tmp_path / "none.gguf")], b"", {}), (["generate", "-", "-m", str(tmp_path)], b"\xff\xfe", {}),
            (["generate", "hi"], b"", {"TINYSERVE_CACHE": "/dev/null/cache"}), (["lab", "extra"], b"", {})):
        result = outside(*arguments, stdin=stdin, **environment)
        assert result.returncode == 2 and result.stdout == b"" and result.stderr.count(b"\n") == 1, result.stderr.decode()


def test_text_from_stdin_that_is_not_utf8(folder):
    result = outside("generate", "-", "-m", folder, stdin=b"\xff\xfe\x00")
    assert result.returncode == 2 and result.stderr.count(b"\n") == 1 and b"UTF-8" in result.stderr, result.stderr.decode()


def test_a_terminal_that_cannot_show_a_character_does_not_end_the_answer(folder):
    result = outside("generate", "hi", "-m", folder, "--max-tokens", "12", PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert result.returncode == 0 and result.stdout and b"Traceback" not in result.stderr, result.stderr.decode()


def test_a_reader_that_goes_away_is_no_crash(folder):
    command = f"{sys.executable} -m tinyserve.cli generate hi -m {folder} --max-tokens 20 | head -c 1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, cwd=ROOT)
    assert b"Traceback" not in result.stderr and b"Exception ignored" not in result.stderr, result.stderr.decode()


def test_an_interrupt_ends_in_130(monkeypatch, run):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["tinyserve.cli.answers"], "load", interrupted)
    code, _, err = run("generate", "hi")
    assert code == 130 and "Traceback" not in err


# --- what works ---

@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS), *(["bench", name] for name in BENCHES)], ids=" ".join)
def test_help(command, run):
    for flag in ("--help", "-h"):
        code, out, err = run(*command, flag)
        assert code == 0 and len(out.splitlines()) > 4 and err == ""
    if command in ([], ["bench"]):
        assert all(name in out for name in (BENCHES if command else COMMANDS)) and "demo" not in out


def test_no_command_shows_the_help(run):
    code, out, err = run()
    assert "generate" in out + err and "Traceback" not in err and code in (0, 2)


def test_generate_streams_text(folder, run):
    code, out, err = run("generate", "hi", "-m", folder, "--max-tokens", "5")
    assert code == 0 and out.endswith("\n") and err == ""
    assert run("generate", "-", "-m", folder, "--max-tokens", "5", stdin="hi") == (0, out, "")
    assert run("generate", "hi", "-m", folder, "--max-tokens", "5", "--temperature", "0.8", "--seed", "3") == run(
        "generate", "hi", "-m", folder, "--max-tokens", "5", "--temperature", "0.8", "--seed", "3")


def test_generate_as_json(folder, run):
    code, out, err = run("generate", "hi", "-m", folder, "--max-tokens", "5", "--json")
    answer = json.loads(out)
    assert code == 0 and err == "" and answer["prompt_tokens"] == 2 and answer["output_tokens"] <= 5
    assert answer["finish_reason"] in ("length", "stop") and answer["ttft_s"] >= 0 and answer["e2e_s"] >= answer["ttft_s"]
    assert answer["text"] + "\n" == run("generate", "hi", "-m", folder, "--max-tokens", "5")[1]
    chat = json.loads(run("generate", "hi", "-m", folder, "--max-tokens", "5", "--json", "--chat")[1])
    assert chat["prompt_tokens"] == len("user: hi\nassistant: ")


def test_doctor(run):
    code, out, err = run("doctor", "--json")
    facts = json.loads(out)
    assert code == 0 and err == "" and facts["processor"] and not any(str(fact).startswith("broken") for fact in facts.values())
    code, out, _ = run("doctor")
    assert code == 0 and all(name.replace("_", " ") in out for name in facts)


def test_chat(folder, run):
    code, out, err = run("chat", "-m", folder, "--max-tokens", "4", "--temperature", "0", stdin="hello\n/new\nhello\n/sing\n/exit\n")
    answers = [part.rstrip("\n") for part in out.split("> ") if part.strip()]
    assert code == 0 and len(answers) == 2 and answers[0] == answers[1]
    assert "/new begins a new conversation" in err and "There is no /sing" in err and "Traceback" not in err
    assert run("chat", "-m", folder, stdin="")[0] == 0


def test_a_chat_goes_on_after_a_message_that_is_refused(folder, run):
    code, out, err = run("chat", "-m", folder, "--max-tokens", "2", "--temperature", "0", stdin="x" * 400 + "\nhello\n")
    assert code == 0 and err.count("256") == 1 and out.count("> ") == 3


def test_an_answer_that_ends_in_an_error_is_refused(folder, run, monkeypatch):
    import numpy as np

    from tinyserve.models.decoder import Decoder

    forward = Decoder.forward
    monkeypatch.setattr(Decoder, "forward", lambda self, batch, caches: np.full_like(forward(self, batch, caches), np.nan))
    monkeypatch.setattr("tinyserve.engine.runner.overridden", lambda: True)  # every op is called, no recording
    for more in ([], ["--json"]):
        code, out, err = run("generate", "hi", "-m", folder, *more)
        assert code == 2 and out.strip() == "" and err.count("\n") == 1 and "could not be finished" in err


def test_lab_without_the_notebooks(monkeypatch, run, tmp_path):
    monkeypatch.setattr(sys.modules["tinyserve.cli.main"], "__file__", str(tmp_path / "packages" / "tinyserve" / "cli" / "main.py"))
    refused(run("lab"), "clone the project")
