"""How anything is timed here: the sides take turns in one run, and what counts is the median of the pairwise ratios.

A shared machine drifts by a factor of two within minutes. Two medians taken one after the other compare two machines; pairs taken
side by side compare two programs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Spread:
    """A sample: median, quartiles, extremes."""

    median: float
    low: float
    high: float
    minimum: float
    maximum: float
    count: int

    def scaled(self, factor: float) -> dict[str, float]:
        """As a dict, each value times `factor`."""
        return {name: value if name == "count" else value * factor for name, value in asdict(self).items()}


def spread(values: Sequence[float]) -> Spread:
    """Of at least one value."""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return Spread(statistics.median(values), low, high, min(values), max(values), len(values))


def interleave(sides: Mapping[str, Callable[[], float]], repeats: int, warmup: int = 1) -> dict[str, list[float]]:
    """Call every side in turn, `warmup` rounds uncounted, then `repeats` rounds; each call returns what it measured.

    Every second round runs backwards, so that no side always follows the same other."""
    for _ in range(warmup):
        for side in sides.values():
            side()
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for round_ in range(repeats):
        for name in reversed(list(sides)) if round_ % 2 else list(sides):
            taken[name].append(sides[name]())
    return taken


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of theirs / ours, pair by pair: how many times longer they take."""
    return statistics.median(their / our for our, their in zip(ours, theirs))


def seconds(function: Callable[[], object]) -> float:
    """The wall time of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
