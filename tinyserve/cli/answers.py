"""`tinyserve generate` and `tinyserve chat`: answers, printed as they come."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Optional

import typer

from ..errors import InvalidRequest, TinyserveError
from .options import Device, Dtype, Json, MaxTokens, Model, Seed, Stop, Temperature, TopK, TopP, print_json, read_text

_HELP = "/new begins a new conversation, /exit (or an empty line) ends."


def generate(
    prompt: Annotated[str, typer.Argument(help="The text to continue; - reads it from standard input.")],
    model: Model = "smollm2", dtype: Dtype = "auto", device: Device = "auto", max_tokens: MaxTokens = 128,
    temperature: Temperature = 0.0, top_p: TopP = 1.0, top_k: TopK = 0, seed: Seed = None, stop: Stop = None,
    chat: Annotated[bool, typer.Option("--chat", help="The prompt is a message to answer, not a text to continue.")] = False,
    as_json: Json = False,
) -> None:
    """Continue a text, or answer a message, and print it as it comes."""
    from ..text.params import SamplingParams

    text = read_text(prompt)
    params = SamplingParams(temperature=temperature, top_p=top_p, top_k=top_k, max_tokens=max_tokens, seed=seed, stop=stop)
    llm = load(model, dtype, device)
    asked: Any = [{"role": "user", "content": text}] if chat else text
    if as_json:
        return print_json(_as_json((llm.chat if chat else llm.generate)(asked, params)[0]))
    print_stream(llm, asked, params)


def chat(
    model: Model = "smollm2", dtype: Dtype = "auto", device: Device = "auto", max_tokens: MaxTokens = 512,
    temperature: Temperature = 0.7, top_p: TopP = 0.9, top_k: TopK = 0, seed: Seed = None,
    system: Annotated[Optional[str], typer.Option(help="A system message to begin with.")] = None,
) -> None:
    """Talk with the model; it sees the whole conversation so far. /new begins again, /exit ends."""
    from ..text.params import SamplingParams

    params = SamplingParams(temperature=temperature, top_p=top_p, top_k=top_k, max_tokens=max_tokens, seed=seed)
    llm = load(model, dtype, device)
    opening = [{"role": "system", "content": system}] if system else []
    messages = list(opening)
    if sys.stdin.isatty():
        print(_HELP, file=sys.stderr)
    while (line := _ask()) not in ("", "/exit"):
        if line.startswith("/"):
            messages = list(opening) if line == "/new" else messages
            print("A new conversation." if line == "/new" else f"There is no {line}. {_HELP}", file=sys.stderr)
            continue
        messages.append({"role": "user", "content": line})
        try:
            messages.append({"role": "assistant", "content": print_stream(llm, messages, params)})
        except InvalidRequest as problem:  # most likely the conversation has outgrown the context
            messages.pop()
            print(f"{problem} Type /new to begin a new conversation.", file=sys.stderr)


def load(model: str, dtype: str = "auto", device: str = "auto") -> Any:
    """The LLM that a command asked for."""
    from ..llm import LLM

    return LLM(model, dtype=dtype, device=device)


def print_stream(llm: Any, asked: Any, params: Any) -> str:
    """Print an answer as it comes, and return it whole; raises `TinyserveError` where it ended in an error."""
    answer = ""
    with llm.stream(asked, params) as stream:
        for output in stream:
            answer += output.outputs[0].text
            print(output.outputs[0].text, end="", flush=True)
    print()
    _check(output.outputs[0])
    return answer


def _check(answer: Any) -> None:
    if answer.finish_reason == "error":
        raise TinyserveError(f"The answer could not be finished: {answer.stop_reason}.")


def _as_json(output: Any) -> dict[str, Any]:
    answer, metrics = output.outputs[0], output.metrics
    _check(answer)
    return {"text": answer.text, "finish_reason": answer.finish_reason, "stop_reason": answer.stop_reason,
            "prompt_tokens": len(output.prompt_token_ids), "output_tokens": len(answer.token_ids), "token_ids": answer.token_ids,
            "ttft_s": metrics.ttft, "tpot_s": metrics.tpot, "e2e_s": metrics.e2e}


def _ask() -> str:
    """A line from the user; the end of the input is an empty one."""
    try:
        return read_text(input("> ")).strip()
    except EOFError:
        print()
        return ""
