"""Tokens to text, one at a time and exact to the byte."""

from __future__ import annotations

import codecs
from typing import Protocol


class HasTokenBytes(Protocol):
    """What the detokenizer asks of a tokenizer."""

    def token_bytes(self, token: int, skip_special: bool = True) -> bytes: ...


class IncrementalDetokenizer:
    """`push` each token and join what comes back: the text of the whole, and nothing is shown before it is final.

    Bytes of an unfinished character are held back; bytes that can never become one turn into U+FFFD at once, as UTF-8's standard
    asks, so a bad byte does not stall the stream. `flush` ends the text.
    """

    def __init__(self, tokenizer: HasTokenBytes, skip_special: bool = True):
        self._tokenizer, self._skip = tokenizer, skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that this token completes; often all of its own, sometimes ''."""
        return self._decoder.decode(self._tokenizer.token_bytes(token, self._skip))

    def flush(self) -> str:
        """What was held back, as U+FFFD; once."""
        return self._decoder.decode(b"", final=True)
