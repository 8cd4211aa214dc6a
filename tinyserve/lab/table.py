"""Small tables that look right in JupyterLab, on GitHub and in plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Table:
    """Rows of one shape; shown as HTML where there is a browser, else as aligned text."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], caption: str = ""):
        self.columns = list(dict.fromkeys(name for row in rows for name in row))
        self.rows = [[_text(row.get(name, "")) for name in self.columns] for row in rows]
        self.caption = caption

    def __repr__(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
        return "\n".join([*text[:1], "  ".join("-" * width for width in widths), *text[1:], *([self.caption] if self.caption else [])])

    def _repr_html_(self) -> str:
        import html

        def line(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag} style='text-align:left'>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        caption = f"<caption style='caption-side:bottom;text-align:left'>{html.escape(self.caption)}</caption>" if self.caption else ""
        return f"<table>{caption}{line(self.columns, 'th')}{''.join(line(row, 'td') for row in self.rows)}</table>"


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table(rows: Sequence[Mapping[str, Any]], caption: str = "") -> Table:
    """A table of dicts with the same keys; floats with four digits."""
    return Table(rows, caption)
