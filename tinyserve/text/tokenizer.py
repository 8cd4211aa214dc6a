"""Text to token ids and back, and chat messages to a prompt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from tokenizers import Tokenizer as Fast

from ..errors import InvalidRequest, UnsupportedModel
from ..models.files import ModelFiles
from .tokenizer_files import from_folder, from_gguf

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes, character -> byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(byte): byte for byte in printable}, **{chr(256 + i): byte for i, byte in enumerate(others)}}


def _writes_bytes(fast: Fast) -> bool:
    """True for byte-level pieces, False for SentencePiece's. Others would come out wrong, and are refused."""
    kinds = set(re.findall(r'"type":\s*"(\w+)"', fast.decoder.__getstate__().decode())) if fast.decoder is not None else set()
    if "ByteLevel" in kinds:
        return True
    if kinds & {"ByteFallback", "Metaspace"} and not kinds & {"WordPiece", "BPEDecoder", "CTC"}:
        return False
    raise UnsupportedModel(f"The tokenizer's decoder is {', '.join(sorted(kinds)) or 'missing'}; supported are byte-level BPE "
                           "and SentencePiece.")


class Tokenizer:
    """A `tokenizers` tokenizer with what serving needs: bytes of a token, the end set, the chat template.

    `eos_ids` are all tokens that end a text. With `prepend_bos` BOS begins each encoded text that does not have one yet.
    """

    def __init__(self, fast: Fast, *, end_ids: Sequence[int] = (), bos_id: Optional[int] = None, prepend_bos: bool = False,
                 chat_template: Optional[str] = None, special_names: Mapping[str, str] = {}):
        self.fast, self.bos_id, self.chat_template = fast, bos_id, chat_template
        fast.no_truncation()  # a tokenizer.json may carry the lengths of its training
        fast.no_padding()
        self.eos_ids = frozenset(end_ids)
        self._prepend_bos, self._special_names = prepend_bos and bos_id is not None, dict(special_names)
        self._added = {id: token for id, token in fast.get_added_tokens_decoder().items()}
        self._alphabet = _byte_alphabet() if _writes_bytes(fast) else None
        self._bytes: dict[int, bytes] = {}

    @property
    def vocab_size(self) -> int:
        """Ids that have a text, added tokens included."""
        return self.fast.get_vocab_size()

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids; special tokens (a leading BOS, say) as the model's own tokenizer adds them."""
        try:
            ids = self.fast.encode(text, add_special_tokens=add_special_tokens).ids
        except UnicodeEncodeError:
            raise InvalidRequest("The text holds half of a surrogate pair, which is no character; decode it as UTF-8 first.") from None
        except TypeError:
            raise InvalidRequest(f"The text to encode is {type(text).__name__}; it must be a string.") from None
        if add_special_tokens and self._prepend_bos and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def token_bytes(self, token: int, skip_special: bool = True) -> bytes:
        """The bytes that one token adds to a text; b'' for a special token that is skipped, and for ids outside the vocabulary."""
        if token in self._added:
            added = self._added[token]
            return b"" if skip_special and added.special else added.content.encode()
        if token not in self._bytes:
            self._bytes[token] = self._ordinary_bytes(self.fast.id_to_token(token) if 0 <= token < 2**31 else None)
        return self._bytes[token]

    def _ordinary_bytes(self, piece: Optional[str]) -> bytes:
        if piece is None:
            return b""
        if self._alphabet is not None:
            known = all(character in self._alphabet for character in piece)
            return bytes(self._alphabet[character] for character in piece) if known else piece.encode()
        byte = _BYTE_TOKEN.fullmatch(piece)
        return bytes([int(byte[1], 16)]) if byte else piece.replace("▁", " ").encode()

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of these tokens; bytes that are not UTF-8 become U+FFFD. Nothing is trimmed: SentencePiece's leading space stays."""
        return b"".join(self.token_bytes(token, skip_special_tokens) for token in ids).decode("utf-8", "replace")

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True) -> list[int]:
        """Chat messages as token ids. The template writes its own special tokens, so none are added."""
        return self.encode(self.render_chat(messages, add_generation_prompt), add_special_tokens=False)

    def render_chat(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True) -> str:
        """Chat messages ({"role", "content"}) as the text that the model was trained on. Raises `InvalidRequest`."""
        if self.chat_template is None:
            raise InvalidRequest("This model has no chat template; use generate with a plain prompt.")
        from .chat import render

        return render(self.chat_template, messages, add_generation_prompt, self._special_names)


def load_tokenizer(files: ModelFiles) -> Tokenizer:
    """The tokenizer of a model. Raises `ModelNotFound`, `CorruptCheckpoint` or `UnsupportedModel`."""
    parts = from_gguf(files) if files.kind == "gguf" else from_folder(files)
    return Tokenizer(**vars(parts))
