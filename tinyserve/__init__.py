"""tinyserve: learn LLM inference by building the engine that serves it, and keep the engine.

`from tinyserve import LLM, SamplingParams`. Importing the package loads neither torch nor numba; each name loads what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .llm import LLM, CompletionOutput, Logprob, RequestMetrics, RequestOutput, Score, TextPrompt, TokensPrompt
    from .text.params import SamplingParams

__version__ = "0.1.0"
__all__ = ["LLM", "CompletionOutput", "Logprob", "RequestMetrics", "RequestOutput", "SamplingParams", "Score", "TextPrompt",
           "TokensPrompt", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "SamplingParams":
        from .text.params import SamplingParams

        return SamplingParams
    if name in __all__:
        from . import llm

        return getattr(llm, name)
    raise AttributeError(f"module 'tinyserve' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
