"""Chat messages to the text that a model was trained on, by the model's own Jinja template, in a sandbox."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..errors import InvalidRequest, UnsupportedModel


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; here they are just text."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


@functools.lru_cache(maxsize=8)
def _template(source: str) -> Any:
    """The template, with the helpers that Hugging Face templates expect."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation])
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as problem:
        raise UnsupportedModel(f"The model's chat template cannot be read: {problem}. Use generate with a plain prompt.") from None


def check_messages(messages: Any) -> None:
    """Raises `InvalidRequest` unless these are {"role": …, "content": …} with text in both, at least one."""
    if isinstance(messages, (str, Mapping)) or not isinstance(messages, Sequence):
        raise InvalidRequest(f"A chat is a list of messages with 'role' and 'content'; this one is {type(messages).__name__}.")
    if not messages:
        raise InvalidRequest("The chat is empty; give at least one message.")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or not isinstance(message.get("content"), str):
            raise InvalidRequest(f"Each chat message needs a 'role' and a 'content', both strings; this one is {message!r}.")


def render(template: str, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool, special_names: Mapping[str, str]) -> str:
    """The prompt text of a chat. Raises `InvalidRequest` for messages that the template refuses (roles out of order, say)."""
    check_messages(messages)
    compiled = _template(template)
    try:
        return compiled.render(messages=[dict(message) for message in messages], tools=None, documents=None,
                               add_generation_prompt=add_generation_prompt, **special_names)
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as problem:
        raise InvalidRequest(f"The model's chat template refuses these messages: {str(problem).rstrip('.')}.") from None
