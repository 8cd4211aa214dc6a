"""What a decoder needs to know about a model, read from a Hugging Face config or from GGUF metadata.

An architecture is a row of `ARCHITECTURES`; nothing else in the engine asks which one it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ..errors import CorruptCheckpoint, UnsupportedModel
from .quantized import Scheme, read_scheme


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


_LARGEST = 2**24  # of any size: nothing published comes near, and a table of so many positions still fits in memory


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
    scheme: Optional[Scheme] = None  # how a quantized checkpoint packs its matrices

    @property
    def family(self) -> Architecture:
        return ARCHITECTURES[self.architecture]

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context_length", "window"):
            value, least = getattr(self, name), 0 if name == "window" else 1
            if not least <= value <= _LARGEST:
                raise CorruptCheckpoint(f"The model's configuration says {name} = {value}; it must be from {least} to {_LARGEST}.")
        if not self.eps > 0 or not self.rope_theta > 1:
            raise CorruptCheckpoint(f"The model's configuration says eps = {self.eps} and RoPE theta = {self.rope_theta}; "
                                    "the first must be above 0, the second above 1.")
        if self.heads % self.kv_heads:
            raise CorruptCheckpoint(f"{self.heads} query heads cannot share {self.kv_heads} key/value heads evenly.")
        if self.head_dim % 2:
            raise UnsupportedModel(f"Head size {self.head_dim} is odd; rotary embedding needs pairs.")


def _architecture(name: Any) -> Architecture:
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise UnsupportedModel(f"Architecture {name!r} is not supported; supported are {', '.join(ARCHITECTURES)}.")
    return ARCHITECTURES[name]


class _Values:
    """A configuration from outside: every value is of the type that its reader expects, or refused by name."""

    def __init__(self, values: Mapping[str, Any], prefix: str = ""):
        self._values, self._prefix = values, prefix

    def get(self, name: str) -> Any:
        return self._values.get(self._prefix + name)

    def _checked(self, name: str, default: Any, kinds: tuple[type, ...], what: str) -> Any:
        value = self.get(name)
        value = default if value is None else value
        if value is None:
            raise CorruptCheckpoint(f"The model's configuration has no {self._prefix + name!r}.")
        if not isinstance(value, kinds) or isinstance(value, bool) != (kinds == (bool,)) or value != value:
            raise CorruptCheckpoint(f"The model's configuration says {self._prefix + name} = {value!r}; it must be {what}.")
        return value

    def integer(self, name: str, default: Optional[int] = None) -> int:
        return self._checked(name, default, (int,), "an integer")

    def number(self, name: str, default: Optional[float] = None) -> float:
        value = float(self._checked(name, default, (int, float), "a number"))
        if math.isinf(value):
            raise CorruptCheckpoint(f"The model's configuration says {self._prefix + name} = {value}; it must be finite.")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        return self._checked(name, default, (bool,), "true or false")

    def mapping(self, name: str) -> Mapping[str, Any]:
        return self._checked(name, {}, (dict,), "an object")

    def list(self, name: str) -> Sequence[Any]:
        return self._checked(name, [], (list,), "a list")

    def ids(self, name: str) -> tuple[int, ...]:
        value = self.get(name)
        ids = () if value is None else tuple(value) if isinstance(value, (list, tuple)) else (value,)
        if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
            raise CorruptCheckpoint(f"The model's configuration says {self._prefix + name} = {value!r}; it must be a token id or a list.")
        return ids


_SCALING_NUMBERS = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", "beta_fast", "beta_slow",
                    "attention_factor", "mscale", "mscale_all_dim")
_SCALING_NEEDS = {"linear": _SCALING_NUMBERS[:1], "dynamic": _SCALING_NUMBERS[:1], "yarn": _SCALING_NUMBERS[:1],
                  "llama3": _SCALING_NUMBERS[:4]}


def _scaling(parameters: Mapping[str, Any], kind: Any) -> Mapping[str, Any]:
    """RoPE scaling with positive numbers for all that its kind needs; {} for none."""
    if kind in (None, "default", "none"):
        return {}
    if not isinstance(kind, str) or kind not in _SCALING_NEEDS:
        raise UnsupportedModel(f"RoPE scaling {kind!r} is not supported; supported are {', '.join(_SCALING_NEEDS)}.")
    values = _Values(parameters)
    scaling: dict[str, Any] = {"rope_type": kind, "truncate": values.flag("truncate", True)}
    for name in _SCALING_NUMBERS:
        if name in _SCALING_NEEDS[kind] or parameters.get(name) is not None:
            scaling[name] = values.number(name)
            if not scaling[name] > 0:
                raise CorruptCheckpoint(f"The model's RoPE scaling says {name} = {scaling[name]}; it must be above 0.")
    if kind == "llama3" and not scaling["high_freq_factor"] > scaling["low_freq_factor"]:
        raise CorruptCheckpoint("The model's RoPE scaling has no band between low_freq_factor and high_freq_factor.")
    return scaling


def _hf_rope(config: _Values) -> tuple[float, Mapping[str, Any]]:
    """(theta, scaling) from either generation of the config format."""
    parameters = config.mapping("rope_parameters")
    scaling = {**parameters, **config.mapping("rope_scaling")}
    theta = _Values(parameters).number("rope_theta", config.number("rope_theta", 10000.0))
    if _Values(scaling).number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0)) != 1:
        raise UnsupportedModel("Rotary embedding of only a part of each head is not supported.")
    return theta, _scaling(scaling, scaling.get("rope_type") or scaling.get("type"))


def _hf_window(name: str, config: _Values) -> int:
    """The window that transformers gives every layer: Mistral's always, Qwen's where it is switched on, from a layer on."""
    window, kinds = config.integer("sliding_window", 0), set(map(str, config.list("layer_types")))
    if name == "mistral" and not kinds:
        return window
    if not kinds and name != "llama" and window and config.flag("use_sliding_window"):
        full, layers = config.integer("max_window_layers", 28), config.integer("num_hidden_layers")
        kinds = {"full_attention" if i < full else "sliding_attention" for i in (0, layers - 1)}
    if len(kinds) > 1:
        raise UnsupportedModel("Layers that differ in their attention window are not supported.")
    return window if name != "llama" and kinds == {"sliding_attention"} else 0


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """A `config.json` as a dict -> `ModelConfig`. Unknown families and features are refused, never ignored."""
    name = config.get("model_type")
    family = _architecture(name)
    values, scheme = _Values(config), read_scheme(config)
    if name == "gpt2":
        if scheme:
            raise UnsupportedModel("Quantized checkpoints of gpt2 are not supported.")
        return _from_gpt2(values)
    if config.get("hidden_act", "silu") not in ("silu", "swish"):
        raise UnsupportedModel(f"Activation {config['hidden_act']!r} is not supported for {name}; only silu is.")
    if config.get("mlp_bias"):
        raise UnsupportedModel("MLP biases are not supported for this family.")
    hidden, heads = values.integer("hidden_size"), values.integer("num_attention_heads")
    theta, scaling = _hf_rope(values)
    return ModelConfig(
        architecture=name, layers=values.integer("num_hidden_layers"), hidden=hidden, heads=heads,
        kv_heads=values.integer("num_key_value_heads", heads), head_dim=values.integer("head_dim", hidden // max(heads, 1)),
        ffn=values.integer("intermediate_size"), vocab=values.integer("vocab_size"),
        context_length=values.integer("max_position_embeddings"), eps=values.number("rms_norm_eps"),
        tied=values.flag("tie_word_embeddings"), rope_theta=theta, rope_scaling=scaling, window=_hf_window(name, values),
        attention_bias=values.flag("attention_bias") or family.attention_bias, end_ids=values.ids("eos_token_id"), scheme=scheme)


def _from_gpt2(values: _Values) -> ModelConfig:
    if (activation := values.get("activation_function")) not in (None, "gelu_new", "gelu_pytorch_tanh"):
        raise UnsupportedModel(f"Activation {activation!r} is not supported for gpt2; only gelu_new is.")
    if values.flag("scale_attn_by_inverse_layer_idx") or not values.flag("scale_attn_weights", True):
        raise UnsupportedModel("GPT-2's unusual attention scales are not supported.")
    hidden, heads = values.integer("n_embd"), values.integer("n_head")
    return ModelConfig(
        architecture="gpt2", layers=values.integer("n_layer"), hidden=hidden, heads=heads, kv_heads=heads,
        head_dim=hidden // max(heads, 1), ffn=values.integer("n_inner", 4 * hidden), vocab=values.integer("vocab_size"),
        context_length=values.integer("n_positions"), eps=values.number("layer_norm_epsilon", 1e-5),
        tied=values.flag("tie_word_embeddings", True), attention_bias=True, end_ids=values.ids("eos_token_id"))


def _gguf_scaling(values: _Values) -> Mapping[str, Any]:
    older = values.number("rope.scale_linear", 1.0)
    kind = values.get("rope.scaling.type") or ("linear" if older != 1 else None)
    if kind not in (None, "none", "linear", "yarn"):
        raise UnsupportedModel(f"RoPE scaling {kind!r} in a GGUF file is not supported; supported are linear and yarn.")
    factor = values.number("rope.scaling.factor", older)
    names = {"original_max_position_embeddings": "original_context_length", "beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"}
    found = {ours: values.get(f"rope.scaling.{theirs}") for ours, theirs in names.items()}
    grown = values.number("rope.scaling.attn_factor", 1.0) * (1 + 0.1 * math.log(max(factor, 1)))
    return _scaling({"factor": factor, "attention_factor": grown, **found}, kind)


def from_gguf(metadata: Mapping[str, Any], vocab: int, tied: bool) -> ModelConfig:
    """GGUF metadata -> `ModelConfig`; the vocabulary size and tying come from the tensors."""
    name = metadata.get("general.architecture")
    family = _architecture(name)
    values = _Values(metadata, f"{name}.")
    if values.integer("expert_count", 0):
        raise UnsupportedModel("Mixtures of experts are not supported.")
    hidden, heads = values.integer("embedding_length"), values.integer("attention.head_count")
    head_dim = values.integer("attention.key_length", hidden // max(heads, 1))
    config = ModelConfig(
        architecture=name, layers=values.integer("block_count"), hidden=hidden, heads=heads,
        kv_heads=values.integer("attention.head_count_kv", heads), head_dim=head_dim, ffn=values.integer("feed_forward_length"),
        vocab=vocab, context_length=values.integer("context_length"), tied=tied, rope_theta=values.number("rope.freq_base", 10000.0),
        eps=values.number("attention.layer_norm_epsilon" if family.norm == "layer" else "attention.layer_norm_rms_epsilon"),
        rope_scaling=_gguf_scaling(values), window=values.integer("attention.sliding_window", 0),
        attention_bias=family.attention_bias or family.every_bias, end_ids=_Values(metadata).ids("tokenizer.ggml.eos_token_id"))
    if not family.learned_positions and values.integer("rope.dimension_count", head_dim) != head_dim:
        raise UnsupportedModel("Rotary embedding of only a part of each head is not supported.")
    if values.integer("attention.value_length", head_dim) != head_dim:
        raise UnsupportedModel("Heads whose keys and values differ in size are not supported.")
    return config
