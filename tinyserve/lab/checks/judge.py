"""How an exercise is judged: the learner's function against the reference, on sizes it did not expect."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Verdict:
    """Whether a function passed, why not, and what to use from here on: yours if it passed, else the reference."""

    name: str
    passed: bool
    message: str
    use: Callable

    def __repr__(self) -> str:
        return f"{self.name}: {'passed' if self.passed else 'not yet'}. {self.message}"


class Wrong(Exception):
    """Which invariant broke, in a sentence for the learner."""


def judge(name: str, mine: Callable, reference: Callable, cases: Iterable[Callable[[Callable], None]]) -> Verdict:
    """Run every case on `mine`; a case raises `Wrong`. A stub, which returns Ellipsis or None, falls back to the reference."""
    count = 0
    for case in cases:
        count += 1
        try:
            with np.errstate(all="ignore"):
                case(mine)
        except Wrong as problem:
            return Verdict(name, False, str(problem), reference)
        except Exception as problem:  # the learner's own code may fail in any way, and that is the answer
            return Verdict(name, False, f"it raised {type(problem).__name__}: {problem}", reference)
    return Verdict(name, True, f"{count} case{'s' * (count > 1)}, odd sizes among them.", mine)


def expect(got: Any, wanted: Any, what: str, tolerance: float = 1e-6) -> None:
    """Equal within a relative tolerance; NaN is never equal."""
    if got is None or got is ...:
        raise Wrong(f"{what}: it returned nothing; write the line that computes it.")
    try:
        got_array, wanted_array = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    except (TypeError, ValueError):
        raise Wrong(f"{what}: it returned {type(got).__name__}, not a number or an array.") from None
    if got_array.shape != wanted_array.shape:
        raise Wrong(f"{what}: the shape is {list(got_array.shape)}; it should be {list(wanted_array.shape)}.")
    if np.isnan(got_array).any() and not np.isnan(wanted_array).any():
        raise Wrong(f"{what}: it holds NaN; something was read that was never written.")
    scale = max(1.0, float(np.abs(wanted_array).max(initial=0)))
    if not np.allclose(got_array, wanted_array, rtol=tolerance, atol=tolerance * scale):
        worst = float(np.abs(got_array - wanted_array).max())
        shown = f"{got!r} instead of {wanted!r}" if got_array.ndim == 0 else f"the largest difference is {worst:.3g}"
        raise Wrong(f"{what}: {shown}.")
