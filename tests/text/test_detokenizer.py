"""14: tokens become text one at a time, exact to the byte, and nothing is shown before it is final."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import END, byte_tokenizer

from tinyserve.text.detokenizer import IncrementalDetokenizer
from tinyserve.text.tokenizer import Tokenizer


class Pieces:
    """Token i is the i-th piece of bytes."""

    def __init__(self, pieces):
        self.pieces = pieces

    def token_bytes(self, token, skip_special=True):
        return self.pieces[token]


def push_all(pieces):
    detokenizer = IncrementalDetokenizer(Pieces(pieces))
    return [*(detokenizer.push(i) for i in range(len(pieces))), detokenizer.flush()]


def cut(content, sizes):
    pieces, at = [], 0
    for size in sizes:
        pieces.append(content[at:at + size])
        at += size
    return [*pieces, content[at:]]


TEXT = "🙂 한 é ﷽"


def test_one_byte_a_step():
    """The contract's text: characters of 4, 3, 2 and 3 bytes."""
    chunks = push_all([bytes([byte]) for byte in TEXT.encode()])
    assert "".join(chunks) == TEXT and not any("\ufffd" in chunk for chunk in chunks)
    assert [chunk for chunk in chunks if chunk] == list(TEXT)


def test_cut_in_the_middle_of_a_character_gives_one_replacement_at_the_end():
    for stop in range(1, 4):
        chunks = push_all([b"ok", "🙂".encode()[:stop]])
        assert chunks == ["ok", "", "\ufffd"]


def test_a_flush_is_given_once():
    detokenizer = IncrementalDetokenizer(Pieces([b"\xf0\x9f"]))
    assert [detokenizer.push(0), detokenizer.flush(), detokenizer.flush()] == ["", "\ufffd", ""]


@pytest.mark.parametrize("bad", [b"\xff", b"\x80", b"\xc0", b"\xf5"])
def test_a_lone_invalid_byte_does_not_stall_the_stream(bad):
    assert push_all([b"a", bad, b"b", "é".encode()]) == ["a", "\ufffd", "b", "é", ""]


def test_an_unfinished_character_followed_by_another():
    assert push_all([b"\xe2\x82", b"A"]) == ["", "\ufffdA", ""]


@given(st.text(max_size=30), st.lists(st.integers(0, 5), max_size=40))
def test_any_text_cut_anywhere(text, sizes):
    content = text.encode()
    chunks, sent = push_all(cut(content, sizes)), 0
    assert "".join(chunks) == text
    for piece, chunk in zip(cut(content, sizes), chunks):
        sent += len(piece)
        assert "\ufffd" not in chunk or "\ufffd" in text
    so_far = ""
    for chunk in chunks:
        so_far += chunk
        assert text.startswith(so_far)


@given(st.binary(max_size=40), st.lists(st.integers(0, 5), max_size=40))
def test_any_bytes_cut_anywhere_are_the_whole_decode(content, sizes):
    chunks = push_all(cut(content, sizes))
    assert "".join(chunks) == content.decode("utf-8", "replace")
    held, shown = b"", ""
    for piece, chunk in zip(cut(content, sizes), chunks):
        held, shown = held + piece, shown + chunk
        assert 0 <= len(held.decode("utf-8", "replace")) - len(shown) <= 1  # never more than one character is held back


def test_special_tokens_are_hidden_or_shown():
    tokenizer = Tokenizer(byte_tokenizer(), end_ids=[END])
    ids = [*tokenizer.encode("hé"), END, *tokenizer.encode("y")]
    for skip, text in ((True, "héy"), (False, "hé<|end|>y")):
        detokenizer = IncrementalDetokenizer(tokenizer, skip)
        assert "".join(map(detokenizer.push, ids)) + detokenizer.flush() == text == tokenizer.decode(ids, skip)


@given(st.text(max_size=30))
def test_a_tokenizers_own_ids(text):
    tokenizer = Tokenizer(byte_tokenizer())
    detokenizer = IncrementalDetokenizer(tokenizer)
    assert "".join(map(detokenizer.push, tokenizer.encode(text))) + detokenizer.flush() == text
