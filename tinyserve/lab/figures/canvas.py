"""One look for every picture: colours that the colour-blind can tell apart, and a PNG with alternative text."""

from __future__ import annotations

import io
from typing import Any

from IPython.display import Image
from matplotlib.figure import Figure

# Okabe and Ito's palette.
BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#767676")
COLOURS = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE)


def canvas(width: float = 7.2, height: float = 3.2) -> tuple[Figure, Any]:
    """A figure and its axes, without the global state of pyplot."""
    figure = Figure(figsize=(width, height), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def image(figure: Figure, alt: str) -> Image:
    """The figure as a PNG that says in words what it shows."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return Image(data=buffer.getvalue(), format="png", alt=alt)
