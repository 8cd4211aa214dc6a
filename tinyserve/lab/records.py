"""The newest recorded benchmark, with where it comes from: no number is ever typed into prose."""

from __future__ import annotations

import json
from pathlib import Path

from ..errors import CorruptCheckpoint
from .table import Table, table

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "records"


def record(name: str, folder: Path = FOLDER) -> Table:
    """The rows of the newest record of this name, and the machine, date and commit that they were measured on."""
    found = sorted(folder.glob(f"{name}*.json"), key=lambda path: path.name)
    if not found:
        return table([{"record": name, "result": "none recorded yet"}])
    try:
        content = json.loads(found[-1].read_text(encoding="utf-8"))
    except ValueError as problem:
        raise CorruptCheckpoint(f"{found[-1].name} is not readable JSON: {problem}.") from None
    rows = content.get("rows") or content.get("results") or []
    machine, commit = content.get("machine", {}), content.get("commit", "")
    host = machine.get("cpu") or machine.get("gpu") or "an unnamed machine"
    return table(rows, f"Recorded on {content.get('date', 'an unknown day')}, {host}, commit {str(commit)[:9] or 'unknown'}.")
