"""A simulated kernel at one step: where each thread waits, and what shared memory holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from IPython.display import Image

from .canvas import COLOURS, GREY, VERMILION, canvas, image

ACROSS = 32


def kernel_step(steps: Sequence[Any], number: int) -> Image:
    """Step `number` of what `simulator.record_steps` kept: threads (a warp a row) coloured by where they wait, those that meet in this
    step outlined, and every shared array as it is at that moment; NaN, which no one has written, is left white."""
    step = steps[number]
    arrays = [array.reshape(-1, ACROSS) if array.size % ACROSS == 0 else array.reshape(1, -1) for array in step.shared.values()]
    warps = -(-len(step.waits) // ACROSS)
    figure, axes = canvas(width=7.2, height=1.1 + 0.21 * (warps + sum(len(array) + 2 for array in arrays)))
    places = list(dict.fromkeys(step.waits))
    who = {place: f"{step.waits.count(place)} threads {'wait at ' + place if place else 'have left'}" for place in places}
    for thread, place in enumerate(step.waits):
        colour = COLOURS[places.index(place) % len(COLOURS)] if place else "white"
        _square(axes, thread % ACROSS, -(thread // ACROSS), colour, thread in step.threads)
    for i, place in enumerate(places):
        axes.text(ACROSS * i / max(2, len(places)), 1.2, who[place], fontsize=8, color=COLOURS[i % len(COLOURS)] if place else GREY)
    top = -warps - 1.4
    for name, array in zip(step.shared, arrays):
        axes.text(0, top + 0.75, name, fontsize=8, color=GREY)
        _values(axes, array, top)
        top -= len(array) + 1.4
    axes.set(xlim=(-0.3, ACROSS + 0.3), ylim=(top + 1.2, 2.4), title=f"step {number + 1} of {len(steps)}: {step.name} at {step.line}")
    axes.axis("off")
    held = "; ".join(f"{name} begins {', '.join(f'{value:.4g}' for value in array.reshape(-1)[:4])}" for name, array in step.shared.items())
    return image(figure, f"Step {number + 1} of {len(steps)}, {step.name} at {step.line}: {'; '.join(who.values())}. {held}.")


def _square(axes: Any, x: float, y: float, colour: str, meets: bool) -> None:
    from matplotlib.patches import Rectangle

    edge, line = (VERMILION, 1.2) if meets else (GREY, 0.4)
    axes.add_patch(Rectangle((x + 0.05, y), 0.86, 0.8, facecolor=colour, edgecolor=edge, linewidth=line, alpha=0.9))


def _values(axes: Any, array: Any, top: float) -> None:
    import numpy as np
    from matplotlib import colormaps

    seen = array[np.isfinite(array)]
    low, high = (float(seen.min()), float(seen.max())) if seen.size else (0.0, 1.0)
    for (row, column), value in np.ndenumerate(array):
        known = np.isfinite(value)
        share = (float(value) - low) / (high - low or 1.0) if known else 0.0
        _square(axes, column, top - row - 0.2, colormaps["cividis"](share) if known else "white", False)
        if known and len(array) <= 8:
            axes.text(column + 0.48, top - row + 0.2, f"{value:.3g}", fontsize=4.5, ha="center", va="center",
                      color="white" if share < 0.6 else "black")
