"""Tokenizers of Hugging Face folders: ids as transformers gives them, the end set, and folders that are wrong."""

import json

import pytest
from tiny_model import byte_tokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, processors

from tinyserve.errors import CorruptCheckpoint, InvalidRequest, ModelNotFound, UnsupportedModel
from tinyserve.models.files import ModelFiles
from tinyserve.text.tokenizer import load_tokenizer

BOS = 257


def folder(path, fast=None, bos=False, **files):
    """A folder with a byte tokenizer (id 256 ends, 257 begins) and JSON files given as `tokenizer_config={...}`."""
    fast = fast or byte_tokenizer()
    fast.add_special_tokens(["<s>"])
    if bos:
        fast.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    fast.save(str(path / "tokenizer.json"))
    for name, content in {"config": {"model_type": "llama"}, **files}.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return ModelFiles("hf", path, "tiny")


@pytest.mark.full
@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("flag", [True, False, None])
def test_bos_is_what_the_tokenizer_says_as_in_transformers(tmp_path, bos, flag):
    from transformers import AutoTokenizer

    settings = {"bos_token": "<s>", "eos_token": "<|end|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    files = folder(tmp_path, bos=bos, tokenizer_config=settings if flag is None else {**settings, "add_bos_token": flag})
    ours, theirs = load_tokenizer(files), AutoTokenizer.from_pretrained(tmp_path)
    if not (flag and not bos):  # transformers ignores the flag for some classes only; the file decides here
        for text in ("", "hi", "<s>hi", "a<|end|>b 🙂"):
            assert ours.encode(text) == theirs.encode(text)
            assert ours.encode(text, False) == theirs.encode(text, add_special_tokens=False)
            assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text), skip_special_tokens=True)
    assert (ours.encode("hi")[0] == BOS) is bos and ours.bos_id == BOS


def test_lengths_left_in_the_file_neither_cut_nor_pad(tmp_path):
    fast = byte_tokenizer()
    fast.enable_truncation(4)
    fast.enable_padding(length=8)
    tokenizer = load_tokenizer(folder(tmp_path, fast))
    assert len(tokenizer.encode("a" * 100)) == 100 and len(tokenizer.encode("a")) == 1


@pytest.mark.parametrize(("files", "ends"), [
    ({"tokenizer_config": {"eos_token": "<|end|>"}}, {256}),
    ({"tokenizer_config": {"eos_token": {"content": "<|end|>"}}}, {256}),
    ({"special_tokens_map": {"eos_token": "<|end|>"}}, {256}),
    ({"generation_config": {"eos_token_id": [7, 8]}}, {7, 8}),
    ({"generation_config": {"eos_token_id": 7}, "config": {"eos_token_id": 9}, "tokenizer_config": {"eos_token": "<|end|>"}}, {7, 9, 256}),
    ({"tokenizer_config": {"eos_token": None}}, set()),
    ({"tokenizer_config": {"eos_token": "not a token"}}, set()),
])
def test_the_end_set_is_the_tokenizers_and_the_configurations_together(tmp_path, files, ends):
    assert load_tokenizer(folder(tmp_path, **files)).eos_ids == ends


@pytest.mark.parametrize(("settings", "template"), [
    ({"chat_template": "A"}, "A"), ({}, None),
    ({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]}, "D")])
def test_where_the_chat_template_is(tmp_path, settings, template):
    assert load_tokenizer(folder(tmp_path, tokenizer_config=settings)).chat_template == template
    (tmp_path / "chat_template.jinja").write_text("J")
    assert load_tokenizer(ModelFiles("hf", tmp_path, "x")).chat_template == "J"


def test_added_tokens_keep_their_own_text(tmp_path):
    fast = byte_tokenizer()
    fast.add_tokens([AddedToken("naïve Ġ", normalized=False)])
    tokenizer = load_tokenizer(folder(tmp_path, fast))
    assert tokenizer.decode(tokenizer.encode("a naïve Ġ b")) == "a naïve Ġ b"


def test_ids_outside_the_vocabulary_have_no_text(tmp_path):
    tokenizer = load_tokenizer(folder(tmp_path))
    assert [tokenizer.token_bytes(token) for token in (-1, 10**6, 2**40)] == [b"", b"", b""]
    assert tokenizer.vocab_size == 258


@pytest.mark.parametrize("text", ["\ud800", None, 5, b"bytes"])
def test_what_is_not_text_is_refused(tmp_path, text):
    with pytest.raises(InvalidRequest, match="text"):
        load_tokenizer(folder(tmp_path)).encode(text)


def test_folders_that_are_wrong(tmp_path):
    files = folder(tmp_path, generation_config={"eos_token_id": "</s>"})
    with pytest.raises(CorruptCheckpoint, match="end tokens"):
        load_tokenizer(files)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(CorruptCheckpoint, match="not a readable tokenizer"):
        load_tokenizer(files)


def test_a_decoder_that_would_give_wrong_text_is_refused(tmp_path):
    words = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    with pytest.raises(UnsupportedModel, match="missing"):
        load_tokenizer(folder(tmp_path, words))
    words.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedModel, match="WordPiece"):
        load_tokenizer(folder(tmp_path, words))


@pytest.mark.full
def test_a_folder_without_tokenizer_json_is_converted_or_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    files = ModelFiles("hf", tmp_path, "x")
    model = json.loads(byte_tokenizer().to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps({**model["vocab"], "<|endoftext|>": 256}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    tokenizer = load_tokenizer(files)
    assert tokenizer.decode(tokenizer.encode("héllo 🙂")) == "héllo 🙂"


@pytest.mark.full
def test_an_empty_folder_says_what_is_missing(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ModelNotFound, match="tokenizer.json"):
        load_tokenizer(ModelFiles("hf", tmp_path, "x"))
