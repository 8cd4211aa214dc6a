"""Timing that can be trusted on a shared machine: the sides take turns, and ratios are taken pair by pair."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping
from typing import Optional

from ..bench.protocol import interleave, ratio, seconds
from .table import Table, table


def race(sides: Mapping[str, Callable[[], object]], repeats: int = 5, unit: str = "ms", scale: float = 1e3,
         notes: Optional[Mapping[str, str]] = None) -> Race:
    """Time each side once to warm up, then `repeats` times in turn. The first side is the one that the others are compared with."""
    timed = {name: functools.partial(seconds, function) for name, function in sides.items()}
    return Race(interleave(timed, repeats), unit, scale, notes or {})


class Race:
    """Times of each side in seconds, in the order they were taken."""

    def __init__(self, times: Mapping[str, list[float]], unit: str, scale: float, notes: Mapping[str, str]):
        self.times, self._unit, self._scale, self._notes = dict(times), unit, scale, notes

    def seconds(self, name: str) -> float:
        """The median of one side."""
        return statistics.median(self.times[name])

    def ratio(self, name: str) -> float:
        """How many times longer `name` takes than the first side: the median of the pairwise ratios."""
        return ratio(next(iter(self.times.values())), self.times[name])

    @property
    def table(self) -> Table:
        """Medians, spread and ratios."""
        first = next(iter(self.times))
        rows = []
        for name, times in self.times.items():
            row = {"": name, f"median {self._unit}": statistics.median(times) * self._scale,
                   "fastest to slowest": f"{min(times) * self._scale:.3g} to {max(times) * self._scale:.3g}",
                   f"times {first}": f"{self.ratio(name):.2f}"}
            rows.append({**row, "note": self._notes.get(name, "")} if self._notes else row)
        return table(rows, f"{len(next(iter(self.times.values())))} runs each, taken in turn.")

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()
