"""Any kernel of the catalog as an exercise: `checks.kernel("sum_tree")(mine)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Optional

import numpy as np

from ...errors import InvalidRequest
from ...kernels.cuda.catalog import BUILDS
from .judge import Verdict, Wrong, judge
from .launches import Launch, find, launches

HELD_TO = ("read_sectors", "write_sectors", "bank_conflicts", "atomics", "barriers")
SCRATCH = {("sample", "weights"), ("attention_naive", "scores")}
TOLERANCE = {2: 5e-3, 4: 1e-4}  # by the bytes of a float
SHOWN = 3  # findings of one launch


class KernelExercise:
    """The task (shown as its header) and its check: right results, no races, and no more traffic than the project's own kernel."""

    def __init__(self, name: str, allow: Optional[Mapping[str, int]] = None):
        from ...kernels.cuda import simulator  # noqa: F401  (raises `WrongMode` where there is none)

        build = find(name)
        if build is None:
            raise InvalidRequest(f"There is no kernel named {name!r}; there are {', '.join(dict.fromkeys(b.name for b in BUILDS))}.")
        self._launches, self._allow = launches(build), dict(allow or {})
        self.name, self.reference = build.name, self._launches[0].kernel

    def __repr__(self) -> str:
        function, arguments = self.reference.py_func, self._launches[0].arguments
        shapes = [f"{name}: {x.dtype} {list(x.shape)}" for name, x in zip(inspect.signature(function).parameters, arguments)
                  if isinstance(x, np.ndarray)]
        return f"{self.name}{inspect.signature(function)}\n{inspect.getdoc(function)}\nFor example, {', '.join(shapes)}."

    def __call__(self, mine: Any) -> Verdict:
        """Judge `mine`, a `@cuda.jit` kernel that takes the same arguments and is launched in the same way."""
        def case(launch: Launch) -> Callable:
            return lambda kernel: against(launch, kernel, self._allow)

        return judge(self.name, mine, self.reference, map(case, self._launches))


def kernel(name: str, allow: Optional[Mapping[str, int]] = None) -> KernelExercise:
    """An exercise out of a kernel of the catalog, by its name or by a rung of the ladder (`reduction`: the rung's last kernel).

    allow: counts of `Traffic` that may be larger than the project's own by so many, e.g. {"barriers": 2}. Needs the simulator.
    """
    return KernelExercise(name, allow)


def against(launch: Launch, mine: Any, allow: Mapping[str, int]) -> None:
    """Raise `Wrong` unless `mine` does what the launch's own kernel does, for no more traffic."""
    from ...kernels.cuda.simulator import count_traffic

    arguments = launch.copies()
    with count_traffic() as counter:
        launch.kernel[launch.where](*arguments)
    changed = {place: after for place, (before, after) in enumerate(zip(launch.arguments, arguments))
               if isinstance(after, np.ndarray) and before.tobytes() != after.tobytes()}
    names = list(inspect.signature(launch.kernel.py_func).parameters)
    expected = {place: after for place, after in changed.items() if (launch.kernel.__name__, names[place]) not in SCRATCH}
    limits = {name: counter.last.counts.get(name, 0) + allow.get(name, 0) for name in HELD_TO}
    refuse(mine, launch, expected, limits, {place: launch.arguments[place] for place in changed})


def refuse(mine: Any, launch: Launch, expected: Mapping[int, np.ndarray], limits: Mapping[str, int],
           initial: Optional[Mapping[int, np.ndarray]] = None) -> None:
    """Raise `Wrong` with the first findings about `mine` in a launch, as `simulator.judge` finds them."""
    from ...kernels.cuda.simulator import judge as find_faults

    if not hasattr(mine, "py_func"):
        raise Wrong("This is a plain function: put @cuda.jit above it.")
    tolerance = TOLERANCE.get(next(iter(expected.values())).dtype.itemsize, 0.0)
    arguments = launch.copies()
    findings = find_faults(mine, launch.where, arguments, expected, rtol=tolerance, atol=tolerance, limits=limits, initial=initial)
    if findings:
        shapes = ", ".join(str(list(x.shape)) for x in arguments if isinstance(x, np.ndarray))
        raise Wrong("\n".join([f"Launched as [{launch.where[0]}, {launch.where[1]}] on arrays of {shapes}:", *findings[:SHOWN]]))
