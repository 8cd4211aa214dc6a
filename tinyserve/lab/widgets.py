"""One slider over one figure function. The static twin is the same function called once; the widget only moves its argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from IPython.display import Image


def slider(figure: Callable[[Any], Image], name: str, values: Sequence[Any], start: Any) -> Any:
    """A box with a slider over `values` and the picture `figure(value)` below it."""
    import ipywidgets

    control = ipywidgets.SelectionSlider(options=list(values), value=start, description=name, continuous_update=False,
                                         style={"description_width": "initial"}, layout={"width": "480px"})
    picture = ipywidgets.Image(value=figure(start).data, format="png", layout={"max_width": "720px"})

    def redraw(change: Any) -> None:
        picture.value = figure(change["new"]).data

    control.observe(redraw, names="value")
    return ipywidgets.VBox([control, picture])
