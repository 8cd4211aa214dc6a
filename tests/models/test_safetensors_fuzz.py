"""Any bytes of a safetensors file, of its index or of a tokenizer changed: our own errors in one line, and no huge allocation."""

import json
import tracemalloc

import pytest
from checkpoints import OPS
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import write_model

from tinyserve.errors import TinyserveError
from tinyserve.models.files import ModelFiles
from tinyserve.models.loading import load_model
from tinyserve.text.tokenizer import load_tokenizer

CHANGES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_model(tmp_path_factory.mktemp("model"), num_hidden_layers=1)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"model.norm.weight": "model.safetensors"}}))
    return folder


def survives(folder, name, changes, most, reader):
    path, whole = folder / name, (folder / name).read_bytes()
    content = bytearray(whole)
    for at, byte in changes:
        content[int(at * min(len(content), most))] = byte
    path.write_bytes(bytes(content))
    tracemalloc.start()
    try:
        reader(ModelFiles("hf", folder, "m"))
    except TinyserveError as problem:
        assert "\n" not in str(problem)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        path.write_bytes(whole)
    assert peak < 32 << 20, f"{peak:,} bytes"


@settings(max_examples=150)
@given(CHANGES, st.sampled_from([100, 1500, 1 << 30]))
def test_weights(folder, changes, most):
    survives(folder, "model.safetensors", changes, most, lambda files: load_model(files, OPS, max_positions=16))


@settings(max_examples=60)
@given(CHANGES)
def test_index(folder, changes):
    survives(folder, "model.safetensors.index.json", changes, 1 << 30, lambda files: load_model(files, OPS, max_positions=16))


@settings(max_examples=100)
@given(CHANGES)
def test_config(folder, changes):
    survives(folder, "config.json", changes, 1 << 30, lambda files: load_model(files, OPS, max_positions=16))


@settings(max_examples=100)
@given(CHANGES, st.sampled_from(["tokenizer.json", "tokenizer_config.json"]))
def test_tokenizer(folder, changes, name):
    survives(folder, name, changes, 1 << 30, lambda files: load_tokenizer(files).encode("hello"))
