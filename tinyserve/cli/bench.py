"""`tinyserve bench`: what `tinyserve.bench` measures, as commands. Records hold every sample, the machine and the commit."""

from __future__ import annotations

import subprocess
from dataclasses import asdict
from typing import Annotated, Any, Optional

import typer

from ..errors import DownloadFailed, TinyserveError
from .answers import load
from .options import Dtype, Json, Model, print_json, print_rows

bench = typer.Typer(no_args_is_help=True, help="Measure: latency, the machine's limit, other engines. Close other programs first.")

Repeats = Annotated[int, typer.Option(min=1, help="Rounds that count; the sides take turns in each.")]
New = Annotated[int, typer.Option(min=2, help="Tokens to generate a request.")]
Save = Annotated[bool, typer.Option("--save", help="Keep the record under benchmarks/records.")]


@bench.command()
def latency(
    model: Model = "smollm2", dtype: Dtype = "auto", new: New = 64, repeats: Repeats = 7,
    prompt: Annotated[Optional[list[int]], typer.Option(min=1, help="A prompt's length in tokens; may be given more than once.")] = None,
    warmup: Annotated[int, typer.Option(min=0, help="Rounds that do not count.")] = 1, save: Save = False, as_json: Json = False,
) -> None:
    """TTFT, TPOT, ITL and e2e of one request at a time, by prompt length."""
    from ..bench.latency import bench_latency

    _show(bench_latency(load(model, dtype), tuple(prompt or (16, 128, 512)), new, repeats, warmup), save, as_json)


@bench.command()
def roofline(model: Model = "smollm2", dtype: Dtype = "auto", new: New = 64, repeats: Repeats = 7, save: Save = False,
             as_json: Json = False) -> None:
    """Read bandwidth and dot products of this machine, and the share of them that each matrix and a whole step reach."""
    from ..bench.roofline import bench_roofline

    _show(bench_roofline(load(model, dtype), new, repeats), save, as_json)


@bench.command()
def steps(model: Model = "smollm2", dtype: Dtype = "auto", repeats: Repeats = 21, save: Save = False, as_json: Json = False) -> None:
    """What a step of several tokens costs against a step of one."""
    from ..bench.steps import bench_steps

    _show(bench_steps(load(model, dtype), repeats=repeats), save, as_json)


@bench.command()
def context(model: Model = "smollm2", dtype: Dtype = "auto", repeats: Repeats = 15, save: Save = False, as_json: Json = False) -> None:
    """What a decode step costs as the context grows."""
    from ..bench.steps import bench_context

    _show(bench_context(load(model, dtype), repeats=repeats), save, as_json)


@bench.command()
def kv(model: Model = "smollm2", dtype: Dtype = "auto", repeats: Repeats = 15, save: Save = False, as_json: Json = False) -> None:
    """Attention of one token by the number format of the KV cache."""
    from ..bench.steps import bench_kv

    _show(bench_kv(load(model, dtype), repeats=repeats), save, as_json)


@bench.command()
def startup(model: Model = "smollm2", repeats: Repeats = 5, save: Save = False, as_json: Json = False) -> None:
    """A new process to its first token, its memory, and `import tinyserve`."""
    from ..bench.startup import bench_startup

    _show(bench_startup(model, repeats), save, as_json)


@bench.command()
def peers(
    names: Annotated[Optional[list[str]], typer.Argument(help="Which peers; without names, all whose environments are made.")] = None,
    make: Annotated[bool, typer.Option("--make", help="Make the named peers' environments under .peers/ first (downloads).")] = False,
    new: New = 48, repeats: Repeats = 5,
    prefill: Annotated[int, typer.Option(min=1, help="Length of the long prompt, in tokens.")] = 512,
    save: Save = False, as_json: Json = False,
) -> None:
    """Other engines on the same weights and threads: llama.cpp, transformers, openvino, ctranslate2, vllm."""
    from ..bench.peers.compare import bench_peers
    from ..models.catalog import fetch

    if make:
        _make(names or [])
    _show(bench_peers(load("smollm2"), fetch("smollm2"), names or (), prefill, new, repeats), save, as_json)


@bench.command()
def targets(as_json: Json = False) -> None:
    """The project's targets beside the newest records."""
    from ..bench.targets import results

    found = results()
    print_json(found) if as_json else print_rows(found)


def _make(names: list[str]) -> None:
    from ..bench.peers.environment import make

    if not names:
        raise TinyserveError("Name the peers to make: `tinyserve bench peers --make llama.cpp`.")
    for name in names:
        try:
            make(name)
        except subprocess.CalledProcessError as problem:
            raise DownloadFailed(f"The environment of {name} could not be made; pip ended with {problem.returncode}, see above.") from None


def _show(record: Any, save: bool, as_json: bool) -> None:
    path = record.save() if save else None
    if as_json:
        return print_json(asdict(record))
    print_rows(record.rows, f"{record.name}: {', '.join(f'{name} {value}' for name, value in record.protocol.items())}")
    if path:
        print(f"saved as {path}")
