"""Contracts 14 to 17, as far as the text room keeps them: UTF-8, stop strings, ends and BOS."""

import json

import pytest
from tiny_model import byte_tokenizer
from tokenizers import processors

from tinyserve.models.files import ModelFiles
from tinyserve.text.detokenizer import IncrementalDetokenizer
from tinyserve.text.stopping import StopMatcher
from tinyserve.text.tokenizer import load_tokenizer

BAD = "\N{REPLACEMENT CHARACTER}"
TEXT = "🙂 한 é ﷽"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return model(tmp_path_factory.mktemp("bytes"))


def model(folder, template="", bos=False, **settings):
    """Byte tokens; 256 ends a text, 257 begins one."""
    fast = byte_tokenizer()
    fast.add_special_tokens(["<s>"])
    if bos:
        fast.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 257)])
    fast.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<s>", "eos_token": "<|end|>", "chat_template": template + "{% for m in messages %}{{ m.content }}{% endfor %}"}))
    for name, content in {"config": {}, **settings}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return load_tokenizer(ModelFiles("hf", folder, "bytes"))


def stream(tokenizer, ids):
    detokenizer = IncrementalDetokenizer(tokenizer)
    return [detokenizer.push(token) for token in ids], detokenizer.flush()


def test_one_token_a_step(tokenizer):
    """14: the joined chunks equal the whole decode, and no chunk holds U+FFFD."""
    ids = tokenizer.encode(TEXT)
    assert len(ids) > len(TEXT)
    chunks, rest = stream(tokenizer, ids)
    assert "".join(chunks) == tokenizer.decode(ids) == TEXT and rest == "" and BAD not in "".join(chunks)
    assert [chunk for chunk in chunks if chunk] == list(TEXT), "a character is shown by the token that completes it"


@pytest.mark.parametrize("cut", range(1, len(TEXT.encode())))
def test_cut_mid_character(tokenizer, cut):
    """14: nothing is shown of the part of a character until the end, and then one flush."""
    ids = tokenizer.encode(TEXT)[:cut]
    chunks, rest = stream(tokenizer, ids)
    assert TEXT.startswith("".join(chunks)) and rest in ("", BAD)
    assert "".join(chunks) + rest == tokenizer.decode(ids)


def test_a_lone_invalid_byte_does_not_stall_the_stream(tokenizer):
    """14: bytes that can begin nothing show at once; a beginning that is not continued shows with the next token."""
    alphabet = {byte: tokenizer.fast.token_to_id(character) for character, byte in tokenizer._alphabet.items()}
    assert stream(tokenizer, [alphabet[0xFF], *tokenizer.encode("ok")]) == ([BAD, "o", "k"], "")
    assert stream(tokenizer, [alphabet[0x80], alphabet[0x80]]) == ([BAD, BAD], "")
    assert stream(tokenizer, [alphabet[0xF0], alphabet[0x9F], *tokenizer.encode("é")]) == (["", "", BAD, "é"], "")


@pytest.mark.parametrize(("pieces", "stops", "shown", "met"), [
    (["Here ", "DEF", "G", "HI", "J"], ["DEFGHIJ"], "Here ", "DEFGHIJ"),
    (["DEF", "X"], ["DEFGHIJ"], "DEFX", None),
    (["DEF"], ["DEFGHIJ"], "DEF", None),
    (["stop!"], ["stop"], "", "stop"),
    (["one two"], ["two", "one"], "", "one"),
    (["abcd"], ["bcd", "bc"], "a", "bc"),
    (["xab", "abc"], ["abc"], "xab", "abc"),
    (["nonstop"], ["stop", "nonstop"], "", "nonstop"),
    (["aa", "ab"], ["aab"], "a", "aab"),
    (["🙂", "é", "end"], ["é"], "🙂", "é"),
])
def test_stop_strings(pieces, stops, shown, met):
    """15: the cases, in the pieces given and character by character."""
    for cut in (pieces, list("".join(pieces))):
        matcher, text, found = StopMatcher(stops), "", None
        for piece in cut:
            new, found = matcher.push(piece)
            text += new
            if found:
                break
        assert (text + ("" if found else matcher.flush()), found) == (shown, met)


def test_only_a_proper_prefix_is_held_back():
    """15: as soon as the text cannot become a stop it is shown."""
    matcher = StopMatcher(["DEFGHIJ"])
    assert [matcher.push(piece)[0] for piece in ("Here ", "DEF", "G", "x", "D", "ED", "!")] == ["Here ", "", "", "DEFGx", "", "DE", "D!"]


def test_a_stop_may_be_kept():
    matcher = StopMatcher(["DEF"], include=True)
    assert [matcher.push(piece) for piece in ("abD", "EFG")] == [("ab", None), ("DEF", "DEF")]


def test_the_end_set(tmp_path):
    """16: generation_config's and the tokenizer's together; an end's text is not part of the answer."""
    tokenizer = model(tmp_path, generation_config={"eos_token_id": [65, 66]}, config={"eos_token_id": 66})
    assert tokenizer.eos_ids == {65, 66, 256}
    assert tokenizer.decode([*tokenizer.encode("hi"), 256]) == "hi"


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("template", ["<s>", "{{ bos_token }}", ""])
def test_bos(tmp_path, template, bos):
    """17: one BOS in chat where the template writes it, none where it does not; raw text gets what the tokenizer says."""
    tokenizer = model(tmp_path, template, bos)
    messages = [{"role": "user", "content": "hi"}]
    ids = tokenizer.apply_chat_template(messages)
    assert ids.count(257) == (1 if template else 0) and ids[1 if template else 0:] == tokenizer.encode("hi", False)
    assert tokenizer.encode("hi").count(257) == int(bos)
    assert tokenizer.encode(tokenizer.render_chat(messages), add_special_tokens=False) == ids, "offline and served alike"
