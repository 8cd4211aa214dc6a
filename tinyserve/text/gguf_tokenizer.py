"""The tokenizer inside a GGUF file, as a `tokenizers` object: byte-level BPE of several families, and SentencePiece BPE."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from ..errors import CorruptCheckpoint, UnsupportedModel
from ..models.gguf_file import GgufFile

_CONTROL, _USER_DEFINED = 3, 4
_LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def _split(pattern: str) -> Any:
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _pre_tokenizer(name: str) -> Any:
    """How text is cut before merging; each family publishes its own pattern."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in ("gpt-2", "default"):
        return byte_level
    if name == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    if name in ("llama-bpe", "llama3"):
        return _split(_LLAMA3)
    if name == "qwen2":
        return _split(_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"))
    raise UnsupportedModel(f"The GGUF file asks for pre-tokenizer {name!r}; supported are gpt-2, smollm, llama-bpe and qwen2.")


def _arrays(file: GgufFile) -> tuple[list[str], list[int]]:
    try:
        tokens = file.array("tokenizer.ggml.tokens")
    except KeyError:
        raise CorruptCheckpoint(f"{file.path.name} holds no tokenizer.") from None
    try:
        kinds = file.array("tokenizer.ggml.token_type")
    except KeyError:
        kinds = [1] * len(tokens)
    if len(kinds) != len(tokens):
        raise CorruptCheckpoint(f"{file.path.name} lists {len(tokens)} tokens but {len(kinds)} token types.")
    return tokens, kinds


def _byte_level(file: GgufFile, tokens: list[str]) -> Tokenizer:
    vocabulary = {token: i for i, token in enumerate(tokens)}
    try:
        merges = [tuple(merge.split(" ", 1)) for merge in file.array("tokenizer.ggml.merges")]
    except KeyError:
        raise CorruptCheckpoint(f"{file.path.name} has byte-level tokens but no merges.") from None
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, fuse_unk=False))
    if "qwen2" in file.metadata.get("tokenizer.ggml.pre", ""):
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(file.metadata.get("tokenizer.ggml.pre", "default"))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(file: GgufFile, tokens: list[str]) -> Tokenizer:
    """SentencePiece BPE merges the best-scored pair first; as merges, every split of a piece ranked by the piece's score."""
    scores = file.array("tokenizer.ggml.scores")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = []
    for token, i in sorted(vocabulary.items(), key=lambda item: (-scores[item[1]], item[1])):
        splits = [(token[:at], token[at:]) for at in range(1, len(token)) if token[:at] in vocabulary and token[at:] in vocabulary]
        merges.extend(sorted(splits, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]])))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    prefix = [normalizers.Prepend("▁")] if file.metadata.get("tokenizer.ggml.add_space_prefix", True) else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def convert(file: GgufFile) -> Tokenizer:
    """The file's tokenizer. Raises `UnsupportedModel` for kinds that would be tokenized wrongly."""
    tokens, kinds = _arrays(file)
    kind = file.metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        tokenizer = _byte_level(file, tokens)
    elif kind == "llama":
        tokenizer = _sentencepiece(file, tokens)
    else:
        raise UnsupportedModel(f"The GGUF file has a tokenizer of kind {kind!r}; supported are gpt2 and llama.")
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, kinds) if k == _CONTROL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, k in zip(tokens, kinds) if k == _USER_DEFINED])
    return tokenizer
