"""A sequence's text as it grows: detokenizer, then stop strings."""

from __future__ import annotations

from typing import Any, Optional

from ..text.detokenizer import IncrementalDetokenizer
from ..text.params import SamplingParams
from ..text.stopping import StopMatcher


class TextStream:
    """Turns tokens into text that is final when it is given out. Without a tokenizer the text stays empty."""

    def __init__(self, tokenizer: Any, params: SamplingParams):
        use = tokenizer is not None and params.detokenize
        self._detokenizer = IncrementalDetokenizer(tokenizer, params.skip_special_tokens) if use else None
        self._min_tokens = params.min_tokens
        self._matcher = StopMatcher(params.stops, params.include_stop_str_in_output)

    def push(self, token: int, count: int) -> tuple[str, Optional[str]]:
        """(new text, the stop string that was met or None) for the `count`-th token; stops are looked for from min_tokens on."""
        if self._detokenizer is None:
            return "", None
        text = self._detokenizer.push(token)
        return (text, None) if count < self._min_tokens else self._matcher.push(text)

    def finish(self) -> tuple[str, Optional[str]]:
        """What was held back, when the tokens have ended."""
        if self._detokenizer is None:
            return "", None
        text, stop = self._matcher.push(self._detokenizer.flush())
        return (text, stop) if stop else (text + self._matcher.flush(), None)
