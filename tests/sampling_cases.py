"""What the sampling tests share: states with given random numbers, and distributions by enumeration."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyserve.kernels import select
from tinyserve.text.params import SamplingParams
from tinyserve.text.sampler import Sampler, SamplingState

KERNELS = ("cpu", "reference")


class Fixed(SamplingState):
    """A state whose random number is given."""

    number = 0.0

    def uniform(self) -> float:
        return self.number


def state(output: Sequence[int] = (), prompt: Sequence[int] = (0,), kind: type = SamplingState, seed: int = 0, index: int = 0,
          ends: Sequence[int] = (), bad: Sequence[tuple[int, ...]] = (), **params: Any) -> SamplingState:
    return kind(SamplingParams(**params), seed, tuple(prompt), list(output), index, frozenset(ends), tuple(bad))


def sample(kernels: str, logits: Any, states: Sequence[SamplingState]) -> list[Any]:
    """Rows of logits [R, V], sampled on a kernel set."""
    ops = select(kernels)
    return Sampler(ops).sample(ops.array(np.array(logits, np.float32)), states)


def distribution(kernels: str, logits: Any, steps: int = 1000, **settings: Any) -> np.ndarray:
    """How often each token is drawn when the random number takes `steps` values spread evenly over [0, 1)."""
    counts, block = np.zeros(len(logits)), 250
    for start in range(0, steps, block):
        states = []
        for i in range(start, start + block):
            one = state(kind=Fixed, **settings)
            one.number = (i + 0.5) / steps
            states.append(one)
        for token in sample(kernels, [logits] * block, states):
            counts[token.token_id] += 1
    return counts / steps
