"""What the project set out to reach, beside what the newest records say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

from .records import FOLDER, Record, newest

_FASTER = {"decode": "decode: times faster", "prefill": "prefill: times faster"}
PEER_TARGETS = (("decode", "llama.cpp", 2.5), ("decode", "transformers", 8.0), ("prefill", "llama.cpp", 5.0),
                ("prefill", "transformers", 1.0), ("prefill", "openvino", 1.0))


def _row(record: Optional[Record], key: str, value: Any) -> Mapping[str, Any]:
    rows = record.rows if record else []
    return next((row for row in rows if row.get(key) == value), {})


def results(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Each target with what was reached: {"what", "target", "reached", "met"}; reached is None where nothing is recorded."""
    peers, roofline, steps = (newest(name, folder) for name in ("peers", "roofline", "steps"))
    context, startup = newest("context", folder), newest("startup", folder)
    found = [(f"{kind}, times {peer}", least, _row(peers, "peer", peer).get(_FASTER[kind]), True) for kind, peer, least in PEER_TARGETS]
    found += [
        ("decode, share of the bytes/bandwidth limit", 0.75,
         _row(roofline, "what", "whole step, one token").get("share of the limit"), True),
        ("eight tokens in one step, times one", 1.8, _row(steps, "tokens in the step", 8).get("times one token"), False),
        ("decode at context 4096, times 64", 1.5, _row(context, "context", 4096).get("times 64"), False),
        ("new process to first token, s", 5.0, _row(startup, "what", "first token, s").get("median"), False),
        ("resident memory, MB", 600, _row(startup, "what", "resident after 64 tokens, MB").get("median"), False),
        ("import tinyserve, s", 0.2, _row(startup, "what", "import tinyserve, s").get("median"), False)]
    return [{"what": what, "target": f"{'≥' if larger else '≤'} {target:g}", "reached": reached,
             "met": None if reached is None else (reached >= target if larger else reached <= target)}
            for what, target, reached, larger in found]


def report(folder: Path = FOLDER) -> Iterator[str]:
    """A line for each target."""
    for result in results(folder):
        verdict = {None: "not measured yet", True: "reached", False: "not reached"}[result["met"]]
        yield f"{result['what']}: {result['target']}, measured {result['reached'] if result['reached'] is not None else '-'}: {verdict}"
