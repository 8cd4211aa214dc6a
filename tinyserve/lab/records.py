"""The newest recorded benchmark, with where it comes from: no number is ever typed into prose."""

from __future__ import annotations

from pathlib import Path

from ..bench.records import FOLDER, newest
from .table import Table, table


def record(name: str, folder: Path = FOLDER) -> Table:
    """The rows of the newest record of this name, and the machine, date and commit that they were measured on."""
    found = newest(name, folder)
    if found is None:
        return table([{"record": name, "result": "none recorded yet"}])
    host = found.machine.get("cpu") or found.machine.get("gpu") or "an unnamed machine"
    return table(found.rows, f"Recorded on {found.date}, {host}, commit {(found.commit or 'unknown')[:9]}.")
