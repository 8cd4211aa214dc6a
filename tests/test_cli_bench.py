"""`tinyserve bench`: each command prints a record, as a table and as JSON; what cannot be measured is said in one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tinyserve.bench.records import Record
from tinyserve.cli import bench
from tinyserve.cli.main import app

ROOT = Path(__file__).parent.parent


@pytest.fixture
def record(monkeypatch):
    """The measuring itself is left out: what it is asked for is noted, and this record comes back."""
    asked = {}

    def measure(*arguments, **named):
        asked.update(arguments=arguments, **named)
        return Record("latency", [{"prompt tokens": 8, "decode tok/s": 9.5}], {"repeats": 1}, {"8": [0.1]})

    monkeypatch.setattr(bench, "load", lambda *arguments: "an LLM")
    monkeypatch.setattr("tinyserve.bench.latency.bench_latency", measure)
    return asked


def test_latency_hands_its_options_on(record, capsys):
    app(["bench", "latency", "--prompt", "8", "--prompt", "9", "--new", "3", "--repeats", "1", "--warmup", "0"], standalone_mode=False)
    assert record["arguments"] == ("an LLM", (8, 9), 3, 1, 0)
    out = capsys.readouterr().out
    assert "latency: repeats 1" in out and "decode tok/s" in out and "9.5" in out


def test_a_record_as_json_and_on_disk(record, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(Record.save, "__defaults__", (tmp_path,))
    app(["bench", "latency", "--json", "--save"], standalone_mode=False)
    printed = json.loads(capsys.readouterr().out)
    assert printed["rows"][0]["decode tok/s"] == 9.5 and printed["samples"] == {"8": [0.1]} and "python" in printed["versions"]
    assert [json.loads(path.read_text()) for path in tmp_path.iterdir()] == [printed]


def test_targets_are_listed_with_what_the_records_say(capsys):
    app(["bench", "targets", "--json"], standalone_mode=False)
    assert all({"what", "target", "reached", "met"} <= set(row) for row in json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("arguments, words", [
    (["--make"], "Name the peers"), (["--make", "nobody"], "no peer named 'nobody'"), (["--repeats", "0"], "--repeats")])
def test_peers_that_cannot_be_measured(arguments, words):
    run = subprocess.run([sys.executable, "-m", "tinyserve.cli", "bench", "peers", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 2 and words in run.stderr and run.stderr.count("\n") == 1, run.stderr
