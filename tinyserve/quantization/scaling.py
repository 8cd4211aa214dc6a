"""Moving scale between a weight's columns and what feeds them: x W^T = (x / s) (W s)^T. AWQ and SmoothQuant choose s.

AWQ (Lin et al. 2023) makes the columns with large inputs larger before rounding, so that they lose less; SmoothQuant (Xiao et
al. 2022) makes large inputs smaller, so that they can be rounded too. Dividing by s is folded into the norm or weight before.
"""

from __future__ import annotations

import numpy as np

from .grid import Grid, finite, round_to_nearest
from .inputs import output_error


def awq_scales(matrix: np.ndarray, gram: np.ndarray, mean: np.ndarray, grid: Grid, points: int = 20, name: str = "weight") -> np.ndarray:
    """s[K] = mean^a for the a in 0, 1/points, … < 1 whose rounded W[N, K] gives the least error of the outputs; a = 0 is s = 1.

    gram[K, K] = mean x x^T, mean[K] = mean |x|. s is centred so that sqrt(max * min) is 1."""
    original, best, least = finite(matrix, name), np.ones(len(mean), np.float32), np.inf
    for point in range(points):
        scales = _centred(np.maximum(mean, 1e-4 * max(mean.max(), 1e-12)) ** (point / points))
        rounded = round_to_nearest(original * scales, grid, np.diag(gram) / scales**2, name).dequantize() / scales
        error = float(output_error(rounded - original, gram).sum())
        if error < least:
            best, least = scales, error
    return best


def _centred(scales: np.ndarray) -> np.ndarray:
    return (scales / np.sqrt(scales.max() * scales.min())).astype(np.float32)


def smooth_scales(largest_input: np.ndarray, matrix: np.ndarray, strength: float = 0.5, name: str = "weight") -> np.ndarray:
    """1/s[K] of SmoothQuant: the inputs are divided by max|x|^strength / max|w|^(1 - strength), the columns of W[N, K] times it.

    Returned as the factor s of the columns; where a column or its input is zero, 1."""
    largest_weight = np.abs(finite(matrix, name)).max(0)
    whole = (largest_input > 0) & (largest_weight > 0)
    x, w = np.where(whole, largest_input, 1), np.where(whole, largest_weight, 1)
    return np.where(whole, x**strength / w ** (1 - strength), 1).astype(np.float32)
