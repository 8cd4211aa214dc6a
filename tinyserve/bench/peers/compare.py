"""`tinyserve bench peers`: the same prompts, threads and weights, peer and tinyserve in turn within one run."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import TinyserveError
from ...llm import LLM
from ..latency import one_request, random_prompt
from ..protocol import ratio
from ..records import Record, make
from .environment import is_made, peers_folder
from .recipes import RECIPES
from .server import Peer


def hf_folder(llm: LLM) -> Path:
    """The LLM's weights, dequantized, as a Hugging Face folder for peers that read one; written once."""
    folder = peers_folder() / "weights" / "hf"
    if not (folder / "config.json").exists():
        from ..twin import transformers_twin

        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        transformers_twin(llm, "bfloat16").save_pretrained(partial)
        llm.tokenizer.fast.save(str(partial / "tokenizer.json"))
        (partial / "tokenizer_config.json").write_text(json.dumps(_special_tokens(llm)))
        partial.rename(folder)
    return folder


def _special_tokens(llm: LLM) -> dict[str, str]:
    """What some converters insist on; generation in these benchmarks never uses them."""
    name = llm.tokenizer.fast.id_to_token
    end = name(min(llm.tokenizer.eos_ids))
    return {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": name(llm.tokenizer.bos_id or 0), "eos_token": end, "unk_token": end}


def compare(llm: LLM, name: str, gguf: Path, prefill: int, new: int, repeats: int) -> dict[str, Any]:
    """One peer against tinyserve: TTFT of a long prompt and TPOT after a short one; every prompt is new."""
    model = gguf if RECIPES[name].weights == "gguf" else hf_folder(llm)
    taken: dict[str, list[float]] = {side: [] for side in ("our ttft", "their ttft", "our tpot", "their tpot")}
    with Peer(name, model, llm.engine.ops.threads) as peer:
        for round_ in range(repeats + 1):
            long, short = random_prompt(llm, prefill, 2 * round_), random_prompt(llm, 16, 2 * round_ + 1)
            ours_long, theirs_long = one_request(llm, long, 1), peer.generate(long, 1)
            ours, theirs = one_request(llm, short, new), peer.generate(short, new)
            if round_:
                taken["our ttft"].append(ours_long.ttft)
                taken["their ttft"].append(theirs_long["ttft"])
                taken["our tpot"].append(ours.tpot or 0.0)
                taken["their tpot"].append((theirs["e2e"] - theirs["ttft"]) / (new - 1))
    return taken


def bench_peers(llm: LLM, gguf: Path, names: Sequence[str] = (), prefill: int = 512, new: int = 48, repeats: int = 5) -> Record:
    """Every named peer (default: all whose environments are made). A peer that fails is noted and does not stop the others."""
    names = list(names) or [name for name in RECIPES if is_made(name)]
    if not names:
        raise TinyserveError(f"No peer's environment is made yet; make one with --make, of {', '.join(RECIPES)}.")
    rows, samples = [], {}
    for name in names:
        try:
            taken = samples[name] = compare(llm, name, gguf, prefill, new, repeats)
        except (TinyserveError, OSError, ValueError) as problem:
            rows.append({"peer": name, "weights": RECIPES[name].precision, "note": f"not measured: {problem}"})
            continue
        rows.append({
            "peer": name, "weights": RECIPES[name].precision,
            "its decode tok/s": round(1 / statistics.median(taken["their tpot"]), 1),
            "our decode tok/s": round(1 / statistics.median(taken["our tpot"]), 1),
            "decode: times faster": round(ratio(taken["our tpot"], taken["their tpot"]), 2),
            f"its prefill of {prefill}, tok/s": round(prefill / statistics.median(taken["their ttft"])),
            f"our prefill of {prefill}, tok/s": round(prefill / statistics.median(taken["our ttft"])),
            "prefill: times faster": round(ratio(taken["our ttft"], taken["their ttft"]), 2)})
    protocol = {"order": "peer and tinyserve in turn", "repeats": repeats, "prefill tokens": prefill, "new tokens": new, "batch": 1}
    return make("peers", rows, protocol, samples, llm.engine.ops)
