"""Stop strings in a stream of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional


class StopMatcher:
    """Finds the first stop string to be completed, however the text is cut into pieces.

    Only a suffix that is a proper prefix of some stop is held back. Of stops that end at the same character the longest wins.
    """

    def __init__(self, stops: Sequence[str], include: bool = False):
        self._stops, self._include, self._held = tuple(stops), include, ""

    def push(self, text: str) -> tuple[str, Optional[str]]:
        """(text to show, the stop that was met or None). After a match nothing more is to be pushed."""
        if not self._stops:
            return text, None
        buffer = self._held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := buffer.find(stop)) >= 0]
        if found:
            end, start, stop = min(found)
            self._held = ""
            return buffer[: end if self._include else start], stop
        keep = self._possible_start(buffer)
        self._held = buffer[keep:]
        return buffer[:keep], None

    def flush(self) -> str:
        """What was held back, when the text has ended without a stop."""
        held, self._held = self._held, ""
        return held

    def _possible_start(self, buffer: str) -> int:
        """Where the longest suffix begins that could still grow into a stop."""
        longest = max(map(len, self._stops)) - 1
        for start in range(max(0, len(buffer) - longest), len(buffer)):
            if any(stop.startswith(buffer[start:]) for stop in self._stops):
                return start
        return len(buffer)
