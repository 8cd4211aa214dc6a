"""What calibration keeps of a weight's inputs x[T, K]: sums only, however long the text."""

from __future__ import annotations

import numpy as np

from ..errors import CorruptCheckpoint


class InputStatistics:
    """`gram[K, K]` = mean of x x^T over tokens, `mean[K]` and `largest[K]` of |x|."""

    def __init__(self, columns: int, name: str = "weight"):
        self.name, self.tokens = name, 0
        self._gram = np.zeros((columns, columns), np.float64)
        self._sum, self.largest = np.zeros(columns, np.float64), np.zeros(columns, np.float32)

    def add(self, x: np.ndarray) -> None:
        """Count the rows of x[T, K]."""
        if not np.isfinite(x).all():
            raise CorruptCheckpoint(f"The inputs of {self.name!r} are not finite on the calibration text.")
        size = np.abs(x)
        self._gram += x.T @ x
        self._sum += size.sum(0)
        self.largest = np.maximum(self.largest, size.max(0))
        self.tokens += len(x)

    @property
    def gram(self) -> np.ndarray:
        return self._gram / max(self.tokens, 1)

    @property
    def mean(self) -> np.ndarray:
        return self._sum / max(self.tokens, 1)


def output_error(off: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """[N]: the mean squared error of each output whose row of the weight is off by off[N, K]."""
    return np.einsum("nk,nk->n", off @ gram.astype(off.dtype), off)
