"""What a tokenizer is made of, read from a GGUF file or a Hugging Face folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from tokenizers import Tokenizer as Fast

from ..errors import CorruptCheckpoint, ModelNotFound
from ..models.files import ModelFiles
from ..paths import cache_dir
from .gguf_tokenizer import adds_bos, convert

_CONVERSION = 2  # counts up when `convert` changes, so that older caches are not used
_ENDS = ("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>")
_NAMES = ("bos", "eos", "pad", "unk")


@dataclass(frozen=True)
class TokenizerParts:
    """The arguments of `Tokenizer`."""

    fast: Fast
    end_ids: list[int]
    bos_id: Optional[int]
    prepend_bos: bool
    chat_template: Optional[str]
    special_names: dict[str, str]


def _end_ids(ids: Iterable[Any], where: Path) -> list[int]:
    found = {token for token in ids if token is not None}
    if not all(isinstance(token, int) and token >= 0 for token in found):
        raise CorruptCheckpoint(f"{where} names end tokens that are not token ids: {sorted(map(repr, found))}.")
    return sorted(found)


# --- GGUF ---

def from_gguf(files: ModelFiles) -> TokenizerParts:
    """From a GGUF file's metadata. The end set holds the file's own end tokens and those that chat models end a turn with."""
    metadata, fast = files.gguf.metadata, _converted(files)
    keys = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown", "eot": "eot", "eom": "eom"}
    ids = {name: metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}
    ends = _end_ids([ids["eos"], ids["eot"], ids["eom"], *map(fast.token_to_id, _ENDS)], files.path)
    names = {f"{name}_token": fast.id_to_token(ids[name]) for name in _NAMES if ids[name] is not None}
    return TokenizerParts(fast, ends, ids["bos"], adds_bos(metadata), metadata.get("tokenizer.chat_template"), names)


def _converted(files: ModelFiles) -> Fast:
    """The GGUF file's tokenizer, converted once and kept as tokenizer.json; where nothing can be kept, converted again each time."""
    digest = hashlib.sha256(b"%d " % _CONVERSION + files.gguf.header()).hexdigest()[:16]
    try:
        cached = cache_dir("tokenizers") / f"{digest}.json"
    except OSError:
        return convert(files.gguf)
    if cached.exists():
        try:
            return Fast.from_file(str(cached))
        except Exception:  # tokenizers raises plain Exception for a file that it cannot read; make it again
            cached.unlink(missing_ok=True)
    fast = convert(files.gguf)
    partial = cached.with_suffix(f".{os.getpid()}.partial")
    try:
        partial.write_text(fast.to_str(), encoding="utf-8")
        os.replace(partial, cached)
    except OSError:
        partial.unlink(missing_ok=True)
    return fast


# --- Hugging Face folders ---

def from_folder(files: ModelFiles) -> TokenizerParts:
    """From tokenizer.json and the settings beside it. The end set is the tokenizer's, generation_config's and config's together."""
    fast, names = _fast(files.path), _special_names(files)
    ends = [fast.token_to_id(names["eos_token"])] if "eos_token" in names else []
    for source in (files.json("generation_config.json"), files.json("config.json")):
        value = source.get("eos_token_id")
        ends += value if isinstance(value, list) else [value]
    bos = fast.token_to_id(names["bos_token"]) if "bos_token" in names else None
    # Whether a text begins with BOS is part of tokenizer.json; the flag beside it has no say, as in transformers.
    return TokenizerParts(fast, _end_ids(ends, files.path), bos, False, _chat_template(files), names)


def _fast(folder: Path) -> Fast:
    path = folder / "tokenizer.json"
    if not path.exists():
        return _by_transformers(folder)
    try:
        return Fast.from_file(str(path))
    except Exception as problem:  # tokenizers has no exception type of its own
        raise CorruptCheckpoint(f"{path} is not a readable tokenizer: {problem}.") from None


def _special_names(files: ModelFiles) -> dict[str, str]:
    """{"bos_token": "<s>", …}. Hugging Face writes special tokens as strings or as objects, in one of two files."""
    names: dict[str, str] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        for name in _NAMES:
            value = files.json(file).get(f"{name}_token")
            value = value.get("content") if isinstance(value, Mapping) else value
            if isinstance(value, str):
                names[f"{name}_token"] = value
    return names


def _chat_template(files: ModelFiles) -> Optional[str]:
    """chat_template.jinja, or the template in tokenizer_config.json: the one named "default" of several."""
    jinja = files.path / "chat_template.jinja"
    if jinja.exists():
        return jinja.read_text(encoding="utf-8")
    template = files.json("tokenizer_config.json").get("chat_template")
    if isinstance(template, list):
        template = {each.get("name"): each.get("template") for each in template if isinstance(each, Mapping)}.get("default")
    return template if isinstance(template, str) else None


def _by_transformers(folder: Path) -> Fast:
    """Slow tokenizers (vocab.json and merges.txt, tokenizer.model) are converted by transformers."""
    try:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True).backend_tokenizer
    except (ImportError, OSError, ValueError, AttributeError):
        raise ModelNotFound(f"{folder} holds no tokenizer that can be read; copy the model's tokenizer.json there.") from None
