"""Writes the measured part of README.md from benchmarks/records: `.venv/bin/python benchmarks/ladder.py`.

No number is typed into the README: a test holds its text between the two marks equal to `render()`.
"""

from pathlib import Path

from tinyserve.bench.records import FOLDER, newest
from tinyserve.bench.targets import results

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
RECORDS = ("peers", "roofline", "steps", "context", "startup")


def render(folder: Path = FOLDER) -> str:
    """The table of targets with what the newest records say, and where they were taken."""
    lines = ["| what | target | measured |", "|---|---|---|"]
    for result in results(folder):
        reached = "not measured yet" if result["reached"] is None else f"{result['reached']:g}"
        lines.append(f"| {result['what']} | {result['target']} | {reached}{'' if result['met'] is not False else ' (not reached)'} |")
    found = {name: record for name in RECORDS if (record := newest(name, folder))}
    places = dict.fromkeys(
        f"{record.machine.get('cpu')}, {record.machine.get('threads')} threads, {record.date[:10]}" for record in found.values())
    if places:
        lines += ["", f"Recorded on {'; '.join(places)}. Commits and samples are in `benchmarks/records/`."]
    return "\n".join(lines)


def written(readme: str, measured: str) -> str:
    """The README with `measured` between its marks."""
    head, rest = readme.split(BEGIN)
    return f"{head}{BEGIN}\n{measured}\n{END}{rest.split(END)[1]}"


def update() -> None:
    """Bring the README up to the records."""
    README.write_text(written(README.read_text(encoding="utf-8"), render()), encoding="utf-8")


if __name__ == "__main__":
    update()
    print(render())
