"""The tokenizer inside a GGUF file, as a `tokenizers` object: byte-level BPE of several families, and SentencePiece BPE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from ..errors import CorruptCheckpoint, UnsupportedModel
from ..models.gguf_file import GgufFile

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3")
_QWEN2 = ("qwen2", "deepseek-r1-qwen")
_LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
                   r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def adds_bos(metadata: Mapping[str, Any]) -> bool:
    """Whether a text begins with BOS: as the file says, or else as its kind of tokenizer does."""
    usual = metadata.get("tokenizer.ggml.model") == "llama" or metadata.get("tokenizer.ggml.pre") in _LLAMA3
    return bool(metadata.get("tokenizer.ggml.add_bos_token", usual))


def convert(file: GgufFile) -> Tokenizer:
    """The file's tokenizer. Raises `UnsupportedModel` for kinds that would be tokenized wrongly, `CorruptCheckpoint` for one that
    contradicts itself."""
    kind = file.metadata.get("tokenizer.ggml.model")
    if kind is None:
        raise CorruptCheckpoint(f"{file.path.name} holds no tokenizer; fetch a GGUF file that has one.")
    if kind not in ("gpt2", "llama"):
        raise UnsupportedModel(f"The GGUF file has a tokenizer of kind {kind!r}; supported are gpt2 and llama.")
    tokens = _array(file, "tokens", str)
    kinds = _array(file, "token_type", int) if _has(file, "token_type") else [1] * len(tokens)
    if len(kinds) != len(tokens):
        raise CorruptCheckpoint(f"{file.path.name} lists {len(tokens)} tokens but {len(kinds)} token types.")
    tokenizer = _byte_level(file, tokens) if kind == "gpt2" else _sentencepiece(file, tokens, kinds)
    special = [token for token, k in zip(tokens, kinds) if k == _CONTROL or (k == _UNKNOWN and kind == "llama")]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token, k in zip(tokens, kinds) if k == _USER_DEFINED])
    return tokenizer


def _has(file: GgufFile, name: str) -> bool:
    try:
        return bool(file.array(f"tokenizer.ggml.{name}"))
    except KeyError:
        return False


def _array(file: GgufFile, name: str, kind: type) -> list[Any]:
    try:
        values = file.array(f"tokenizer.ggml.{name}")
    except KeyError:
        raise CorruptCheckpoint(f"{file.path.name} has a tokenizer without {name}; fetch it again.") from None
    if not all(type(value) is kind for value in values):
        raise CorruptCheckpoint(f"{file.path.name} has a tokenizer whose {name} are not of type {kind.__name__}; fetch it again.")
    return values


def _bpe(file: GgufFile, tokens: list[str], merges: list[tuple[str, ...]], **options: Any) -> Tokenizer:
    try:
        return Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges, **options))
    except Exception as problem:  # tokenizers has no exception type of its own
        reason = str(problem).splitlines()[0]
        raise CorruptCheckpoint(f"{file.path.name} has a tokenizer whose merges do not fit its tokens: {reason}.") from None


# --- byte-level BPE (GPT-2 and its children) ---

def _byte_level(file: GgufFile, tokens: list[str]) -> Tokenizer:
    name = file.metadata.get("tokenizer.ggml.pre", "default")
    pre_tokenizer = _pre_tokenizer(name)
    merges = [tuple(merge.split(" ", 1)) for merge in _array(file, "merges", str)]
    tokenizer = _bpe(file, tokens, merges, ignore_merges=name in _LLAMA3)
    if name in _QWEN2:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.ByteLevel()
    return tokenizer


def _pre_tokenizer(name: str) -> Any:
    """How text is cut before merging; each family publishes its own pattern."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in ("gpt-2", "default"):
        return byte_level
    if name == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    if name in (*_LLAMA3, "smaug-bpe"):
        return _split(_LLAMA3_PATTERN)
    if name in _QWEN2:
        return _split(_LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}"))
    raise UnsupportedModel(f"The GGUF file asks for pre-tokenizer {name!r}; supported are gpt-2, smollm, llama-bpe and qwen2.")


def _split(pattern: str) -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# --- SentencePiece BPE (Llama 2, Mistral) ---

def _sentencepiece(file: GgufFile, tokens: list[str], kinds: list[int]) -> Tokenizer:
    """SentencePiece joins the pair whose piece scores best, leftmost first; as merges, each piece's splits ranked by its score."""
    scores = _array(file, "scores", float)
    if len(scores) != len(tokens):
        raise CorruptCheckpoint(f"{file.path.name} lists {len(tokens)} tokens but {len(scores)} scores.")
    ordinary = {token for token, kind in zip(tokens, kinds) if kind not in (_UNKNOWN, _CONTROL)}
    merges = [(token[:at], token[at:]) for _, token in sorted(zip([-score for score in scores], tokens)) if token in ordinary
              for at in range(len(token) - 1, 0, -1) if token[:at] in ordinary and token[at:] in ordinary]
    unknown = next((token for token, kind in zip(tokens, kinds) if kind == _UNKNOWN), None)
    tokenizer = _bpe(file, tokens, merges, byte_fallback=True, fuse_unk=True, unk_token=unknown)
    prefix = [normalizers.Prepend("▁")] if file.metadata.get("tokenizer.ggml.add_space_prefix", True) else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer
