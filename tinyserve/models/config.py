"""What a decoder needs to know about a model, read from a Hugging Face config or from GGUF metadata.

An architecture is a row of `ARCHITECTURES`; nothing else in the engine asks which one it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from ..errors import CorruptCheckpoint, UnsupportedModel


@dataclass(frozen=True)
class Architecture:
    """What sets a family apart from Llama."""

    norm: str = "rms"
    activation: str = "silu"
    attention_bias: bool = False
    every_bias: bool = False
    qk_norm: bool = False
    learned_positions: bool = False
    tied: bool = False
    interleaved_rope: bool = False  # GGUF files of this family store q and k rows in pairs


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(interleaved_rope=True),
    "mistral": Architecture(interleaved_rope=True),
    "qwen2": Architecture(attention_bias=True),
    "qwen3": Architecture(qk_norm=True),
    "gpt2": Architecture(norm="layer", activation="gelu", every_bias=True, learned_positions=True, tied=True),
}


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and choices of one decoder-only transformer. `window` 0 means that every token is seen."""

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context_length: int
    eps: float
    tied: bool
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] = field(default_factory=dict)
    window: int = 0
    attention_bias: bool = False
    end_ids: tuple[int, ...] = ()

    @property
    def family(self) -> Architecture:
        return ARCHITECTURES[self.architecture]

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context_length"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 < value < 2**31:
                raise CorruptCheckpoint(f"The model's configuration says {name} = {value!r}; it must be a positive integer.")
        if self.heads % self.kv_heads:
            raise CorruptCheckpoint(f"{self.heads} query heads cannot share {self.kv_heads} key/value heads evenly.")
        if self.head_dim % 2:
            raise UnsupportedModel(f"Head size {self.head_dim} is odd; rotary embedding needs pairs.")


def _architecture(name: Any) -> Architecture:
    if name not in ARCHITECTURES:
        raise UnsupportedModel(f"Architecture {name!r} is not supported; supported are {', '.join(ARCHITECTURES)}.")
    return ARCHITECTURES[name]


def _required(config: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        if config.get(name) is not None:
            return config[name]
    raise CorruptCheckpoint(f"The model's configuration has no {names[0]!r}.")


def _as_tuple(ids: Any) -> tuple[int, ...]:
    return () if ids is None else tuple(ids) if isinstance(ids, (list, tuple)) else (ids,)


def _hf_rope(config: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
    """(theta, scaling) from either generation of the config format."""
    parameters = config.get("rope_parameters") or {}
    scaling = {**parameters, **(config.get("rope_scaling") or {})}
    theta = float(parameters.get("rope_theta") or config.get("rope_theta") or 10000.0)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in ("default", "linear", "dynamic", "llama3", "yarn"):
        raise UnsupportedModel(f"RoPE scaling {kind!r} is not supported; supported are linear, dynamic, llama3 and yarn.")
    return theta, {} if kind == "default" else {**scaling, "rope_type": kind}


def _hf_window(config: Mapping[str, Any]) -> int:
    kinds = set(config.get("layer_types") or [])
    if len(kinds) > 1:
        raise UnsupportedModel("Layers that differ in their attention window are not supported.")
    used = config.get("use_sliding_window", True) if not kinds else kinds == {"sliding_attention"}
    return int(config.get("sliding_window") or 0) if used else 0


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """A `config.json` as a dict -> `ModelConfig`. Unknown families and features are refused, never ignored."""
    name = config.get("model_type")
    family = _architecture(name)
    if config.get("quantization_config"):
        raise UnsupportedModel("This checkpoint is already quantized in a format that tinyserve does not read yet.")
    if name == "gpt2":
        return _from_gpt2(config)
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise UnsupportedModel(f"Activation {activation!r} is not supported for {name}; only silu is.")
    if config.get("mlp_bias"):
        raise UnsupportedModel("MLP biases are not supported for this family.")
    hidden, heads = _required(config, "hidden_size"), _required(config, "num_attention_heads")
    theta, scaling = _hf_rope(config)
    return ModelConfig(
        architecture=name, layers=_required(config, "num_hidden_layers"), hidden=hidden, heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads, head_dim=config.get("head_dim") or hidden // heads,
        ffn=_required(config, "intermediate_size"), vocab=_required(config, "vocab_size"),
        context_length=_required(config, "max_position_embeddings"), eps=float(_required(config, "rms_norm_eps")),
        tied=bool(config.get("tie_word_embeddings", False)), rope_theta=theta, rope_scaling=scaling, window=_hf_window(config),
        attention_bias=bool(config.get("attention_bias", family.attention_bias)) or family.attention_bias,
        end_ids=_as_tuple(config.get("eos_token_id")))


def _from_gpt2(config: Mapping[str, Any]) -> ModelConfig:
    if config.get("activation_function", "gelu_new") not in ("gelu_new", "gelu_pytorch_tanh"):
        raise UnsupportedModel(f"Activation {config['activation_function']!r} is not supported for gpt2; only gelu_new is.")
    if config.get("scale_attn_by_inverse_layer_idx") or config.get("scale_attn_weights") is False:
        raise UnsupportedModel("GPT-2's unusual attention scales are not supported.")
    hidden, heads = _required(config, "n_embd"), _required(config, "n_head")
    return ModelConfig(
        architecture="gpt2", layers=_required(config, "n_layer"), hidden=hidden, heads=heads, kv_heads=heads,
        head_dim=hidden // heads, ffn=config.get("n_inner") or 4 * hidden, vocab=_required(config, "vocab_size"),
        context_length=_required(config, "n_positions"), eps=float(config.get("layer_norm_epsilon", 1e-5)),
        tied=bool(config.get("tie_word_embeddings", True)), attention_bias=True, end_ids=_as_tuple(config.get("eos_token_id")))


def _gguf_scaling(get: Any) -> Mapping[str, Any]:
    kind = get("rope.scaling.type", "none")
    if kind == "none":
        return {}
    if kind not in ("linear", "yarn"):
        raise UnsupportedModel(f"RoPE scaling {kind!r} in a GGUF file is not supported; supported are linear and yarn.")
    scaling = {"rope_type": kind, "factor": get("rope.scaling.factor", 1.0),
               "original_max_position_embeddings": get("rope.scaling.original_context_length", None)}
    return {key: value for key, value in scaling.items() if value is not None}


def from_gguf(metadata: Mapping[str, Any], vocab: int, tied: bool) -> ModelConfig:
    """GGUF metadata -> `ModelConfig`; the vocabulary size and tying come from the tensors."""
    name = metadata.get("general.architecture")
    family = _architecture(name)

    def get(key: str, default: Any = ...) -> Any:
        value = metadata.get(f"{name}.{key}", default)
        if value is ...:
            raise CorruptCheckpoint(f"The GGUF file has no {name}.{key}.")
        return value

    hidden, heads = get("embedding_length"), get("attention.head_count")
    eps = get("attention.layer_norm_epsilon" if family.norm == "layer" else "attention.layer_norm_rms_epsilon")
    end: Optional[Any] = metadata.get("tokenizer.ggml.eos_token_id")
    return ModelConfig(
        architecture=name, layers=get("block_count"), hidden=hidden, heads=heads, kv_heads=get("attention.head_count_kv", heads),
        head_dim=get("attention.key_length", hidden // heads if heads else 0), ffn=get("feed_forward_length"), vocab=vocab,
        context_length=get("context_length"), eps=float(eps), tied=tied, rope_theta=float(get("rope.freq_base", 10000.0)),
        rope_scaling=_gguf_scaling(get), window=get("attention.sliding_window", 0) or 0,
        attention_bias=family.attention_bias or family.every_bias, end_ids=_as_tuple(end))
