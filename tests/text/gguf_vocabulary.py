"""Small GGUF files that hold a tokenizer and nothing else."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
from tokenizers import Tokenizer, models, trainers

from tinyserve.models.files import ModelFiles
from tinyserve.text.gguf_tokenizer import _pre_tokenizer
from tinyserve.text.tokenizer import _byte_alphabet

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
TEXT = ("the cat sat on the mat. the dog ate the cat's hat! what did they say? don't, we'll 12 34 1234 567 2024-12-01 for i in range(10): "
        "print(i)\n\n\tif x == 3:   y += 1\n naïve café 한국어 漢字 🙂🙂 hello world, Hello World, HELLO ") * 3


def write(path: Path, fields: Mapping[str, Any]) -> ModelFiles:
    """A GGUF file with these `tokenizer.*` fields."""
    writer = gguf.GGUFWriter(str(path), "llama")
    for key, value in fields.items():
        key = f"tokenizer.{key}"
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_string(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return ModelFiles("gguf", path, path.stem)


def byte_level(pre: str, vocabulary: int = 340) -> dict[str, Any]:
    """Fields of a byte-level BPE, trained on TEXT as `pre` cuts it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _pre_tokenizer(pre)
    alphabet = sorted(_byte_alphabet(), key=_byte_alphabet().get)
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    specials = ["<|bos|>", "<|end|>", "<think>"]
    return {"ggml.model": "gpt2", "ggml.pre": pre, "ggml.tokens": tokens + specials, "ggml.merges": [" ".join(m) for m in model["merges"]],
            "ggml.token_type": [NORMAL] * len(tokens) + [CONTROL, CONTROL, USER_DEFINED],
            "ggml.bos_token_id": len(tokens), "ggml.eos_token_id": len(tokens) + 1}


def sentencepiece(vocabulary: int = 400) -> dict[str, Any]:
    """Fields of a SentencePiece BPE, trained on TEXT: scores fall with the order of the merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.train_from_iterator([TEXT.replace(" ", "▁")], trainers.BpeTrainer(
        vocab_size=vocabulary, show_progress=False, max_token_length=8))
    pieces = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    single = [piece for piece in pieces if len(piece) == 1 and piece != "漢"]
    merged = [piece for piece in pieces if len(piece) > 1]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *merged, *single]
    scores = [0.0] * 259 + [-float(i) for i in range(len(merged) + len(single))]
    return {"ggml.model": "llama", "ggml.tokens": tokens, "ggml.scores": scores,
            "ggml.token_type": [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(tokens) - 259),
            "ggml.bos_token_id": 1, "ggml.eos_token_id": 2, "ggml.unknown_token_id": 0}
