"""Guess before you measure: a number that you committed to teaches more than one that you read."""

from __future__ import annotations

import math

_predicted: dict[str, float] = {}


def predict(name: str, value: float) -> str:
    """Note your guess, in the unit that `name` ends with."""
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        return f"{name}: give a positive number; a rough guess is a good guess."
    _predicted[name] = float(value)
    return f"{name}: you predict {value:g}. Run on, and compare."


def explain(name: str, measured: float) -> str:
    """Your guess beside the measurement, and how far apart they are."""
    if name not in _predicted:
        return f"{name}: measured {measured:.4g}; you made no prediction."
    guess = _predicted[name]
    factor = max(guess / measured, measured / guess)
    close = "That is close." if factor < 1.3 else "Which of your assumptions was off?"
    if factor >= 3:
        close = "Something in the picture is missing: read on."
    return f"{name}: predicted {guess:.4g}, measured {measured:.4g}, a factor of {factor:.2f}. {close}"
