"""Sampling parameters, with the names of vLLM's. Every field does what it says or is refused; Python refuses unknown ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from ..errors import InvalidRequest


def _refuse(name: str, value: Any, allowed: str) -> None:
    raise InvalidRequest(f"{name} is {value!r}; it must be {allowed}.")


def _number(name: str, value: Any, low: float, high: float, allowed: str, open_low: bool = False) -> None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not (low < value if open_low else low <= value) or value > high:
        _refuse(name, value, allowed)


def _integer(name: str, value: Any, low: int, allowed: str, optional: bool = False) -> None:
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        _refuse(name, value, allowed)


@dataclass(frozen=True)
class SamplingParams:
    """How to choose tokens, and when to stop.

    Order: penalties and biases, then temperature, top_k (0 or -1: off), top_p, min_p. Temperature 0 takes the most likely token.
    `seed` makes the draws depend on the seed and the token's position alone. `logprobs` k returns the k most likely tokens and the
    chosen one. Raises `InvalidRequest` naming the field.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: Optional[int] = None
    max_tokens: Optional[int] = 16
    min_tokens: int = 0
    stop: Union[None, str, Sequence[str]] = None
    stop_token_ids: Optional[Sequence[int]] = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    logprobs: Optional[int] = None
    prompt_logprobs: Optional[int] = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    bad_words: Optional[Sequence[str]] = None
    logit_bias: Optional[Mapping[int, float]] = None
    skip_special_tokens: bool = True
    detokenize: bool = True
    stops: tuple[str, ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        _integer("n", self.n, 1, "an integer of 1 or more")
        _number("temperature", self.temperature, 0, math.inf, "a finite number of 0 or more")
        _number("top_p", self.top_p, 0, 1, "a number above 0 and at most 1", open_low=True)
        _integer("top_k", self.top_k, -1, "an integer: -1 or 0 for off, or how many tokens to keep")
        _number("min_p", self.min_p, 0, 1, "a number from 0 to 1")
        _number("presence_penalty", self.presence_penalty, -2, 2, "a number from -2 to 2")
        _number("frequency_penalty", self.frequency_penalty, -2, 2, "a number from -2 to 2")
        _number("repetition_penalty", self.repetition_penalty, 0, math.inf, "a finite number above 0", open_low=True)
        _integer("seed", self.seed, -(2**63), "an integer", optional=True)
        _integer("max_tokens", self.max_tokens, 1, "an integer of 1 or more, or None for no limit but the context", optional=True)
        _integer("min_tokens", self.min_tokens, 0, "an integer of 0 or more")
        _integer("logprobs", self.logprobs, 0, "an integer of 0 or more, or None", optional=True)
        _integer("prompt_logprobs", self.prompt_logprobs, 0, "an integer of 0 or more, or None", optional=True)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            _refuse("min_tokens", self.min_tokens, f"at most max_tokens, which is {self.max_tokens}")
        self._check_words()
        self._check_ids()

    def _check_words(self) -> None:
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        if not all(isinstance(word, str) and word for word in stops):
            _refuse("stop", self.stop, "a string or a list of strings, none of them empty")
        if stops and not self.detokenize:
            _refuse("stop", self.stop, "unset where detokenize is False, since it is matched against text")
        object.__setattr__(self, "stops", stops)
        if isinstance(self.bad_words, str) or not all(isinstance(word, str) and word for word in self.bad_words or ()):
            _refuse("bad_words", self.bad_words, "a list of strings, none of them empty")

    def _check_ids(self) -> None:
        for token in self.stop_token_ids or ():
            _integer("stop_token_ids", token, 0, "a list of token ids")
        for token, bias in (self.logit_bias or {}).items():
            _integer("logit_bias", token, 0, "a mapping from token ids to numbers")
            _number("logit_bias", bias, -100, 100, "a mapping from token ids to numbers from -100 to 100")
