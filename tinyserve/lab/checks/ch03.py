"""Chapter 03: first CUDA kernels. The kernels are judged in the simulator, by result, traffic and races."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .judge import Verdict, expect, judge
from .kernel import kernel

BANKS = 32


def reference_bank_passes(words: Sequence[int]) -> int:
    """The most different words that one bank must deliver; a word that several lanes want is delivered once."""
    wanted = set(words)
    return max(sum(word % BANKS == bank for word in wanted) for bank in range(BANKS))


def bank_passes(mine: Callable) -> Verdict:
    """Passes that shared memory needs for one request of a warp; `words` holds the index of the 4-byte word that each lane reads."""
    def cases() -> Iterator[Callable]:
        rng = np.random.default_rng(3)
        requests = {"neighbours": range(32), "one word for all": [7] * 32, "a column of 32": range(0, 1024, 32),
                    "a column of 33": range(0, 33 * 32, 33), "every second": range(0, 64, 2),
                    "two rows of 17": [*range(16), *range(17, 33)], "one lane": [5], "some at random": rng.integers(0, 256, 32).tolist()}
        for name, words in requests.items():
            yield lambda fn, name=name, words=list(words): expect(fn(words), reference_bank_passes(words), f"bank_passes of {name}", 0)

    return judge("bank_passes", mine, reference_bank_passes, cases())


def saxpy(mine: Any) -> Verdict:
    """A kernel (a, x[n], y[n]): y = a * x + y for any n on any grid."""
    return kernel("saxpy")(mine)


def quarter_turn(mine: Any) -> Verdict:
    """A kernel (x[rows, columns], out[columns, rows]), launched with blocks of (32, 8): out[c, rows - 1 - r] = x[r, c]."""
    return kernel("quarter_turn")(mine)


def row_max(mine: Any) -> Verdict:
    """A kernel (x[rows, columns], out[rows]), a block of 128 for each row: the largest of each row."""
    return kernel("row_max")(mine)


def reference_fragment_a(lane: int, item: int) -> tuple[int, int]:
    """Lane groups of four own rows g and g + 8; within a row each lane has two neighbours, then two more 8 columns on."""
    from ...kernels.cuda.warp import fragments

    return fragments.a_16bit(lane, item)


def fragment_a(mine: Callable) -> Verdict:
    """(row, k) of item 0..7 that a lane holds of the left operand A[16, 16] of the 16-bit `mma`."""
    def cases() -> Iterator[Callable]:
        for lane, item in ((0, 0), (5, 1), (6, 2), (31, 3), (1, 4), (17, 5), (30, 6), (31, 7)):
            yield lambda fn, a=(lane, item): expect(fn(*a), reference_fragment_a(*a), f"fragment_a of lane {a[0]}, item {a[1]}", 0)

    return judge("fragment_a", mine, reference_fragment_a, cases())
