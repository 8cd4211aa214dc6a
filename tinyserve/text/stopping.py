"""Stop strings in a stream of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional


class StopMatcher:
    """Finds the first stop string to be completed, however the text is cut into pieces.

    Only a suffix that is a proper prefix of some stop is held back. Of stops that end at the same character the longest wins.
    Each character is looked at once (Knuth, Morris & Pratt 1977), so long stops and texts cost no more than short ones.
    """

    def __init__(self, stops: Sequence[str], include: bool = False):
        self._stops, self._include, self._held = tuple(stops), include, ""
        self._borders = [_borders(stop) for stop in self._stops]
        self._matched = [0] * len(self._stops)  # how many characters of each stop the text ends with

    def push(self, text: str) -> tuple[str, Optional[str]]:
        """(text to show, the stop that was met or None). After a match nothing more is to be pushed."""
        if not self._stops:
            return text, None
        buffer = self._held + text
        for end in range(len(self._held), len(buffer)):
            stop = self._advance(buffer[end])
            if stop is not None:
                self._held = ""
                return buffer[: end + 1 - (0 if self._include else len(stop))], stop
        keep = len(buffer) - max(self._matched)
        self._held = buffer[keep:]
        return buffer[:keep], None

    def flush(self) -> str:
        """What was held back, when the text has ended without a stop."""
        held, self._held = self._held, ""
        self._matched = [0] * len(self._stops)
        return held

    def _advance(self, character: str) -> Optional[str]:
        """The longest stop that this character completes, if any."""
        complete = None
        for i, stop in enumerate(self._stops):
            matched = self._matched[i]
            while matched and stop[matched] != character:
                matched = self._borders[i][matched - 1]
            self._matched[i] = matched = matched + (stop[matched] == character)
            if matched == len(stop) and len(stop) > len(complete or ""):
                complete = stop
        return complete


def _borders(stop: str) -> list[int]:
    """For each prefix of `stop`, how long the longest proper prefix is that is also its suffix."""
    lengths, matched = [0] * len(stop), 0
    for i in range(1, len(stop)):
        while matched and stop[matched] != stop[i]:
            matched = lengths[matched - 1]
        matched += stop[matched] == stop[i]
        lengths[i] = matched
    return lengths
