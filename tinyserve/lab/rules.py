"""The rules that a notebook of the course keeps; see `notebook` for the command that checks them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SKELETON = ("What you will be able to do", "Before this", "The problem and its cost", "Predict", "Run", "Explain", "Build", "Check",
            "Benchmark", "Exercises", "Summary", "References", "Questions", "Next")
CELLS, CODE_LINES, WORDS, FILE_BYTES, PNG_BYTES = (20, 45), 250, (1200, 2500), 300_000, 100_000
_FORBIDDEN = {r"(?m)^\s*[!%]\s*pip\b": "installs packages", r"\bpip install\b": "installs packages", r"%%writefile": "writes source files",
              r"https?://[^\s)\"']+\.(?:whl|gguf|safetensors)": "fetches files",
              r"(?<![\w.])/(?:home|root|Users|work|tmp)/": "holds an absolute path",
              r"\brequests\.|\burllib\b": "uses the network"}


def source(cells: list[Any], kind: str) -> str:
    """All cells of one kind as one text."""
    return "\n".join(cell.source for cell in cells if cell.cell_type == kind)


def problems(notebook: Any, path: Path) -> Iterator[str]:
    """Everything that is wrong with a notebook; solutions keep fewer rules than chapters."""
    cells = notebook.cells
    yield from _outputs(cells)
    yield from _words_that_must_not_be(cells)
    yield from _names(source(cells, "markdown"))
    if path.parent.name != "solutions":
        yield from _shape(cells, path)
        yield from _skeleton(source(cells, "markdown"), source(cells, "code"))


def _shape(cells: list[Any], path: Path) -> Iterator[str]:
    if not CELLS[0] <= len(cells) <= CELLS[1]:
        yield f"it has {len(cells)} cells; {CELLS[0]} to {CELLS[1]} are right"
    lines = [line for line in source(cells, "code").splitlines() if line.strip()]
    if len(lines) > CODE_LINES:
        yield f"it has {len(lines)} lines of code; {CODE_LINES} are the most"
    words = len(re.findall(r"\w+", source(cells, "markdown")))
    if not WORDS[0] <= words <= WORDS[1]:
        yield f"it has {words} words; {WORDS[0]} to {WORDS[1]} are right"
    if path.exists() and path.stat().st_size > FILE_BYTES:
        yield f"the file has {path.stat().st_size:,} bytes; {FILE_BYTES:,} are the most"


def _skeleton(prose: str, code: str) -> Iterator[str]:
    headings = re.findall(r"(?m)^## (.+)$", prose)
    at = -1
    for title in SKELETON:
        found = next((i for i, heading in enumerate(headings) if heading.startswith(title)), None)
        if found is None:
            yield f"the section '## {title}' is missing"
        elif found < at:
            yield f"the section '## {title}' comes too early"
        else:
            at = found
    if not re.match(r"# \d\d · ", prose.lstrip()):
        yield "it does not begin with '# NN · Title'"
    if "**Time:**" not in prose:
        yield "it does not say how long it takes ('**Time:** …')"
    if prose.count("<details>") < 5:
        yield "it has fewer than five questions with folded answers"
    for call, least in (("lab.setup(", 1), ("lab.predict(", 1), ("lab.explain(", 1), ("lab.show_source(", 1), ("lab.figures.", 2),
                        ("lab.slider(", 1), ("lab.race(", 1), ("lab.checks.ch", 3)):
        if code.count(call) < least:
            yield f"it calls {call}…) {code.count(call)} times; at least {least} is right"


def _outputs(cells: list[Any]) -> Iterator[str]:
    code = [cell for cell in cells if cell.cell_type == "code" and cell.source.strip()]
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        yield "execution counts are not 1..N: restart the kernel and run all"
    if code and not any(cell.outputs for cell in code):
        yield "it holds no outputs: run it before you commit it"
    for cell in code:
        for output in cell.outputs:
            if output.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", []):
                yield f"an error is saved in its outputs: {output.ename}"
            picture = output.get("data", {}).get("image/png", "")
            if len(picture) * 3 // 4 > PNG_BYTES:
                yield f"a picture of {len(picture) * 3 // 4:,} bytes; {PNG_BYTES:,} are the most"
            if picture and not output.get("metadata", {}).get("image/png", {}).get("alt") and not output.get("metadata", {}).get("alt"):
                yield "a picture has no alternative text"


def _words_that_must_not_be(cells: list[Any]) -> Iterator[str]:
    for cell in cells:
        for pattern, what in _FORBIDDEN.items():
            if re.search(pattern, cell.source):
                yield f"a cell {what}: {re.search(pattern, cell.source)[0]!r}"


def _names(prose: str) -> Iterator[str]:
    """Every `tinyserve.x.y` named in prose must exist."""
    for name in sorted(set(re.findall(r"`(tinyserve(?:\.\w+)+)", prose))):
        if not _resolves(name):
            yield f"`{name}` is named but does not exist"


def _resolves(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
        return True
    return False
