"""Talks to a peer's runner: a process of its own, a line of JSON each way."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Optional

from ...errors import TinyserveError
from .environment import RUNNERS, peers_folder, python_of, recipe_for


class Peer:
    """A loaded peer. `generate(ids, new)` returns its {"ttft", "e2e"} in seconds."""

    def __init__(self, name: str, model: Path, threads: int):
        recipe = recipe_for(name)
        self.name = name
        peers_folder().mkdir(exist_ok=True)
        self._log = open(peers_folder() / f"{name}.log", "w")
        environment = {**os.environ, **recipe.environment, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
        environment.pop("PYTHONPATH", None)
        self._process = subprocess.Popen([str(python_of(name)), str(RUNNERS / recipe.runner), str(model), str(threads)],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment)
        self.loaded = self._read()

    def _read(self) -> dict[str, Any]:
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)
        raise TinyserveError(f"The peer {self.name} ended by itself; its log is {self._log.name}.")

    def generate(self, ids: list[int], new: int) -> dict[str, float]:
        """Greedy, exactly `new` tokens."""
        self._process.stdin.write(json.dumps({"ids": ids, "new": new}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End the runner."""
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: Optional[object]) -> None:
        self.close()
