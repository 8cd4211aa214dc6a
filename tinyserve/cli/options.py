"""Options that several commands share, and how they print."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Optional

import typer

from ..errors import InvalidRequest

Model = Annotated[str, typer.Option("--model", "-m", help='"smollm2", a .gguf file, a Hugging Face folder or a hub id.')]
Dtype = Annotated[str, typer.Option(help="auto (as stored), float32, bfloat16, int8 or int4.")]
Device = Annotated[str, typer.Option(help="auto, cpu or reference (plain torch, slow).")]
MaxTokens = Annotated[int, typer.Option(help="Longest answer, in tokens.")]
Temperature = Annotated[float, typer.Option(help="0 takes the most likely token every time; higher is more varied.")]
TopP = Annotated[float, typer.Option(help="Draw from the most likely tokens that hold this share of the probability.")]
TopK = Annotated[int, typer.Option(help="Draw from this many of the most likely tokens; 0 is off.")]
Seed = Annotated[Optional[int], typer.Option(help="Makes random draws repeat.")]
Stop = Annotated[Optional[list[str]], typer.Option(help="End the answer before this text; may be given more than once.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


def print_json(value: Any) -> None:
    """One JSON value on standard output."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_rows(rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """Rows as a table with one column a key, in the order that keys first appear."""
    from rich.console import Console
    from rich.table import Table

    names = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(title=title or None, title_justify="left", box=None)
    for name in names:
        numbers = all(isinstance(row.get(name, 0), (int, float)) for row in rows)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(str(row.get(name, "")) for name in names))
    console = Console()
    console.print(table, markup=False) if console.is_terminal else Console(width=200).print(table, markup=False)


def read_text(argument: str) -> str:
    """The argument itself, or standard input for "-"; raises `InvalidRequest` where it is not UTF-8."""
    try:
        if argument == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        return argument.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError as problem:
        raise InvalidRequest(f"The text is not valid UTF-8 (byte {problem.start}); convert it first.") from None
