"""Choosing the next token by its definition: sort, cut, add up, look where the random number falls."""

from __future__ import annotations

import torch
from torch import Tensor


def log_softmax(logits: Tensor) -> Tensor:
    """ln of softmax over the last axis, [S,V] -> [S,V]."""
    return torch.log_softmax(logits.double(), -1).to(logits.dtype)


def sample(logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor,
           uniforms: Tensor) -> Tensor:
    """logits[S,V] -> ids[S]; -1 where a logit is NaN or +inf, or all are -inf (there is nothing to choose from)."""
    settings = zip(*(x.tolist() for x in (temperature, top_k, top_p, min_p, uniforms)))
    return torch.tensor([_sample_row(row.double(), *rest) for row, rest in zip(logits, settings)], dtype=torch.int32)


def _sample_row(logits: Tensor, temperature: float, top_k: int, top_p: float, min_p: float, uniform: float) -> int:
    if not logits.max().isfinite():
        return -1
    if temperature == 0:
        return int((logits == logits.max()).nonzero()[0])
    kept, order = kept_distribution(logits, temperature, top_k, top_p, min_p)
    return int(order[torch.searchsorted(kept.cumsum(0), uniform, right=True).clamp(max=len(kept) - 1)])


def kept_distribution(logits: Tensor, temperature: float, top_k: int, top_p: float,
                      min_p: float) -> tuple[Tensor, Tensor]:
    """What one row's draw chooses from: (probabilities, ids), in order of falling probability, ties by rising id.

    Each step sees what the one before it kept, made to sum to 1 again: top_k keeps the k likeliest; top_p the fewest of
    the likeliest that together reach top_p; min_p those at least min_p times as likely as the likeliest.
    """
    p, order = torch.sort(torch.softmax(logits.double() / temperature, -1), descending=True, stable=True)
    if top_k > 0:
        p = p[:top_k]
    if top_p < 1:
        p = p / p.sum()
        p = p[: 1 + int((p.cumsum(0) < top_p).sum())]
    p = p[p >= min_p * p[0]]
    return p / p.sum(), order[: len(p)]
