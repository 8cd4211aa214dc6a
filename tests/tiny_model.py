"""A two-layer random Llama with a byte tokenizer, as a Hugging Face folder; and a decoder that is a function of the tokens so far."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCAB, END = 288, 256
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "vocab_size": VOCAB, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True, "eos_token_id": END,
}
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"


def write_model(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """config.json, model.safetensors, tokenizer.json; byte b is a token of its own, id 256 ends a text."""
    config = {**CONFIG, **changes}
    h, f, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    draw = np.random.default_rng(seed)
    shapes = {"self_attn.q_proj": (q, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h), "self_attn.o_proj": (h, q),
              "mlp.gate_proj": (f, h), "mlp.up_proj": (f, h), "mlp.down_proj": (h, f)}
    tensors = {"model.embed_tokens.weight": draw.standard_normal((config["vocab_size"], h)), "model.norm.weight": np.ones(h)}
    for i in range(config["num_hidden_layers"]):
        tensors |= {f"model.layers.{i}.{name}.weight": draw.standard_normal(shape) * 0.3 for name, shape in shapes.items()}
        tensors |= {f"model.layers.{i}.{name}.weight": np.ones(h) for name in ("input_layernorm", "post_attention_layernorm")}
    save_file({name: value.astype(np.float32) for name, value in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": TEMPLATE}))
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def byte_tokenizer() -> Tokenizer:
    """GPT-2's byte alphabet without merges, in byte order."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fast = Tokenizer(models.BPE({character: i for i, character in enumerate(alphabet)}, []))
    fast.pre_tokenizer, fast.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), decoders.ByteLevel()
    fast.add_special_tokens(["<|end|>"])
    return fast


class HistoryDecoder:
    """logits = rule(tokens so far). The tokens are kept in the KV cache and read back through the block table, so a wrong slot,
    table or context length changes the answer. `written` counts the writes of each (slot)."""

    def __init__(self, rule: Callable[[Sequence[int]], np.ndarray], vocab: int = 32, end_ids: Sequence[int] = ()):
        self.rule = rule
        self.config = SimpleNamespace(vocab=vocab, layers=1, kv_heads=1, head_dim=16, end_ids=tuple(end_ids))
        self.written: dict[int, int] = {}
        self.steps = 0

    def forward(self, batch: Any, caches: Any) -> np.ndarray:
        keys, size = caches[0][0], caches[0][0].shape[1]
        self.steps += 1
        for slot in batch.slots.tolist():
            self.written[slot] = self.written.get(slot, 0) + 1
        keys[batch.slots // size, batch.slots % size, 0, 0] = batch.token_ids
        wanted, rows = set(batch.logit_rows.tolist()), []
        for s, length in enumerate(batch.context_lengths.tolist()):
            at = np.arange(length)
            history = keys[batch.block_tables[s][at // size], at % size, 0, 0].astype(int).tolist()
            start, stop = batch.query_start[s:s + 2].tolist()
            rows += [self.rule(history[: length - (stop - 1 - t)]) for t in range(start, stop) if t in wanted]
        return np.array(rows, np.float32).reshape(len(rows), self.config.vocab)


def peaked(token: int, vocab: int = 32) -> np.ndarray:
    """Logits that prefer one token."""
    logits = np.zeros(vocab, np.float32)
    logits[token] = 9
    return logits


def hashed(history: Sequence[int], vocab: int = 32) -> np.ndarray:
    """Logits that depend on every token so far and on their order."""
    state = 0
    for token in history:
        state = (state * 1_000_003 + token + 1) % 2**31
    return np.random.default_rng(state).standard_normal(vocab).astype(np.float32)
