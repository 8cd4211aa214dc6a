"""Text to token ids and back, and chat messages to a prompt."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from tokenizers import Tokenizer as Fast

from ..errors import CorruptCheckpoint, InvalidRequest, ModelNotFound
from ..models.files import ModelFiles
from ..paths import cache_dir

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes, character -> byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(byte): byte for byte in printable}, **{chr(256 + i): byte for i, byte in enumerate(others)}}


class Tokenizer:
    """A `tokenizers` tokenizer with what serving needs: bytes of a token, the end set, the chat template."""

    def __init__(self, fast: Fast, *, end_ids: Sequence[int] = (), bos_id: Optional[int] = None, prepend_bos: bool = False,
                 chat_template: Optional[str] = None, special_names: Mapping[str, str] = {}):
        self.fast, self.bos_id, self.chat_template = fast, bos_id, chat_template
        self.eos_ids = frozenset(end_ids)
        self._prepend_bos, self._special_names = prepend_bos, dict(special_names)
        self._added = {id: token for id, token in fast.get_added_tokens_decoder().items()}
        self._alphabet = _byte_alphabet() if type(fast.decoder).__name__ == "ByteLevel" else None
        self._bytes: dict[int, bytes] = {}

    @property
    def vocab_size(self) -> int:
        return self.fast.get_vocab_size()

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids; special tokens (a leading BOS, say) as the model's own tokenizer adds them."""
        ids = self.fast.encode(text, add_special_tokens=add_special_tokens).ids
        if add_special_tokens and self._prepend_bos and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def token_bytes(self, token: int, skip_special: bool = True) -> bytes:
        """The bytes that one token adds to a text; b'' for a special token that is skipped, and for ids outside the vocabulary."""
        if token in self._added:
            added = self._added[token]
            return b"" if skip_special and added.special else added.content.encode()
        if token not in self._bytes:
            self._bytes[token] = self._ordinary_bytes(self.fast.id_to_token(token))
        return self._bytes[token]

    def _ordinary_bytes(self, piece: Optional[str]) -> bytes:
        if piece is None:
            return b""
        if self._alphabet is not None:
            return b"".join(bytes([self._alphabet[c]]) if c in self._alphabet else c.encode() for c in piece)
        byte = _BYTE_TOKEN.fullmatch(piece)
        return bytes([int(byte[1], 16)]) if byte else piece.replace("▁", " ").encode()

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of these tokens; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self.token_bytes(token, skip_special_tokens) for token in ids).decode("utf-8", "replace")

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True) -> list[int]:
        """Chat messages as token ids. The template writes its own special tokens, so none are added."""
        return self.encode(self.render_chat(messages, add_generation_prompt), add_special_tokens=False)

    def render_chat(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True) -> str:
        """Chat messages ({"role", "content"}) as the text that the model was trained on."""
        if self.chat_template is None:
            raise InvalidRequest("This model has no chat template; use generate with a plain prompt.")
        if not messages:
            raise InvalidRequest("The chat is empty; give at least one message.")
        for message in messages:
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or not isinstance(message.get("content"), str):
                raise InvalidRequest(f"Each chat message needs a 'role' and a 'content', both strings; this one is {message!r}.")
        import jinja2

        try:
            return _template(self.chat_template).render(
                messages=[dict(message) for message in messages], add_generation_prompt=add_generation_prompt, **self._special_names)
        except jinja2.TemplateError as problem:
            raise InvalidRequest(f"The model's chat template refuses these messages: {problem}.") from None


@functools.lru_cache(maxsize=8)
def _template(source: str) -> Any:
    """A chat template in a sandbox, with the helpers that Hugging Face templates expect."""
    import datetime
    import json

    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment.from_string(source)


def _from_gguf(files: ModelFiles) -> Tokenizer:
    metadata = files.gguf.metadata
    fast = _converted(files)

    def token(name: str) -> Optional[int]:
        return metadata.get(f"tokenizer.ggml.{name}_token_id")

    ends = {token("eos"), token("eot"), token("eom")} | {fast.token_to_id(name) for name in ("<|im_end|>", "<|eot_id|>", "<|endoftext|>")}
    names = {f"{name}_token": fast.id_to_token(token(name)) for name in ("bos", "eos") if token(name) is not None}
    return Tokenizer(fast, end_ids=sorted(ends - {None}), bos_id=token("bos"), chat_template=metadata.get("tokenizer.chat_template"),
                     prepend_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", metadata.get("tokenizer.ggml.model") == "llama")),
                     special_names=names)


def _converted(files: ModelFiles) -> Fast:
    """The GGUF file's tokenizer, converted once and kept as tokenizer.json."""
    from .gguf_tokenizer import convert

    digest = hashlib.sha256(b"1 " + files.gguf.header()).hexdigest()[:16]
    cached = cache_dir("tokenizers") / f"{digest}.json"
    if cached.exists():
        try:
            return Fast.from_file(str(cached))
        except Exception:  # tokenizers raises plain Exception for a file that it cannot read; make it again
            cached.unlink(missing_ok=True)
    fast = convert(files.gguf)
    partial = cached.with_suffix(f".{os.getpid()}.partial")
    fast.save(str(partial))
    os.replace(partial, cached)
    return fast


def _special_name(value: Any) -> Optional[str]:
    """Hugging Face writes special tokens as strings or as objects."""
    return value.get("content") if isinstance(value, Mapping) else value


def _from_folder(files: ModelFiles) -> Tokenizer:
    path = files.path / "tokenizer.json"
    if path.exists():
        try:
            fast = Fast.from_file(str(path))
        except Exception as problem:  # tokenizers has no exception type of its own
            raise CorruptCheckpoint(f"{path} is not a readable tokenizer: {problem}.") from None
    else:
        fast = _by_transformers(files.path)
    settings = files.json("tokenizer_config.json")
    names = {key: _special_name(settings.get(key)) for key in ("bos_token", "eos_token", "pad_token", "unk_token") if settings.get(key)}
    ends: set[Any] = {fast.token_to_id(names["eos_token"])} if names.get("eos_token") else set()
    for source in (files.json("generation_config.json"), files.json("config.json")):
        value = source.get("eos_token_id")
        ends |= set(value if isinstance(value, list) else [value])
    template = settings.get("chat_template")
    jinja = files.path / "chat_template.jinja"
    bos = fast.token_to_id(names["bos_token"]) if names.get("bos_token") else None
    return Tokenizer(fast, end_ids=sorted(ends - {None}), bos_id=bos, special_names=names,
                     chat_template=jinja.read_text(encoding="utf-8") if jinja.exists() else template if isinstance(template, str) else None)


def _by_transformers(folder: Path) -> Fast:
    """Slow tokenizers (vocab.json and merges.txt, tokenizer.model) are converted by transformers."""
    try:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True).backend_tokenizer
    except (ImportError, OSError, ValueError, AttributeError):
        raise ModelNotFound(f"{folder} holds no tokenizer that can be read; copy the model's tokenizer.json there.") from None


def load_tokenizer(files: ModelFiles) -> Tokenizer:
    """The tokenizer of a model. Raises `ModelNotFound`, `CorruptCheckpoint` or `UnsupportedModel`."""
    return _from_gguf(files) if files.kind == "gguf" else _from_folder(files)
