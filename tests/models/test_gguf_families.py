"""The other families from GGUF, converted from transformers models by the rules of llama.cpp's converter: no order changes."""

import gguf
import numpy as np
import pytest
import torch
import transformers as hf
from checkpoints import difference, logits

TOKENS = np.random.default_rng(2).integers(0, 96, 60).tolist()
PARTS = {
    "model.embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down", "ln_1": "attn_norm", "ln_2": "ffn_norm",
}


def gguf_name(name):
    pieces = name.split(".")
    if "h" in pieces or "layers" in pieces:
        at = pieces.index("h" if "h" in pieces else "layers") + 1
        return f"blk.{pieces[at]}.{PARTS['.'.join(pieces[at + 1:-1])]}.{pieces[-1]}"
    return f"{PARTS['.'.join(pieces[:-1])]}.{pieces[-1]}"


def randomized(model, seed=0):
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            one = name.endswith("weight") and ("norm" in name or "ln_" in name)
            parameter.copy_(torch.randn_like(parameter) * 0.25 + (1 if one else 0))
    return model.eval()


def write(path, architecture, model, settings):
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in settings.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add(f"{architecture}.{name}", value)
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        matrix = any(part in name for part in ("c_attn.weight", "c_proj.weight", "c_fc.weight"))
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(values.T if matrix else values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def agree(path, model):
    with torch.no_grad():
        theirs = model(torch.tensor([TOKENS])).logits[0].numpy()
    assert difference(logits(path, TOKENS), theirs) <= 1e-4


LLAMA_LIKE = {"block_count": 2, "context_length": 128, "embedding_length": 48, "feed_forward_length": 80, "attention.head_count": 6,
              "attention.head_count_kv": 2, "attention.key_length": 16, "attention.value_length": 16,
              "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 5000.0}
SIZES = {"vocab_size": 96, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 6,
         "num_key_value_heads": 2, "max_position_embeddings": 128, "head_dim": 16, "rope_theta": 5000.0, "bos_token_id": None,
         "eos_token_id": 0}


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_qwen3(tied, tmp_path):
    model = randomized(hf.Qwen3ForCausalLM(hf.Qwen3Config(**SIZES, tie_word_embeddings=tied)))
    write(tmp_path / "m.gguf", "qwen3", model, LLAMA_LIKE)
    agree(tmp_path / "m.gguf", model)


def test_qwen2(tmp_path):
    sizes = {name: value for name, value in SIZES.items() if name != "head_dim"}
    model = randomized(hf.Qwen2ForCausalLM(hf.Qwen2Config(**sizes)))
    settings = {name: value for name, value in LLAMA_LIKE.items() if "_length" not in name or "attention" not in name}
    write(tmp_path / "m.gguf", "qwen2", model, settings)
    agree(tmp_path / "m.gguf", model)


def test_gpt2(tmp_path):
    model = randomized(hf.GPT2LMHeadModel(hf.GPT2Config(
        vocab_size=96, n_embd=48, n_layer=2, n_head=6, n_positions=128, bos_token_id=None, eos_token_id=0)))
    write(tmp_path / "m.gguf", "gpt2", model, {
        "block_count": 2, "context_length": 128, "embedding_length": 48, "feed_forward_length": 192, "attention.head_count": 6,
        "attention.layer_norm_epsilon": 1e-5})
    agree(tmp_path / "m.gguf", model)


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_rope_scaling(kind, tmp_path):
    parameters = {"rope_type": kind, "factor": 4.0, "rope_theta": 5000.0}
    settings = {**LLAMA_LIKE, "rope.scaling.type": kind, "rope.scaling.factor": 4.0}
    if kind == "yarn":
        parameters["original_max_position_embeddings"] = settings["rope.scaling.original_context_length"] = 32
    model = randomized(hf.Qwen3ForCausalLM(hf.Qwen3Config(**{**SIZES, "rope_parameters": parameters})))
    write(tmp_path / "m.gguf", "qwen3", model, settings)
    agree(tmp_path / "m.gguf", model)
