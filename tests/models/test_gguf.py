"""GGUF: a grouped-query model in every supported type has transformers' logits late in a text, and its codes are kept to the bit."""

import gguf
import numpy as np
import pytest
from checkpoints import OPS, cuts_of, difference, logits
from gguf import GGMLQuantizationType as Kind
from gguf_models import HEADS, KV_HEADS, VOCAB, transformers_logits, unpermute, write_llama
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyserve.kernels.layouts import DenseWeight, Int4Weight, Int8Weight, dequantize
from tinyserve.models.gguf_file import GgufFile
from tinyserve.models.loading import load_model
from tinyserve.quantization.blocks import from_q4_0, from_q4_1, from_q8_0

TOKENS = np.random.default_rng(1).integers(0, VOCAB, 70).tolist()
KINDS = [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q4_K, Kind.Q6_K]
PACKED = {Kind.Q8_0: Int8Weight, Kind.Q4_0: Int4Weight, Kind.Q4_1: Int4Weight}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_logits(kind, tmp_path):
    """29: whole and in chunks, at every position; positions from 32 on are where a wrong order of q and k shows."""
    path = tmp_path / "m.gguf"
    theirs = transformers_logits(write_llama(path, kind), TOKENS)
    for sizes in ([], [31, 1, 1, 20]):
        ours = logits(path, TOKENS, cuts_of(sizes, len(TOKENS)))
        assert difference(ours, theirs) <= 1e-4 and difference(ours[32:], theirs[32:]) <= 1e-4
        assert (ours.argmax(-1) == theirs.argmax(-1)).all()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_as_stored_every_tensor_is_kept_exactly(kind, tmp_path):
    path = tmp_path / "m.gguf"
    held = write_llama(path, kind, tied=False)
    weights = load_model(path, OPS).decoder.weights
    for i, layer in enumerate(weights.layers):
        qkv, up = (np.concatenate([dequantize(part.weight) for part in parts]) for parts in (layer.qkv, layer.up))
        assert (qkv == np.concatenate([held[f"blk.{i}.attn_{name}"] for name in "qkv"])).all()
        assert (up == np.concatenate([held[f"blk.{i}.ffn_{name}"] for name in ("gate", "up")])).all()
        assert (dequantize(layer.output.weight) == held[f"blk.{i}.attn_output"]).all()
        assert (dequantize(layer.down.weight) == held[f"blk.{i}.ffn_down"]).all()
        assert isinstance(layer.down.weight, PACKED.get(kind, DenseWeight))
    assert (dequantize(weights.embedding) == held["token_embd"]).all() and (dequantize(weights.head) == held["output"]).all()


@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.Q4_0, Kind.Q4_1], ids=lambda kind: kind.name)
def test_as_stored_the_logits_are_close(kind, tmp_path):
    """What is left is the rounding of the activations to INT8."""
    path = tmp_path / "m.gguf"
    theirs, ours = transformers_logits(write_llama(path, kind), TOKENS), logits(path, TOKENS, dtype="auto")
    assert (ours * theirs).sum() / np.linalg.norm(ours) / np.linalg.norm(theirs) > 0.999
    cosine = (ours * theirs).sum(-1) / np.linalg.norm(ours, axis=-1) / np.linalg.norm(theirs, axis=-1)
    assert cosine.min() > 0.99


def test_types_mixed_inside_one_layer_stay_apart(tmp_path):
    """llama.cpp's recipes store v and down in a better type than q, k and up."""
    path = tmp_path / "m.gguf"
    held = write_llama(path, Kind.Q4_1, kinds={"attn_v": Kind.Q8_0, "ffn_down": Kind.Q6_K, "ffn_up": Kind.Q4_0, "token_embd": Kind.Q8_0})
    assert difference(logits(path, TOKENS), transformers_logits(held, TOKENS)) <= 1e-4
    layer = load_model(path, OPS).decoder.weights.layers[0]
    assert [type(part.weight) for part in layer.qkv] == [Int4Weight, Int4Weight, Int8Weight] and len(layer.up) == 2
    assert logits(path, TOKENS, dtype="auto").shape == (70, VOCAB)


def test_an_untied_head_and_frequency_factors(tmp_path):
    """Llama 3.1's GGUF files hold its RoPE scaling as a tensor that divides the frequencies."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 10000.0,
               "original_max_position_embeddings": 32}
    config = LlamaConfig(hidden_size=256, num_attention_heads=HEADS, max_position_embeddings=128, rope_parameters=scaling)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = 10000.0 ** (-np.arange(0, 32, 2) / 32)
    path = tmp_path / "m.gguf"
    held = write_llama(path, tied=False, extra={"rope_freqs.weight": (plain / scaled.numpy()).astype(np.float32)})
    assert difference(logits(path, TOKENS), transformers_logits(held, TOKENS, rope_parameters=scaling)) <= 1e-4
    assert difference(logits(path, TOKENS), transformers_logits(held, TOKENS)) > 1e-3


def test_window_and_theta(tmp_path):
    path = tmp_path / "m.gguf"
    held = write_llama(path, metadata={"attention.sliding_window": 9, "rope.freq_base": 321.0})
    theirs = transformers_logits(held, TOKENS, "Mistral", rope_theta=321.0, sliding_window=9)
    assert difference(logits(path, TOKENS), theirs) <= 1e-4


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.sampled_from([1, 2, 5]), st.booleans())
def test_repacking_is_lossless_for_any_bytes(seed, tiles, groups, halves):
    """The packed layout stands for gguf's own numbers, bit for bit, for any codes and any finite scales."""
    draw, rows = np.random.default_rng(seed), 16 * tiles - (5 if halves else 0)
    for kind, size, repack in ((Kind.Q4_0, 18, from_q4_0), (Kind.Q4_1, 20, from_q4_1), (Kind.Q8_0, 34, from_q8_0)):
        blocks = draw.integers(0, 256, (rows, groups, size), dtype=np.uint8)
        for at in (0, 2) if kind == Kind.Q4_1 else (0,):
            scales = (draw.standard_normal((rows, groups)) * 10.0 ** draw.integers(-7, 3)).astype(np.float16)
            blocks[..., at:at + 2] = scales[..., None].view(np.uint8)
        data = blocks.reshape(rows, -1)
        ours, theirs = dequantize(repack(data)), gguf.quants.dequantize(data, kind)
        assert (ours == theirs).all()


def test_rows_of_q_and_k_are_put_back(tmp_path):
    path = tmp_path / "m.gguf"
    write_llama(path, hidden=64, ffn=64)
    tensor = GgufFile(path).tensors["blk.1.attn_k.weight"]
    ours = dequantize(load_model(path, OPS).decoder.weights.layers[1].qkv[0].weight)[64:80]
    assert (ours == unpermute(tensor.float32(), KV_HEADS)).all() and not (ours == tensor.float32()).all()


def test_header_values_and_arrays(tmp_path):
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint64("a", 2**40)
    writer.add_bool("b", True)
    writer.add_string("c", "é🙂")
    writer.add_array("d", ["x", "yz", ""])
    writer.add_array("e", [1.5, -2.0])
    writer.add_custom_alignment(128)
    writer.add_tensor("t", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GgufFile(path)
    assert [file.metadata[name] for name in "abc"] == [2**40, True, "é🙂"]
    assert file.array("d") == ["x", "yz", ""] and file.array("e") == [1.5, -2.0]
    with pytest.raises(KeyError):
        file.array("a")
    assert (file.tensors["t"].float32() == np.arange(6).reshape(2, 3)).all()
