"""Tokenizers inside GGUF files: each family, against definitions and against transformers; and files that are wrong."""

import functools
import os
import re
import unicodedata

import numpy as np
import pytest
from gguf_vocabulary import TEXT, byte_level, sentencepiece, write
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from tinyserve.errors import CorruptCheckpoint, UnsupportedModel
from tinyserve.models.files import ModelFiles
from tinyserve.text.gguf_tokenizer import _pre_tokenizer
from tinyserve.text.tokenizer import _byte_alphabet, load_tokenizer

FAMILIES = ("gpt-2", "smollm", "llama-bpe", "qwen2")
SAMPLES = ["", " ", "hello world", "  two  spaces ", "a\n\n\n b\t\tc", "don't WE'LL", "12345 1 22 333", "½ Ⅷ ٣٤", "🙂 한 é ﷽ 漢字",
           "e\u0301", "\x00\x01", "<think>x</think>", "<|end|>the cat<|bos|>", "for i in range(10):\n    print(i)  # x\r\n"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYSERVE_CACHE", str(tmp_path / "cache"))


@functools.lru_cache
def fields(family):
    return sentencepiece() if family == "llama" else byte_level(family)


def pieces(tokenizer, text):
    return [tokenizer.token_bytes(token, skip_special=False).decode("utf-8", "replace") for token in tokenizer.encode(text, False)]


@pytest.mark.parametrize("family", [*FAMILIES, "llama"])
@pytest.mark.parametrize("text", [*SAMPLES, TEXT])
def test_text_comes_back(tmp_path, family, text):
    tokenizer = load_tokenizer(write(tmp_path / "x.gguf", fields(family)))
    back = tokenizer.decode(tokenizer.encode(text, False), skip_special_tokens=False)
    if family == "llama":  # a space before the text, and after each special token
        assert back.replace(" ", "") == text.replace(" ", "") and (not text or back.startswith(" "))
    else:
        assert back == (unicodedata.normalize("NFC", text) if family == "qwen2" else text)


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES)
def test_a_byte_level_family_agrees_with_transformers(tmp_path, family):
    """Where transformers drops the file's own pre-tokenizer (SmolLM's digits), it is given it."""
    from transformers import AutoTokenizer

    tokenizer = load_tokenizer(write(tmp_path / "x.gguf", fields(family)))
    theirs = AutoTokenizer.from_pretrained(str(tmp_path), gguf_file="x.gguf")
    if family == "smollm":
        theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    draw = np.random.default_rng(0)
    words = re.findall(r"\s+|\S", TEXT)
    for text in [*SAMPLES, TEXT, *("".join(draw.choice(words, 30)) for _ in range(200))]:
        if family != "qwen2" or text != "e\u0301":
            assert tokenizer.encode(text, False) == theirs.encode(text, add_special_tokens=False), text


def test_digits_are_cut_as_each_family_cuts_them(tmp_path):
    def cut(family):
        tokenizer = load_tokenizer(write(tmp_path / f"{family}.gguf", {**fields(family), "ggml.merges": merges, "ggml.tokens": tokens,
                                                                       "ggml.token_type": [1] * len(tokens)}))
        return pieces(tokenizer, "11111")

    tokens = [*fields("gpt-2")["ggml.tokens"][:256], "11", "111", "11111", "1111"]
    merges = ["1 1", "11 1", "111 1", "1111 1"]
    assert {family: cut(family) for family in FAMILIES} == {
        "gpt-2": ["11", "111"], "smollm": ["1"] * 5, "llama-bpe": ["111", "11"], "qwen2": ["1"] * 5}


def test_llama_3_takes_a_whole_piece_that_merges_do_not_reach(tmp_path):
    base = fields("gpt-2")
    changed = {**base, "ggml.tokens": [*base["ggml.tokens"], "zqzq"], "ggml.token_type": [*base["ggml.token_type"], 1]}
    gpt2 = load_tokenizer(write(tmp_path / "a.gguf", changed))
    llama3 = load_tokenizer(write(tmp_path / "b.gguf", {**changed, "ggml.pre": "llama-bpe"}))
    assert pieces(gpt2, "zqzq") == list("zqzq") and pieces(llama3, "zqzq") == ["zqzq"]


def joined_by_score(text, scores):
    """SentencePiece's rule by hand: join the best-scored neighbours, leftmost first, until none can be joined; then spell what is
    not in the vocabulary in bytes."""
    symbols = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        best = max(((scores[a + b], -i) for i, (a, b) in enumerate(zip(symbols, symbols[1:])) if a + b in scores), default=None)
        if best is None:
            break
        i = -best[1]
        symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
    return [piece for symbol in symbols
            for piece in ([symbol] if symbol in scores else [f"<0x{byte:02X}>" for byte in symbol.encode()])]


@functools.lru_cache
def llama(folder):
    return load_tokenizer(write(folder / "llama.gguf", fields("llama")))


@given(st.one_of(st.text("thecat dog'sn.12", max_size=30), st.text(max_size=10)))
def test_sentencepiece_joins_the_best_scored_neighbours(tmp_path_factory, text):
    tokenizer = llama(tmp_path_factory.getbasetemp())
    scores = dict(zip(fields("llama")["ggml.tokens"][259:], fields("llama")["ggml.scores"][259:]))
    if not re.search("<s>|</s>|<unk>", text):
        assert [tokenizer.fast.id_to_token(token) for token in tokenizer.encode(text, False)] == joined_by_score(text, scores)


def test_sentencepiece_begins_with_bos_and_a_space_unless_the_file_says_otherwise(tmp_path):
    tokenizer = load_tokenizer(write(tmp_path / "a.gguf", fields("llama")))
    assert tokenizer.encode("the")[0] == 1 and tokenizer.encode("the", False)[0] != 1
    assert tokenizer.encode("<s>the") == tokenizer.encode("the"), "never two"
    bare = load_tokenizer(write(tmp_path / "b.gguf", {**fields("llama"), "ggml.add_bos_token": False, "ggml.add_space_prefix": False}))
    assert bare.decode(bare.encode("the")) == "the" and tokenizer.decode(tokenizer.encode("the")) == " the"


@pytest.mark.parametrize(("family", "flag", "begins"), [
    ("gpt-2", None, False), ("gpt-2", True, True), ("llama-bpe", None, True), ("llama-bpe", False, False), ("qwen2", None, False)])
def test_bos(tmp_path, family, flag, begins):
    settings = {} if flag is None else {"ggml.add_bos_token": flag}
    tokenizer = load_tokenizer(write(tmp_path / "x.gguf", {**fields(family), **settings}))
    assert (tokenizer.encode("the")[0] == tokenizer.bos_id) is begins
    assert tokenizer.encode("", add_special_tokens=False) == []


def test_the_end_set_holds_every_end_that_the_file_names(tmp_path):
    size = len(fields("gpt-2")["ggml.tokens"])
    more = {"ggml.tokens": [*fields("gpt-2")["ggml.tokens"], "<|im_end|>", "<|eot|>"],
            "ggml.token_type": [*fields("gpt-2")["ggml.token_type"], 3, 3], "ggml.eot_token_id": size + 1}
    tokenizer = load_tokenizer(write(tmp_path / "x.gguf", {**fields("gpt-2"), **more}))
    assert tokenizer.eos_ids == {fields("gpt-2")["ggml.eos_token_id"], size, size + 1}


def test_control_tokens_are_skipped_and_users_own_are_shown(tmp_path):
    tokenizer = load_tokenizer(write(tmp_path / "x.gguf", fields("gpt-2")))
    assert tokenizer.decode(tokenizer.encode("<|bos|>a<think>b<|end|>")) == "a<think>b"


def test_converted_once(tmp_path, monkeypatch):
    files = write(tmp_path / "x.gguf", fields("smollm"))
    first = load_tokenizer(files)
    monkeypatch.setattr("tinyserve.text.tokenizer_files.convert", lambda file: pytest.fail("converted again"))
    again = load_tokenizer(ModelFiles("gguf", files.path, "x"))
    assert [again.encode(text) for text in SAMPLES] == [first.encode(text) for text in SAMPLES]
    assert [file.suffix for file in (tmp_path / "cache" / "tokenizers").iterdir()] == [".json"]


def test_a_damaged_cache_is_made_again(tmp_path):
    files = write(tmp_path / "x.gguf", fields("smollm"))
    expected = load_tokenizer(files).encode(TEXT)
    (cached,) = (tmp_path / "cache" / "tokenizers").iterdir()
    cached.write_bytes(cached.read_bytes()[:1000])
    assert load_tokenizer(files).encode(TEXT) == expected
    assert load_tokenizer(files).encode(TEXT) == expected


def test_without_a_place_to_keep_it_the_tokenizer_still_loads(tmp_path, monkeypatch):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("TINYSERVE_CACHE", str(tmp_path / "a file"))
    assert load_tokenizer(write(tmp_path / "x.gguf", fields("smollm"))).decode([]) == ""
    monkeypatch.setenv("TINYSERVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "replace", lambda *names: (_ for _ in ()).throw(OSError("no space left on device")))
    assert load_tokenizer(write(tmp_path / "x.gguf", fields("smollm"))).decode([]) == ""
    assert list((tmp_path / "cache" / "tokenizers").iterdir()) == []


@pytest.mark.parametrize(("family", "changes", "error"), [
    ("gpt-2", {"ggml.pre": "klingon"}, UnsupportedModel),
    ("gpt-2", {"ggml.model": "bert"}, UnsupportedModel),
    ("gpt-2", {"ggml.model": None}, CorruptCheckpoint),
    ("gpt-2", {"ggml.tokens": None}, CorruptCheckpoint),
    ("gpt-2", {"ggml.tokens": [1, 2, 3]}, CorruptCheckpoint),
    ("gpt-2", {"ggml.merges": None}, CorruptCheckpoint),
    ("gpt-2", {"ggml.merges": ["nospace"]}, CorruptCheckpoint),
    ("gpt-2", {"ggml.merges": ["not there"]}, CorruptCheckpoint),
    ("gpt-2", {"ggml.token_type": [1, 1]}, CorruptCheckpoint),
    ("gpt-2", {"ggml.eos_token_id": "two"}, CorruptCheckpoint),
    ("llama", {"ggml.scores": None}, CorruptCheckpoint),
    ("llama", {"ggml.scores": [0.0]}, CorruptCheckpoint),
])
def test_files_that_are_wrong(tmp_path, family, changes, error):
    wrong = {key: value for key, value in {**fields(family), **changes}.items() if value is not None}
    with pytest.raises(error) as refusal:
        load_tokenizer(write(tmp_path / "x.gguf", wrong))
    assert str(refusal.value).endswith(".") and "\n" not in str(refusal.value)


@pytest.mark.full
def test_qwens_pattern_is_the_published_one():
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    published, alphabet = pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"), _byte_alphabet()
    for text in (*SAMPLES, TEXT):
        mine = [bytes(alphabet[c] for c in piece).decode() for piece, _ in _pre_tokenizer("qwen2").pre_tokenize_str(text)]
        assert mine == [piece for piece, _ in published.pre_tokenize_str(text)]
