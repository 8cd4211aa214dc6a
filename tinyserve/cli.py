"""The `tinyserve` command. Bad input ends in one line on stderr and exit code 2; Ctrl-C in 130; never in a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from .errors import TinyserveError

app = typer.Typer(help="Learn LLM inference by building the engine that serves it.", no_args_is_help=True, add_completion=False,
                  pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]})

Model = Annotated[str, typer.Option("--model", "-m", help='"smollm2", a .gguf file, a Hugging Face folder or a hub id.')]
Dtype = Annotated[str, typer.Option(help="auto (as stored), float32, bfloat16, int8 or int4.")]
MaxTokens = Annotated[int, typer.Option(help="Longest answer, in tokens.")]
Temperature = Annotated[float, typer.Option(help="0 takes the most likely token every time.")]
Seed = Annotated[Optional[int], typer.Option(help="Makes random draws repeat.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def _load(model: str, dtype: str = "auto") -> Any:
    from .llm import LLM

    return LLM(model, dtype=dtype)


@app.command()
def doctor(as_json: Json = False) -> None:
    """What this machine is, which kernels will run here, and why."""
    from .diagnosis import diagnose

    facts = diagnose()
    if as_json:
        return _print_json(facts)
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), str(value))
    Console().print(table)


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="The text to continue, or - to read it from standard input.")],
    model: Model = "smollm2", dtype: Dtype = "auto", max_tokens: MaxTokens = 128, temperature: Temperature = 0.0, seed: Seed = None,
    chat: Annotated[bool, typer.Option("--chat", help="Treat the prompt as a chat message instead of text to continue.")] = False,
    as_json: Json = False,
) -> None:
    """Continue a text (or answer a message), and print it as it comes."""
    from .text.params import SamplingParams

    text = sys.stdin.read() if prompt == "-" else prompt
    params = SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=seed)
    llm = _load(model, dtype)
    asked: Any = [{"role": "user", "content": text}] if chat else text
    if not as_json:
        for output in llm.stream(asked, params):
            print(output.outputs[0].text, end="", flush=True)
        return print()
    output = (llm.chat(asked, params) if chat else llm.generate(asked, params))[0]
    answer, metrics = output.outputs[0], output.metrics
    _print_json({"text": answer.text, "finish_reason": answer.finish_reason, "prompt_tokens": len(output.prompt_token_ids),
                 "output_tokens": len(answer.token_ids), "ttft_s": metrics.ttft, "tpot_s": metrics.tpot, "e2e_s": metrics.e2e})


@app.command()
def chat(model: Model = "smollm2", dtype: Dtype = "auto", max_tokens: MaxTokens = 512, temperature: Temperature = 0.7, seed: Seed = None,
         system: Annotated[Optional[str], typer.Option(help="A system message to begin with.")] = None) -> None:
    """Talk with the model. An empty line or /exit ends; /new begins again."""
    from .text.params import SamplingParams

    params = SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=seed)
    llm = _load(model, dtype)
    opening = [{"role": "system", "content": system}] if system else []
    messages = list(opening)
    while (line := _ask()) not in ("", "/exit"):
        if line == "/new":
            messages = list(opening)
            continue
        messages.append({"role": "user", "content": line})
        answer = ""
        try:
            for output in llm.stream(messages, params):
                answer += output.outputs[0].text
                print(output.outputs[0].text, end="", flush=True)
            messages.append({"role": "assistant", "content": answer})
        except TinyserveError as problem:
            messages.pop()
            print(problem, file=sys.stderr)
        print()


def _ask() -> str:
    try:
        return input("> ").strip()
    except EOFError:
        return ""


@app.command()
def lab() -> None:
    """Open the course in JupyterLab."""
    folder = Path(__file__).resolve().parent.parent / "notebooks"
    if not folder.is_dir():
        raise TinyserveError("The notebooks are not beside this package; clone the project to get the course.")
    raise typer.Exit(subprocess.run([sys.executable, "-m", "jupyter", "lab", str(folder / "00_start_here.ipynb")]).returncode)


@app.command(hidden=True)
def demo() -> None:
    """What start.py shows: a streamed answer, then how fast it was against what this machine's memory allows."""
    from .diagnosis import show_demo

    show_demo()


def main() -> None:
    """Run the command, and turn every expected failure into one line and an exit code."""
    try:
        app(standalone_mode=False)
    except TinyserveError as problem:
        print(f"tinyserve: {problem}", file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        print("", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except Exception as problem:  # click's own usage errors know how to show themselves
        if not hasattr(problem, "show"):
            raise
        problem.show()
        sys.exit(2)


if __name__ == "__main__":
    main()
