"""29: a truncated, oversized or lying GGUF file ends in one clear sentence; never in a crash or in a huge allocation."""

import struct
import tracemalloc

import gguf
import numpy as np
import pytest
from checkpoints import OPS
from gguf import GGMLQuantizationType as Kind
from gguf_models import write_llama
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyserve.errors import CorruptCheckpoint, TinyserveError, UnsupportedModel
from tinyserve.models.files import ModelFiles
from tinyserve.models.loading import load_model
from tinyserve.text.tokenizer import Tokenizer, load_tokenizer

MOST = 8 << 20  # bytes that reading a bad file of some kilobytes may allocate


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "m.gguf"
    write_llama(path, Kind.Q8_0, hidden=32, ffn=32)
    return path.read_bytes()


def load(path):
    return load_model(ModelFiles("gguf", path, "m"), OPS, max_positions=16)


def refused(tmp_path, content, *words, error=CorruptCheckpoint):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(error) as caught:
        load(path)
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence.endswith(".") and all(word in sentence for word in words), sentence


def header(*, magic=b"GGUF", version=3, tensors=0, pairs=0, rest=b""):
    return magic + struct.pack("<IQQ", version, tensors, pairs) + rest


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def test_truncated_anywhere(good, tmp_path):
    path = tmp_path / "m.gguf"
    for length in (0, 1, 3, 4, 8, 23, 24, 100, 500, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(CorruptCheckpoint):
            load(path)


@pytest.mark.parametrize(("content", "words"), [
    (header(magic=b"GGML"), ["begin with 'GGUF'"]),
    (header(tensors=2**63), ["tensors", "more than"]),
    (header(pairs=2**40), ["metadata entries", "more than"]),
    (header(pairs=1, rest=struct.pack("<Q", 2**62) + b"x" * 40), ["bytes of text"]),
    (header(pairs=1, rest=text("a") + struct.pack("<IIQ", 9, 8, 2**50) + b"x" * 40), ["strings"]),
    (header(pairs=1, rest=text("a") + struct.pack("<IIQ", 9, 4, 2**62) + b"x" * 40), ["array values"]),
    (header(pairs=1, rest=text("a") + struct.pack("<IIQ", 9, 9, 1) + b"x" * 40), ["unsupported type 9"]),
    (header(pairs=1, rest=text("a") + struct.pack("<I", 77) + b"x" * 40), ["unknown type 77"]),
    (header(tensors=1, rest=text("t") + struct.pack("<I", 2**30) + b"x" * 40), ["dimensions"]),
    (header(pairs=1, rest=text("general.alignment") + struct.pack("<II", 4, 3)), ["alignment is 3"]),
])
def test_lying_headers(content, words, tmp_path):
    refused(tmp_path, content, *words)


def one_tensor(shape, kind, offset=0, data=b"\0" * 64):
    entry = text("token_embd.weight") + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
    start = header(tensors=1, rest=entry + struct.pack("<IQ", kind, offset))
    return start + b"\0" * (-len(start) % 32) + data


@pytest.mark.parametrize(("content", "words", "error"), [
    (one_tensor([2**40, 2**40], 0), ["would end at byte"], CorruptCheckpoint),
    (one_tensor([4, 4], 0, offset=32), ["would end at byte"], CorruptCheckpoint),
    (one_tensor([4, 4], 0, offset=2**63), ["would end at byte"], CorruptCheckpoint),
    (one_tensor([0, 4], 0), ["shape [4, 0]"], CorruptCheckpoint),
    (one_tensor([31, 1], 8), ["blocks of 32"], CorruptCheckpoint),
    (one_tensor([4], 99), ["type 99", "not supported"], UnsupportedModel),
])
def test_lying_tensors(content, words, error, tmp_path):
    refused(tmp_path, content, *words, error=error)


def test_other_versions(good, tmp_path):
    for version in (0, 1, 4, 0x03000000):
        refused(tmp_path, good[:4] + struct.pack("<I", version) + good[8:], "version", error=UnsupportedModel)


def test_not_a_file(tmp_path):
    with pytest.raises(CorruptCheckpoint, match="cannot be read as a GGUF file"):
        load(tmp_path / "none.gguf")


def changed(tmp_path, metadata=None, extra=None, architecture="llama"):
    path = tmp_path / "m.gguf"
    write_llama(path, hidden=32, ffn=32, metadata=metadata or {}, extra=extra or {}, architecture=architecture)
    return path.read_bytes()


@pytest.mark.parametrize(("metadata", "words", "error"), [
    ({"block_count": 3}, ["no tensor 'blk.2."], CorruptCheckpoint),
    ({"block_count": 0}, ["layers = 0"], CorruptCheckpoint),
    ({"attention.head_count": 0}, ["heads = 0"], CorruptCheckpoint),
    ({"attention.head_count_kv": 3}, ["8 query heads cannot share 3"], CorruptCheckpoint),
    ({"attention.head_count_kv": 4}, ["k of layer 0 has shape [8, 32]", "[16, 32]"], CorruptCheckpoint),
    ({"feed_forward_length": 64}, ["gate of layer 0 has shape [32, 32]", "[64, 32]"], CorruptCheckpoint),
    ({"context_length": 2**31}, ["context_length"], CorruptCheckpoint),
    ({"embedding_length": 1.5}, ["embedding_length = 1.5", "integer"], CorruptCheckpoint),
    ({"rope.freq_base": 0.0}, ["theta = 0.0"], CorruptCheckpoint),
    ({"rope.freq_base": float("inf")}, ["freq_base = inf"], CorruptCheckpoint),
    ({"rope.dimension_count": 2}, ["part of each head"], UnsupportedModel),
    ({"expert_count": 8}, ["experts"], UnsupportedModel),
], ids=str)
def test_metadata_that_contradicts_the_tensors(metadata, words, error, tmp_path):
    refused(tmp_path, changed(tmp_path, metadata), *words, error=error)


def test_unsupported_architecture(tmp_path):
    refused(tmp_path, changed(tmp_path, architecture="mamba"), "'mamba'", "llama", error=UnsupportedModel)


@pytest.mark.parametrize(("name", "at"), [("blk.1.ffn_down.weight", "ffn_down"), ("blk.0.attn_norm.weight", "attention_norm of layer 0")])
def test_values_that_no_model_can_have_are_named(name, at, tmp_path):
    path = tmp_path / "m.gguf"
    write_llama(path, hidden=32, ffn=32)
    tensor = gguf.GGUFReader(path, "r+").tensors
    next(each for each in tensor if each.name == name).data.reshape(-1)[5] = np.nan
    refused(tmp_path, path.read_bytes(), at, "NaN")


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q8_0], ids=lambda kind: kind.name)
def test_a_scale_that_is_infinite_is_named(kind, tmp_path):
    path = tmp_path / "m.gguf"
    write_llama(path, kind, hidden=32, ffn=32)
    tensor = next(each for each in gguf.GGUFReader(path, "r+").tensors if each.name == "blk.1.ffn_up.weight")
    tensor.data.reshape(-1)[:2] = np.array([np.inf], np.float16).view(np.uint8)
    refused(tmp_path, path.read_bytes(), "blk.1.ffn", "scale")


def survives(path, content, reader):
    """Only our own errors, one line each, and no allocation out of proportion."""
    path.write_bytes(content)
    tracemalloc.start()
    try:
        reader(path)
    except TinyserveError as problem:
        assert "\n" not in str(problem)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MOST, f"{peak:,} bytes"


@settings(max_examples=150)
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4), st.booleans())
def test_any_bytes_changed(good, tmp_path_factory, changes, in_header):
    content = bytearray(good)
    for at, byte in changes:
        content[int(at * (1800 if in_header else len(content)))] = byte
    survives(tmp_path_factory.getbasetemp() / "fuzz.gguf", bytes(content), load)


@pytest.fixture(scope="module")
def good_tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "t.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["a", "b", "ab", "<|im_end|>", "c", "abc"])
    writer.add_token_types([1, 1, 1, 3, 1, 1])
    writer.add_token_merges(["a b", "ab c"])
    writer.add_eos_token_id(3)
    writer.add_chat_template("{{ messages[0].content }}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path.read_bytes()


def tokenize(path):
    tokenizer = load_tokenizer(ModelFiles("gguf", path, "t"))
    assert isinstance(tokenizer, Tokenizer)
    tokenizer.decode(tokenizer.encode("abcab"))


@settings(max_examples=150)
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=3))
def test_any_bytes_of_a_tokenizer_changed(good_tokenizer, tmp_path_factory, changes):
    content = bytearray(good_tokenizer)
    for at, byte in changes:
        content[int(at * len(content))] = byte
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINYSERVE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        survives(tmp_path_factory.getbasetemp() / "fuzz.gguf", bytes(content), tokenize)
