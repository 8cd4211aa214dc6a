"""Rotary position tables: cosines and sines for every position, with the scalings that Llama, Mistral and Qwen models use.

Sources: RoPE (Su et al. 2021), linear (Chen et al. 2023), dynamic NTK (bloc97 2023), YaRN (Peng et al. 2023), Llama 3.1's
frequency bands; parameter names as in Hugging Face configs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .config import ModelConfig


def _llama3(frequencies: np.ndarray, scaling: Mapping[str, Any]) -> np.ndarray:
    """Long waves are slowed by `factor`, short ones kept, the band between blended."""
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    blend = np.clip((turns - low) / (high - low), 0, 1)
    return (1 - blend) * frequencies / factor + blend * frequencies


def _yarn(frequencies: np.ndarray, scaling: Mapping[str, Any], config: ModelConfig) -> tuple[np.ndarray, float]:
    """Dimensions that turn often are kept, slow ones interpolated; attention grows by the mscale."""
    factor, d = scaling["factor"], config.head_dim
    original = scaling.get("original_max_position_embeddings") or config.context_length

    def dimension(turns: float) -> float:
        return d * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(config.rope_theta))

    low, high = dimension(scaling.get("beta_fast") or 32), dimension(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    ramp = np.clip((np.arange(d // 2) - low) / (max(high - low, 0.001)), 0, 1)

    def mscale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0

    attention = scaling.get("attention_factor")
    if attention is None and scaling.get("mscale") and scaling.get("mscale_all_dim"):
        attention = mscale(scaling["mscale"]) / mscale(scaling["mscale_all_dim"])
    return frequencies / factor * ramp + frequencies * (1 - ramp), mscale(1) if attention is None else attention


def rope_table(config: ModelConfig, positions: int, divisors: Any = None) -> np.ndarray:
    """cos_sin[positions, D] float32 for the `rope` op.

    `divisors` [D/2] divides the frequencies (a GGUF file's rope_freqs). Dynamic scaling takes its base from `positions`, the
    longest context that will be served: a token's keys must not change when the sequence grows.
    """
    d, scaling = config.head_dim, config.rope_scaling
    kind, theta, attention = scaling.get("rope_type", "default"), config.rope_theta, 1.0
    if kind == "dynamic":
        original = scaling.get("original_max_position_embeddings") or config.context_length
        longest = max(positions, original)
        theta *= (scaling["factor"] * longest / original - (scaling["factor"] - 1)) ** (d / (d - 2))
    frequencies = theta ** (-np.arange(0, d, 2, dtype=np.float64) / d)
    if kind == "linear":
        frequencies = frequencies / scaling["factor"]
    elif kind == "llama3":
        frequencies = _llama3(frequencies, scaling)
    elif kind == "yarn":
        frequencies, attention = _yarn(frequencies, scaling, config)
    if divisors is not None:
        frequencies = frequencies / divisors
    table = np.empty((positions, d), np.float32)
    for start in range(0, positions, 4096):  # in double precision a slice at a time
        angles = np.arange(start, min(start + 4096, positions), dtype=np.float64)[:, None] * frequencies
        table[start:start + 4096, : d // 2], table[start:start + 4096, d // 2:] = np.cos(angles) * attention, np.sin(angles) * attention
    return table
