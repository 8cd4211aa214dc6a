"""Finding and reading a model's files: what is missing, half there, wrong or unsafe ends in one sentence that says what to do."""

import json
import pickle
import struct
from types import SimpleNamespace

import numpy as np
import pytest
from checkpoints import OPS
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from tiny_model import CONFIG, write_model

from tinyserve.errors import CorruptCheckpoint, DownloadFailed, InvalidRequest, ModelNotFound, TinyserveError, UnsupportedModel
from tinyserve.models.config import from_hf
from tinyserve.models.files import resolve
from tinyserve.models.loading import load_model


def one_sentence(problem, *words):
    text = str(problem.value)
    assert "\n" not in text and text.endswith(".") and all(word in text for word in words), text


@pytest.fixture
def folder(tmp_path):
    return write_model(tmp_path)


def refuses(folder, error, *words):
    with pytest.raises(error) as problem:
        load_model(folder, OPS, max_positions=16)
    one_sentence(problem, *words)


def edit(folder, change):
    path = folder / "model.safetensors"
    tensors = dict(load_file(path))
    change(tensors)
    save_file(tensors, path)


# --- where a model is ---

def test_unknown_models(tmp_path):
    for name in ("smollm3", "", "a/b/c", str(tmp_path / "nothing"), "./here"):
        with pytest.raises(ModelNotFound) as problem:
            resolve(name)
        one_sentence(problem, "smollm2", "hub id")


def test_a_folder_without_a_config_and_a_file_that_is_no_gguf(tmp_path):
    with pytest.raises(ModelNotFound) as problem:
        resolve(tmp_path)
    one_sentence(problem, "config.json")
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps([1]))
    with pytest.raises(ModelNotFound) as problem:
        resolve(tmp_path / "pytorch_model.bin")
    one_sentence(problem, "not a .gguf file")


def test_without_a_network_the_error_says_how_to_get_the_files(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DownloadFailed) as problem:
        resolve("some-owner/no-such-model")
    one_sentence(problem, "some-owner/no-such-model", "hf download", "config.json")


@pytest.mark.parametrize("fault", ["http", "os", "value"])
def test_every_failure_of_the_hub_is_one_sentence(fault, monkeypatch):
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    def fails(*arguments, **options):
        response = SimpleNamespace(headers={}, request=None, status_code=503, text="busy")
        raise {"http": lambda: HfHubHTTPError("busy\nlater", response=response), "os": lambda: OSError("no route\nto host"),
               "value": lambda: HFValidationError("a repo id must be\nso and so")}[fault]()

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fails)
    with pytest.raises(TinyserveError) as problem:
        resolve("owner/name")
    one_sentence(problem, "owner/name")


# --- safetensors ---

def test_pickled_weights_are_never_opened(folder):
    class Trap:
        def __reduce__(self):
            return (open, (str(folder / "opened"), "w"))

    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    (folder / "model.safetensors").unlink()
    refuses(folder, ModelNotFound, "pytorch_model.bin", "pickled", "convert")
    assert not (folder / "opened").exists()


@pytest.mark.parametrize("length", [0, 4, 8, 100, 5000, -1])
def test_truncated_safetensors(folder, length):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    refuses(folder, CorruptCheckpoint, "model.safetensors", "Fetch it again")


def test_a_header_that_claims_the_world(folder):
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    refuses(folder, CorruptCheckpoint, "model.safetensors")


def test_a_missing_shard_and_an_unreadable_index(folder):
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"model.norm.weight": "a", "model.gone.weight": "b"}}))
    refuses(folder, CorruptCheckpoint, "model.gone.weight", "missing shard")
    for content in ("{", "[]", "{}", '{"weight_map": 3}'):
        index.write_text(content)
        refuses(folder, CorruptCheckpoint, "index")


def test_a_missing_tensor_and_a_wrong_shape_are_named(folder):
    edit(folder, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    refuses(folder, CorruptCheckpoint, "model.layers.1.mlp.up_proj.weight")
    write_model(folder)
    edit(folder, lambda tensors: tensors.update({"model.layers.0.mlp.down_proj.weight": np.zeros((64, 95), np.float32)}))
    refuses(folder, CorruptCheckpoint, "down of layer 0", "[64, 95]", "[64, 96]")
    write_model(folder)
    edit(folder, lambda tensors: tensors.update({"model.norm.weight": np.zeros((8, 8), np.float32)}))
    refuses(folder, CorruptCheckpoint, "final_norm", "[8, 8]")
    write_model(folder, tie_word_embeddings=False)
    refuses(folder, CorruptCheckpoint, "lm_head.weight")
    write_model(folder, attention_bias=True)
    refuses(folder, CorruptCheckpoint, "self_attn.q_proj.bias")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("name", "word"), [("model.layers.1.self_attn.k_proj.weight", "layers.1.self_attn"),
                                            ("model.layers.1.input_layernorm.weight", "attention_norm of layer 1"),
                                            ("model.embed_tokens.weight", "embed_tokens")])
def test_weights_that_are_not_finite_are_named(folder, name, word, value):
    edit(folder, lambda tensors: tensors[name].reshape(-1).__setitem__(7, value))
    for dtype in ("auto", "int8"):
        with pytest.raises(CorruptCheckpoint) as problem:
            load_model(folder, OPS, dtype)
        one_sentence(problem, word, "NaN or infinity")


def test_a_type_that_is_not_a_floating_point_one(folder):
    edit(folder, lambda tensors: tensors.update({"model.layers.0.mlp.up_proj.weight": np.zeros((96, 64), np.int8)}))
    refuses(folder, UnsupportedModel, "mlp.up_proj.weight", "I8")


def test_an_unknown_dtype_is_refused(folder):
    with pytest.raises(InvalidRequest) as problem:
        load_model(folder, OPS, "float8")
    one_sentence(problem, "float8", "bfloat16")


# --- config.json ---

@pytest.mark.parametrize(("changes", "words", "error"), [
    ({"model_type": "mamba"}, ["'mamba'", "llama, mistral"], UnsupportedModel),
    ({"model_type": None}, ["None"], UnsupportedModel),
    ({"model_type": ["llama"]}, ["['llama']"], UnsupportedModel),
    ({"hidden_act": "gelu"}, ["gelu"], UnsupportedModel),
    ({"mlp_bias": True}, ["MLP biases"], UnsupportedModel),
    ({"quantization_config": {"bits": 4}}, ["quantized by None"], UnsupportedModel),
    ({"partial_rotary_factor": 0.5}, ["part of each head"], UnsupportedModel),
    ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, ["longrope"], UnsupportedModel),
    ({"rope_scaling": {"rope_type": "yarn"}}, ["factor"], CorruptCheckpoint),
    ({"rope_scaling": {"rope_type": "linear", "factor": -1.0}}, ["factor = -1.0"], CorruptCheckpoint),
    ({"rope_scaling": {"rope_type": "linear", "factor": "2"}}, ["factor = '2'"], CorruptCheckpoint),
    ({"rope_scaling": [1]}, ["rope_scaling", "object"], CorruptCheckpoint),
    ({"rope_theta": 0}, ["theta"], CorruptCheckpoint),
    ({"head_dim": 15}, ["odd"], UnsupportedModel),
    ({"num_attention_heads": 5}, ["cannot share"], CorruptCheckpoint),
    ({"num_attention_heads": 0}, ["heads = 0"], CorruptCheckpoint),
    ({"hidden_size": "64"}, ["hidden_size = '64'"], CorruptCheckpoint),
    ({"hidden_size": True}, ["hidden_size = True"], CorruptCheckpoint),
    ({"vocab_size": None}, ["no 'vocab_size'"], CorruptCheckpoint),
    ({"rms_norm_eps": 0.0}, ["eps = 0.0"], CorruptCheckpoint),
    ({"model_type": "mistral", "sliding_window": -1}, ["window = -1"], CorruptCheckpoint),
    ({"layer_types": ["sliding_attention", "full_attention"]}, ["differ in their attention window"], UnsupportedModel),
    ({"eos_token_id": "2"}, ["eos_token_id", "token id"], CorruptCheckpoint),
    ({"max_position_embeddings": 2**40}, ["context_length"], CorruptCheckpoint),
], ids=str)
def test_configurations_that_are_refused(changes, words, error):
    with pytest.raises(error) as problem:
        from_hf({**CONFIG, **changes})
    one_sentence(problem, *words)


def test_a_config_that_is_no_json_object(folder):
    for content, words in (("{", ["not readable JSON"]), ("[1]", ["list, not a JSON object"]), (b"\xff\xfe{".decode("latin1"), ["JSON"])):
        (folder / "config.json").write_text(content, encoding="latin1")
        refuses(folder, CorruptCheckpoint, *words)


junk = st.recursive(st.none() | st.booleans() | st.integers(-2**70, 2**70) | st.floats() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=5)
FIELDS = [*CONFIG, "rope_scaling", "rope_parameters", "sliding_window", "layer_types", "attention_bias", "partial_rotary_factor",
          "use_sliding_window", "mlp_bias"]
SCALING = st.fixed_dictionaries({"rope_type": st.sampled_from(["linear", "dynamic", "llama3", "yarn"])}, optional={
    name: junk | st.floats(-1, 9) for name in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
                                               "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate")})


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(FIELDS), junk, max_size=3), st.none() | SCALING, st.sampled_from(["llama", "mistral", "qwen3"]))
def test_any_values_in_a_config(changes, scaling, family):
    """A configuration is either refused in one sentence or gives a finite table of positions."""
    from tinyserve.models.rope import rope_table

    config = {**CONFIG, "model_type": family, **({"rope_scaling": scaling} if scaling else {}), **changes}
    try:
        ours = from_hf(config)
        if ours.head_dim < 1000:
            with np.errstate(all="ignore"):
                assert np.isfinite(rope_table(ours, 8)).all()
    except TinyserveError as problem:
        assert "\n" not in str(problem)
