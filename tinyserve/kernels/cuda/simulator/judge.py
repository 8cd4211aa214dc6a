"""Judges a kernel as a teacher would: right values, nothing left out, no races, no luck with the order of lanes, no more traffic than
allowed. For exercises: the finding says which of these broke, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .lanes import KernelFault, shuffled_lanes
from .memory import POISON
from .races import find_races
from .traffic import count_traffic


def judge(kernel: Any, launch: tuple, arguments: Sequence[Any], expected: Mapping[int, np.ndarray], *, rtol: float = 1e-5,
          atol: float = 1e-6, limits: Mapping[str, int] | None = None, initial: Mapping[int, np.ndarray] | None = None) -> list[str]:
    """What is wrong with `kernel[launch](*arguments)`, as sentences; an empty list if nothing is.

    expected: {position of an output among the arguments: what it must hold}, integers exactly; outputs are poisoned first, or hold
    what `initial` gives for them. An array in `initial` alone is scratch; every other one must stay as it is. limits: the most that
    each count of `Traffic` may be, e.g. {"global_reads": 64, "bank_conflicts": 0}.
    """
    initial = initial or {}
    before = {place: argument.copy() for place, argument in enumerate(arguments)
              if isinstance(argument, np.ndarray) and place not in expected and place not in initial}

    def run() -> None:
        for place in expected:
            arguments[place].reshape(-1).view(np.uint8).fill(POISON)
        for place, values in initial.items():
            arguments[place][...] = values
        kernel[launch](*arguments)

    try:
        with count_traffic() as counter, find_races() as found:
            run()
        findings = _values(arguments, expected, rtol, atol)
        findings += [f"Argument {place} is an input, and it was changed." for place, held in before.items()
                     if held.tobytes() != arguments[place].tobytes()]
        findings += [str(race) for race in found.races]
        findings += _over(counter.last.counts, limits or {})
        return findings or _order(run, arguments, expected)
    except KernelFault as fault:
        return [str(fault)]


def _values(arguments: Sequence[Any], expected: Mapping[int, np.ndarray], rtol: float, atol: float) -> list[str]:
    findings = []
    for place, wanted in expected.items():
        got = arguments[place]
        exact = got.dtype.kind in "iub"
        wrong = got != wanted if exact else ~np.isclose(got, wanted, rtol=rtol, atol=atol, equal_nan=True)
        if wrong.any():
            where = tuple(int(i) for i in np.argwhere(wrong)[0])
            untouched = got[where] in (-1, np.iinfo(got.dtype).max) if exact else np.isnan(got[where])
            what = "was never written, or is NaN" if untouched else f"is {got[where]}"
            findings.append(f"Output {place}: {int(wrong.sum())} of {got.size} elements are wrong; element {where} {what}, it should be "
                            f"{wanted[where]}.")
    return findings


def _over(counts: Mapping[str, int], limits: Mapping[str, int]) -> list[str]:
    return [f"{name.replace('_', ' ')}: {counts.get(name, 0)}, at most {limit} are needed."
            for name, limit in limits.items() if counts.get(name, 0) > limit]


def _order(run: Callable[[], None], arguments: Sequence[Any], expected: Mapping[int, np.ndarray]) -> list[str]:
    before = [arguments[place].tobytes() for place in expected]
    with shuffled_lanes(7):
        run()
    if before == [arguments[place].tobytes() for place in expected]:
        return []
    return ["The result changes with the order in which threads run, which a GPU does not promise."]
