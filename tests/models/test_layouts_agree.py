"""Every supported layout gives transformers' logits, in one chunk and in several, for texts longer than any table's edge."""

import json

import numpy as np
import pytest
import torch
import transformers as hf
from checkpoints import cuts_of, difference, logits

from tinyserve.errors import UnsupportedModel
from tinyserve.kernels.layouts import dequantize
from tinyserve.models.config import from_hf
from tinyserve.quantization.rounding import pack

TOKENS = np.random.default_rng(0).integers(0, 96, 75).tolist()
SIZES = {"vocab_size": 96, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
         "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": None, "eos_token_id": 0}
CHUNKS = {"whole": [], "cut": [33, 1, 1, 20]}
SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    "yarn, own betas": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn, own attention": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": 1.5},
    "yarn, not truncated": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "truncate": False},
}


def make(family, folder, seed=0, save={}, dtype=torch.float32, **changes):
    """A random model of a family, saved in `folder`; norms and biases are random too."""
    torch.manual_seed(seed)
    config = {"llama": hf.LlamaConfig, "mistral": hf.MistralConfig, "qwen2": hf.Qwen2Config, "qwen3": hf.Qwen3Config}.get(family)
    if config is None:
        config = hf.GPT2Config(**{"vocab_size": 96, "n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 128, "bos_token_id": None,
                                  "eos_token_id": 0, **changes})
    else:
        config = config(**{**SIZES, **changes})
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            one = 1.0 if "norm" in name or "ln_" in name else 0.0
            parameter.copy_(torch.randn_like(parameter) * 0.25 + (one if name.endswith("weight") else 0))
    model.to(dtype).save_pretrained(folder, **save)
    return make_again(folder)


def make_again(folder):
    return hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def agree(model, folder, tokens=TOKENS):
    with torch.no_grad():
        theirs = model(torch.tensor([tokens])).logits[0].numpy()
    assert np.abs(theirs).max() > 0.5  # logits that say something
    for sizes in CHUNKS.values():
        assert difference(logits(folder, tokens, cuts_of(sizes, len(tokens))), theirs) <= 1e-4


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_family(family, tied, tmp_path):
    agree(make(family, tmp_path, tie_word_embeddings=tied, **({"sliding_window": None} if family == "mistral" else {})), tmp_path)


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_gpt2(tied, tmp_path):
    agree(make("gpt2", tmp_path, tie_word_embeddings=tied), tmp_path)


@pytest.mark.parametrize("changes", [{"n_inner": 100}, {"activation_function": "gelu_pytorch_tanh"}, {"layer_norm_epsilon": 1e-2}], ids=str)
def test_gpt2_variants(changes, tmp_path):
    agree(make("gpt2", tmp_path, **changes), tmp_path)


@pytest.mark.parametrize("window", [1, 7, 33, 200])
def test_sliding_window(window, tmp_path):
    agree(make("mistral", tmp_path, sliding_window=window), tmp_path)


def test_sliding_window_of_qwen2_is_used_only_where_it_is_switched_on(tmp_path):
    for used, folder in ((False, tmp_path / "off"), (True, tmp_path / "on")):
        agree(make("qwen2", folder, sliding_window=9, use_sliding_window=used, max_window_layers=0), folder)


@pytest.mark.parametrize(("family", "layers", "expected"), [
    ("qwen2", 0, 9), ("qwen2", 3, 0), ("qwen2", 28, 0), ("qwen3", 0, 9), ("qwen2", None, 0), ("llama", 0, 0), ("mistral", 3, 9)])
def test_windows_of_configs_that_do_not_list_their_layers(family, layers, expected, tmp_path):
    """As transformers reads them: `max_window_layers` says from which layer on the window is used; llama has none."""
    model = make(family, tmp_path, sliding_window=9, **({"use_sliding_window": True, "max_window_layers": layers or 0}
                                                        if family.startswith("qwen") and layers is not None else {}))
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config.pop("layer_types", None)
    path.write_text(json.dumps(config))
    assert from_hf(config).window == expected
    agree(model, tmp_path)
    for name in ("use_sliding_window", "max_window_layers"):
        config.pop(name, None)
    assert from_hf(config).window == (9 if family == "mistral" else 0)
    if family == "qwen2":
        with pytest.raises(UnsupportedModel, match="differ in their attention window"):
            from_hf({**config, "sliding_window": 9, "use_sliding_window": True, "max_window_layers": 1})


@pytest.mark.parametrize("changes", [
    {"num_key_value_heads": 1}, {"num_key_value_heads": 6}, {"head_dim": 16}, {"rope_theta": 500.0}, {"rms_norm_eps": 1e-2},
    {"attention_bias": True}], ids=str)
def test_llama_variants(changes, tmp_path):
    agree(make("llama", tmp_path, **changes), tmp_path)


def test_qwen3_with_its_own_head_size(tmp_path):
    agree(make("qwen3", tmp_path, head_dim=32), tmp_path)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("kind", SCALINGS)
def test_rope_scaling(kind, family, tmp_path):
    """max_position_embeddings is the stretched context, except for dynamic and linear, where it is the original one."""
    parameters = {"rope_theta": 10000.0, **SCALINGS[kind]}
    context = 32 if kind in ("dynamic", "linear") else 128
    agree(make(family, tmp_path, max_position_embeddings=context, rope_parameters=parameters), tmp_path)


def test_rope_scaling_in_the_older_spelling_of_the_config(tmp_path):
    parameters = {"rope_theta": 700.0, **SCALINGS["llama3"]}
    model = make("llama", tmp_path, rope_parameters=parameters)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    for older in ("rope_type", "type"):
        scaling = {older if key == "rope_type" else key: value for key, value in SCALINGS["llama3"].items()}
        path.write_text(json.dumps({**config, "rope_theta": 700.0, "rope_scaling": scaling}))
        agree(model, tmp_path)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_shards(family, tmp_path):
    model = make(family, tmp_path, save={"max_shard_size": "20KB"})
    assert len(list(tmp_path.glob("*.safetensors"))) > 2 and (tmp_path / "model.safetensors.index.json").exists()
    agree(model, tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
def test_half_precision_files(family, dtype, tmp_path):
    agree(make(family, tmp_path, dtype=dtype, save={"max_shard_size": "20KB"}), tmp_path)


def test_a_bfloat16_file_stays_bfloat16_where_nothing_else_is_asked(tmp_path):
    model = make("llama", tmp_path, dtype=torch.bfloat16)
    with torch.no_grad():
        theirs = model(torch.tensor([TOKENS])).logits[0].numpy()
    ours = logits(tmp_path, TOKENS, dtype="auto")
    assert difference(ours, theirs) <= 2e-2
    assert (ours == logits(tmp_path, TOKENS, dtype="bfloat16")).all()


def test_int8_and_int4_are_the_model_of_their_rounded_weights(tmp_path):
    """Against transformers with the same rounded weights; what is left is the rounding of the activations to INT8."""
    model = make("llama", tmp_path, hidden_size=96, intermediate_size=160, head_dim=16, num_hidden_layers=1)
    for dtype in ("int8", "int4"):
        with torch.no_grad():
            for name, parameter in make_again(tmp_path).named_parameters():
                rounded = dequantize(pack(parameter.numpy(), dtype)) if parameter.ndim == 2 else parameter.numpy()
                model.get_parameter(name).copy_(torch.from_numpy(rounded))
            theirs = model(torch.tensor([TOKENS])).logits[0].numpy()
        ours = logits(tmp_path, TOKENS, dtype=dtype)
        assert (ours * theirs).sum() / np.linalg.norm(ours) / np.linalg.norm(theirs) >= 0.999
