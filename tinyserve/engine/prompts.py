"""Prompts as callers write them: a string, token ids, or a dict of vLLM's."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Optional, TypedDict, Union

from ..errors import InvalidRequest


class TextPrompt(TypedDict):
    """A prompt as text."""

    prompt: str


class TokensPrompt(TypedDict, total=False):
    """A prompt as token ids; `prompt` may name the text that they came from."""

    prompt_token_ids: Sequence[int]
    prompt: str


Prompt = Union[str, Sequence[int], TextPrompt, TokensPrompt]
_FORMS = "give a string, a list of token ids, or a dict with 'prompt' or 'prompt_token_ids'"


def is_one(prompts: Any) -> bool:
    """True for a single prompt: a string, a dict, or token ids (an empty list is no prompts)."""
    return isinstance(prompts, (str, Mapping)) or _is_ids(prompts) and len(prompts) > 0


def read_prompt(prompt: Any, tokenizer: Any) -> tuple[Optional[str], list[int]]:
    """(text or None, token ids). Raises `InvalidRequest` for anything that is no prompt."""
    text = None
    if isinstance(prompt, Mapping):
        unknown = [name for name in prompt if name not in ("prompt", "prompt_token_ids")]
        if unknown:
            raise InvalidRequest(f"A prompt has no field {unknown[0]!r}; {_FORMS}.")
        text = prompt.get("prompt")
        prompt = prompt.get("prompt_token_ids", text)
    if isinstance(prompt, str):
        return prompt, tokenizer.encode(prompt)
    if not _is_ids(prompt):
        raise InvalidRequest(f"A prompt cannot be {type(prompt).__name__!r} as given here; {_FORMS}.")
    return text, [operator.index(token) for token in prompt]


def _is_ids(prompt: Any) -> bool:
    """True for a sequence (list, tuple, NumPy array) that holds nothing but integers."""
    if isinstance(prompt, (str, bytes, Mapping)) or not hasattr(prompt, "__len__"):
        return False
    return all(hasattr(token, "__index__") and not isinstance(token, bool) for token in prompt)
