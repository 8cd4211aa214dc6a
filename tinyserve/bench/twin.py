"""The same weights in another library: a transformers model with exactly the numbers that an `LLM` holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import UnsupportedModel
from ..kernels.layouts import dequantize
from ..llm import LLM


def transformers_twin(llm: LLM, dtype: str = "bfloat16") -> Any:
    """A `transformers.LlamaForCausalLM` with this LLM's dequantized weights, in "float32" or "bfloat16".

    For models of the Llama layout without biases; others raise `UnsupportedModel`. Uses as many threads as the LLM.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config, decoder = llm.config, llm.engine.runner.decoder
    if config.architecture != "llama" or config.rope_scaling or config.attention_bias:
        raise UnsupportedModel(f"A twin of {config.architecture} is not implemented; only plain Llama layouts are.")
    torch.set_num_threads(decoder.ops.threads)
    twin = LlamaForCausalLM(LlamaConfig(
        hidden_size=config.hidden, num_hidden_layers=config.layers, num_attention_heads=config.heads, head_dim=config.head_dim,
        num_key_value_heads=config.kv_heads, intermediate_size=config.ffn, vocab_size=config.vocab, rms_norm_eps=config.eps,
        rope_theta=config.rope_theta, tie_word_embeddings=config.tied, max_position_embeddings=config.context_length,
        bos_token_id=None, eos_token_id=None))
    tensors = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in _tensors(llm)}
    twin.load_state_dict(tensors)
    return twin.to(getattr(torch, dtype)).eval()


def _tensors(llm: LLM) -> Any:
    """(Hugging Face name, float32 array) of every weight."""
    config, weights = llm.config, llm.engine.runner.decoder.weights
    heads, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    yield "model.embed_tokens.weight", dequantize(weights.embedding)
    yield "lm_head.weight", dequantize(weights.head)
    yield "model.norm.weight", weights.final_norm.weight
    for i, layer in enumerate(weights.layers):
        at = f"model.layers.{i}."
        q, k, v = np.split(np.concatenate([dequantize(part.weight) for part in layer.qkv]), [heads, heads + kv])
        gate, up = np.split(np.concatenate([dequantize(part.weight) for part in layer.up]), 2)
        yield from ((at + f"self_attn.{name}_proj.weight", value) for name, value in
                    (("q", q), ("k", k), ("v", v), ("o", dequantize(layer.output.weight))))
        yield from ((at + f"mlp.{name}_proj.weight", value) for name, value in
                    (("gate", gate), ("up", up), ("down", dequantize(layer.down.weight))))
        yield at + "input_layernorm.weight", layer.attention_norm.weight
        yield at + "post_attention_layernorm.weight", layer.ffn_norm.weight
