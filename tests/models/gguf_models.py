"""Tiny GGUF files written with the gguf package, and the same weights as a transformers model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import quants

HEADS, KV_HEADS, VOCAB, LAYERS = 8, 2, 96, 2
FLOATS = {Kind.F32: np.float32, Kind.F16: np.float16}


def permute(rows: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order of the rows of q and k: the two halves of a head, taken in turns."""
    return rows.reshape(heads, 2, len(rows) // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def unpermute(rows: np.ndarray, heads: int) -> np.ndarray:
    return rows.reshape(heads, len(rows) // heads // 2, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def random_blocks(kind: Kind, rows: int, columns: int, draw: np.random.Generator) -> np.ndarray:
    """Random bytes as K-quant blocks, with sane float16 scales where the format keeps them."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = draw.integers(0, 256, (rows, columns // values, size), dtype=np.uint8)
    scales = {Kind.Q4_K: (0, 2), Kind.Q6_K: (208,)}[kind]
    for at in scales:
        scale = draw.uniform(2e-4, 4e-4, blocks.shape[:2]).astype(np.float16)
        blocks[..., at:at + 2] = scale[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def encode(matrix: np.ndarray, kind: Kind, draw: np.random.Generator) -> np.ndarray:
    """What the file holds for a matrix: float values, or the bytes of its blocks."""
    if kind in FLOATS:
        return matrix.astype(FLOATS[kind])
    if kind in (Kind.Q4_K, Kind.Q6_K):
        return random_blocks(kind, *matrix.shape, draw)
    return quants.quantize(matrix.astype(np.float32), kind)


def decode(data: np.ndarray, kind: Kind) -> np.ndarray:
    return data.astype(np.float32) if kind in FLOATS else quants.dequantize(data, kind)


def tensors(hidden: int, ffn: int, draw: np.random.Generator, tied: bool = True) -> dict[str, np.ndarray]:
    head = hidden // HEADS
    shapes = {"attn_q": (hidden, hidden), "attn_k": (KV_HEADS * head, hidden), "attn_v": (KV_HEADS * head, hidden),
              "attn_output": (hidden, hidden), "ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden), "ffn_down": (hidden, ffn)}
    made = {"token_embd": draw.standard_normal((VOCAB, hidden)), "output_norm": draw.uniform(0.5, 1.5, hidden)}
    for i in range(LAYERS):
        made |= {f"blk.{i}.{name}": draw.standard_normal(shape) * 1.5 * shape[1] ** -0.5 for name, shape in shapes.items()}
        made |= {f"blk.{i}.{name}": draw.uniform(0.5, 1.5, hidden) for name in ("attn_norm", "ffn_norm")}
    return made if tied else made | {"output": draw.standard_normal((VOCAB, hidden))}


def write_llama(path: Path, kind: Kind = Kind.F32, *, kinds: Mapping[str, Kind] = {}, hidden: int = 256, ffn: int = 256, seed: int = 0,
                tied: bool = True, metadata: Mapping[str, Any] = {}, extra: Mapping[str, np.ndarray] = {},
                architecture: str = "llama") -> dict[str, np.ndarray]:
    """Write a file whose matrices have `kind` (or their own of `kinds`, by the end of the name); returns what it holds in
    float32, rows of q and k in transformers' order."""
    draw, held = np.random.default_rng(seed), {}
    writer = gguf.GGUFWriter(path, architecture)
    settings = {"block_count": LAYERS, "context_length": 128, "embedding_length": hidden, "feed_forward_length": ffn,
                "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "rope.dimension_count": hidden // HEADS}
    for name, value in {**settings, **metadata}.items():
        add = writer.add_uint32 if isinstance(value, int) else writer.add_float32
        add(f"{architecture}.{name}", value)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    for name, matrix in tensors(hidden, ffn, draw, tied).items():
        part = name.split(".")[-1]
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(part)
        own = Kind.F32 if matrix.ndim == 1 else kinds.get(part, kind)
        data = encode(permute(matrix, heads) if heads else matrix, own, draw)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=None if own in FLOATS else own)
        held[name] = unpermute(decode(data, own), heads) if heads else decode(data, own)
    for name, values in extra.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


def transformers_logits(held: Mapping[str, np.ndarray], tokens: list[int], family: str = "Llama", **changes: Any) -> np.ndarray:
    """[T, V] of a transformers model of this family with these weights."""
    import torch
    import transformers

    hidden, ffn = held["token_embd"].shape[1], held["blk.0.ffn_up"].shape[0]
    config, model = (getattr(transformers, family + name) for name in ("Config", "ForCausalLM"))
    model = model(config(**{**dict(
        hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
        vocab_size=VOCAB, rms_norm_eps=1e-5, max_position_embeddings=128, tie_word_embeddings="output" not in held), **changes})).eval()
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    parts = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
             "ffn_norm": "post_attention_layernorm"}
    for name, values in held.items():
        full = names.get(name) or f"model.layers.{name.split('.')[1]}.{parts[name.split('.')[2]]}"
        with torch.no_grad():
            model.get_parameter(f"{full}.weight").copy_(torch.from_numpy(np.array(values)))
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].numpy()
