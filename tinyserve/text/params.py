"""Sampling parameters, with the names of vLLM's. Every field does what it says or is refused; Python refuses unknown ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, NoReturn, Optional, Union

from ..errors import InvalidRequest

_ABOVE_0 = math.ulp(0.0)
_GREEDY_BELOW = 1e-5
_NUMBERS = {  # field: least, most, in words
    "temperature": (0, 1e6, "a finite number from 0 to 1,000,000"),
    "top_p": (_ABOVE_0, 1, "a number above 0 and at most 1"),
    "min_p": (0, 1, "a number from 0 to 1"),
    "presence_penalty": (-2, 2, "a number from -2 to 2"),
    "frequency_penalty": (-2, 2, "a number from -2 to 2"),
    "repetition_penalty": (0.001, 1000, "a number above 0, from 0.001 to 1000"),
}
_INTEGERS = {
    "n": (1, 16384, "an integer from 1 to 16384"),
    "top_k": (-1, 2**31 - 1, "an integer: -1 or 0 for off, or how many tokens to keep"),
    "min_tokens": (0, 2**31 - 1, "an integer of 0 or more"),
}
_OPTIONAL_INTEGERS = {
    "seed": (-(2**63), 2**64 - 1, "an integer of at most 64 bits, or None for a random one"),
    "max_tokens": (1, 2**31 - 1, "an integer of 1 or more, or None for no limit but the context"),
    "logprobs": (0, 2**31 - 1, "an integer of 0 or more, or None"),
    "prompt_logprobs": (0, 2**31 - 1, "an integer of 0 or more, or None"),
}
_FLAGS = ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "detokenize")


def _refuse(name: str, value: Any, allowed: str) -> NoReturn:
    raise InvalidRequest(f"{name} is {value!r}; it must be {allowed}.")


def _number(name: str, value: Any, low: float, high: float, allowed: str) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not low <= value <= high:  # NaN is in no range
        _refuse(name, value, allowed)
    return float(value)


def _integer(name: str, value: Any, low: int, high: int, allowed: str) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or not low <= value <= high:
        _refuse(name, value, allowed)
    return int(value)


def _words(name: str, value: Any, allowed: str) -> list[str]:
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        _refuse(name, value, allowed)
    words = list(value)
    if not all(isinstance(word, str) and word for word in words):
        _refuse(name, value, allowed)
    return words


@dataclass(frozen=True)
class SamplingParams:
    """How to choose tokens, and when to stop.

    Order: penalties and biases, then temperature, top_k (0 or -1: off), top_p, min_p. Temperature 0 (and below 1e-5) takes the most
    likely token. `seed` makes the draws depend on the seed and the token's position alone. `logprobs` k returns the k most likely
    tokens and the chosen one, under the raw distribution. Raises `InvalidRequest` naming the field, its value and what is allowed.
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
        for name, allowed in _NUMBERS.items():
            self._set(name, _number(name, getattr(self, name), *allowed))
        for name, allowed in _INTEGERS.items():
            self._set(name, _integer(name, getattr(self, name), *allowed))
        for name, allowed in _OPTIONAL_INTEGERS.items():
            if getattr(self, name) is not None:
                self._set(name, _integer(name, getattr(self, name), *allowed))
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                _refuse(name, getattr(self, name), "True or False")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            _refuse("min_tokens", self.min_tokens, f"at most max_tokens, which is {self.max_tokens}")
        self._check_words()
        self._check_ids()

    @property
    def greedy(self) -> bool:
        """True where the most likely token is taken and nothing is drawn."""
        return self.temperature < _GREEDY_BELOW

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_words(self) -> None:
        allowed = "a string or a list of strings, none of them empty"
        stops = [] if self.stop is None else _words("stop", [self.stop] if isinstance(self.stop, str) else self.stop, allowed)
        if stops and not self.detokenize:
            _refuse("stop", self.stop, "unset where detokenize is False, since it is matched against text")
        self._set("stops", tuple(stops))
        if self.bad_words is not None:
            self._set("bad_words", _words("bad_words", self.bad_words, "a list of strings, none of them empty"))

    def _check_ids(self) -> None:
        allowed = "a list of token ids"
        if self.stop_token_ids is not None:
            if isinstance(self.stop_token_ids, str) or not isinstance(self.stop_token_ids, Iterable):
                _refuse("stop_token_ids", self.stop_token_ids, allowed)
            self._set("stop_token_ids", [_integer("stop_token_ids", token, 0, 2**31 - 1, allowed) for token in self.stop_token_ids])
        if self.logit_bias is not None:
            allowed = "a mapping from token ids to numbers from -100 to 100"
            if not isinstance(self.logit_bias, Mapping):
                _refuse("logit_bias", self.logit_bias, allowed)
            self._set("logit_bias", {_integer("logit_bias", token, 0, 2**31 - 1, allowed): _number("logit_bias", bias, -100, 100, allowed)
                                     for token, bias in self.logit_bias.items()})
