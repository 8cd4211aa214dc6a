"""Benchmark records: JSON files under benchmarks/records, one a run, with everything needed to judge and repeat them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional

from ..errors import CorruptCheckpoint
from . import machine as this

FOLDER = this.ROOT / "benchmarks" / "records"


@dataclass(frozen=True)
class Record:
    """`rows` is the result as a table, `samples` the raw measurements behind it, `protocol` how they were taken."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    protocol: Mapping[str, Any]
    samples: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=this.versions)
    commit: Optional[str] = None
    dirty: Optional[bool] = None
    date: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))

    def save(self, folder: Path = FOLDER) -> Path:
        """Write the record under its name and time."""
        folder.mkdir(parents=True, exist_ok=True)
        stamp = self.date.replace(":", "").replace("-", "")[:15]
        path = folder / f"{self.name}-{stamp}.json"
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path


def make(name: str, rows: Sequence[Mapping[str, Any]], protocol: Mapping[str, Any], samples: Mapping[str, Any], kernels: Any) -> Record:
    """A record of this machine and commit."""
    return Record(name, rows, protocol, samples, machine=this.describe(kernels), **this.commit())


def newest(name: str, folder: Path = FOLDER) -> Optional[Record]:
    """The newest record of this name, or None. Raises `CorruptCheckpoint` for a file that is not a record."""
    found = sorted(folder.glob(f"{name}-*.json"))
    if not found:
        return None
    try:
        return Record(**json.loads(found[-1].read_text(encoding="utf-8")))
    except (ValueError, TypeError) as problem:
        raise CorruptCheckpoint(f"{found[-1].name} is not a benchmark record: {problem}.") from None
