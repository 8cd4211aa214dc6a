"""Live source: a notebook shows the engine's code as it is today, never a copy."""

from __future__ import annotations

import inspect
from typing import Any


class Source:
    """The source of one object, highlighted in a browser and plain elsewhere."""

    def __init__(self, thing: Any):
        thing = inspect.unwrap(getattr(thing, "python", getattr(thing, "py_func", thing)))
        self.code = inspect.getsource(thing)
        module = inspect.getmodule(thing)
        self.where = f"{module.__name__}.{thing.__qualname__}" if module and hasattr(thing, "__qualname__") else str(thing)

    def __repr__(self) -> str:
        return f"# {self.where}\n{self.code}"

    def _repr_html_(self) -> str:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer

        body = highlight(self.code, PythonLexer(), HtmlFormatter(noclasses=True, nobackground=True))
        return f"<div style='border-left:3px solid #0072B2;padding-left:8px'><code>{self.where}</code>{body}</div>"


def show_source(thing: Any) -> Source:
    """The source of a function, class, method or kernel of the engine, as the last line of a cell."""
    return Source(thing)
