"""GPTQ: round one column after another and let the columns not yet rounded make up for each error.

Frantar, Ashkboos, Hoefler, Alistarh 2022, "GPTQ: accurate post-training quantization for generative pre-trained transformers".
The error of the outputs is a quadratic form with the inputs' Gram matrix H. Rounding column j with error e changes the best values of the
columns after it by -e / U[j,j] * U[j, j+1:], where U is the upper Cholesky factor of the inverse of H.
"""

from __future__ import annotations

from typing import Optional

import numpy as np

from ..errors import CorruptCheckpoint
from .grid import Grid, Quantized, codes_of, finite, fit, round_to_nearest
from .inputs import output_error

_BLOCK = 128  # columns whose corrections reach the rest of the matrix in one product


def inverse_factor(gram: np.ndarray, damping: float = 0.01, name: str = "weight") -> np.ndarray:
    """U upper with U^T U = (H + damping * mean(diag H) * I)^-1, float64; a column that was never fed counts as an average one."""
    if not np.isfinite(gram).all():
        raise CorruptCheckpoint(f"The calibration sums of {name!r} are not finite.")
    hessian = np.array(gram, np.float64)
    at, diagonal = np.arange(len(hessian)), np.diag(hessian).copy()
    mean = float(diagonal.mean()) or 1.0
    hessian[at, at] = np.where(diagonal == 0, mean, diagonal) + damping * mean
    try:
        return np.linalg.cholesky(np.linalg.inv(hessian)).T
    except np.linalg.LinAlgError:
        raise CorruptCheckpoint(f"The inputs of {name!r} leave its Hessian singular; use more damping or more text.") from None


def gptq(matrix: np.ndarray, gram: np.ndarray, grid: Grid, *, damping: float = 0.01, act_order: bool = False, static_groups: bool = True,
         clip: bool = False, name: str = "weight") -> Quantized:
    """W[N, K] with gram[K, K] = mean x x^T of its inputs.

    act_order rounds the columns with the largest inputs first. static_groups fits every group's grid to the matrix as it was, so
    that groups stay runs of columns; without it a group's grid is fitted when its first column comes, and with act_order `groups`
    says whose each column is. clip searches each group's range. A row that plain rounding leaves nearer is plainly rounded, so
    the result is never worse than rounding on the same groups, in the norm of H.
    """
    width = grid.width(matrix.shape[1], name)
    original = finite(matrix, name)
    diagonal = np.diag(gram)
    order = np.argsort(-diagonal, kind="stable") if act_order else np.arange(len(diagonal))
    inner = np.arange(len(order)) if static_groups else order  # the order in which columns fill groups
    weights = diagonal[inner] if clip else None
    plain = round_to_nearest(original[:, inner], grid, weights, name)
    upper = inverse_factor(gram[np.ix_(order, order)], damping, name)
    if static_groups:
        codes, scales, zeros = _sweep(original[:, order], upper, grid, order // width, plain.scales, plain.zeros)
        codes = codes[:, np.argsort(order)]
    else:
        codes, scales, zeros = _sweep(original[:, order], upper, grid, np.arange(len(order)) // width, importance=weights)
    careful = Quantized(codes, scales, zeros, grid.bits)
    target, norm = original[:, inner], gram[np.ix_(inner, inner)]
    rounded, corrected = (output_error(each.dequantize() - target, norm) for each in (plain, careful))
    best = _by_row(corrected <= rounded, careful, plain)
    if static_groups or not act_order:
        return best
    back = np.argsort(order)
    return Quantized(best.codes[:, back], best.scales, best.zeros, grid.bits, (back // width).astype(np.int32))


def _by_row(first: np.ndarray, yes: Quantized, no: Quantized) -> Quantized:
    parts = [np.where(first[:, None], getattr(yes, part), getattr(no, part)) for part in ("codes", "scales", "zeros")]
    return Quantized(*parts, yes.bits)


def _sweep(matrix: np.ndarray, upper: np.ndarray, grid: Grid, groups: np.ndarray, scales: Optional[np.ndarray] = None,
           zeros: Optional[np.ndarray] = None, importance: Optional[np.ndarray] = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, scales and zeros of columns rounded from left to right. groups[K]: whose each column is. Without scales, a group's
    grid is fitted at its first column."""
    left, fitted = matrix.astype(np.float32), scales is None  # a copy: it holds what is still to be rounded
    rows, columns = matrix.shape
    count = int(groups.max()) + 1
    width = columns // count
    step = max(1, _BLOCK // width) * width if fitted and width < columns else _BLOCK
    scales, zeros = (np.empty((rows, count), np.float32) if part is None else part.astype(np.float32) for part in (scales, zeros))
    codes, factor = np.empty((rows, columns), np.uint8), upper.astype(np.float32)
    for start in range(0, columns, step):
        stop = min(start + step, columns)
        errors = np.empty((rows, stop - start), np.float32)
        for j in range(start, stop):
            group = groups[j]
            if fitted and j % width == 0:
                weights = None if importance is None else importance[None, j:j + width]
                found = fit(left[:, None, j:j + width], grid, weights)
                scales[:, group], zeros[:, group] = found[0][:, 0], found[1][:, 0]
            scale, zero = scales[:, group], zeros[:, group]
            code = codes_of(left[:, j], scale, zero, grid.top)
            codes[:, j] = code
            errors[:, j - start] = error = (left[:, j] - (code - zero) * scale) / factor[j, j]
            left[:, j + 1:stop] -= np.outer(error, factor[j, j + 1:stop])
        left[:, stop:] -= errors @ factor[start:stop, stop:]
    return codes, scales.astype(np.float16), zeros.astype(np.uint8)
