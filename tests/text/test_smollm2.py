"""The embedded model's tokenizer: the ids of transformers' own conversion, and how quickly it loads."""

import subprocess
import sys

import numpy as np
import pytest
from tokenizers import pre_tokenizers

from tinyserve.models.files import resolve
from tinyserve.text.tokenizer import load_tokenizer

pytestmark = pytest.mark.full
CORPUS = [
    "", " ", "hi", "The capital of France is Paris.", " lead and trail  ", "a  b   c\t\t\n\n\n  d", "\r\n\r\n",
    "1234567 12.5 3,000", "0x1F 1e-9", "2024-12-01T10:00", "don't you'll WE'RE it's", "🙂 한 é ﷽", "漢字かな交じり文 9️⃣",
    "e\u0301 \u200b\ufeff\xa0x", "\x00\x01 abc", "x" * 300,
    "def f(x):\n    return x**2  # ok\n\n\nclass A:\n\tpass", "<|im_start|>user\nhi<|im_end|>\n",
    "<|endoftext|><|im_start|><|im_start|>", "<repo_name>x<file_sep>y<jupyter_start>", "<|im_start",
    "https://example.org/a?b=c&d=%20", "$$\\int_0^1 x^2 dx$$", "ALLCAPS camelCase snake_case",
]
TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}, {"role": "user", "content": "bye"}]


@pytest.fixture(scope="module")
def ours():
    return load_tokenizer(resolve("smollm2"))


@pytest.fixture(scope="module")
def theirs():
    from transformers import AutoTokenizer

    path = resolve("smollm2").path
    return AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)


def test_ids_are_those_of_transformers(ours, theirs):
    for text in CORPUS:
        for add in (True, False):
            assert ours.encode(text, add) == theirs.encode(text, add_special_tokens=add), text
        ids = ours.encode(text)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids, skip_special_tokens=False) == text


def test_ids_are_those_of_transformers_for_random_text_cut_as_the_file_says(ours, theirs):
    """transformers drops the file's pre-tokenizer "smollm", which cuts every digit of any script off before the rest is cut; without
    it a run of spaces before a digit comes out otherwise than the model was trained (and than llama.cpp gives it)."""
    spaces = "a  2 ½ Ⅷ ٣٤"
    assert ours.encode(spaces) != theirs.encode(spaces)
    backend, before = theirs.backend_tokenizer, theirs.backend_tokenizer.pre_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    draw = np.random.default_rng(0)
    try:
        for _ in range(1000):
            kinds = draw.choice([*map(chr, range(32, 127)), *" \n\t" * 10, *"0123456789" * 2, "\u0300", "½"], draw.integers(1, 60))
            others = [chr(x) for x in (*draw.integers(0xA0, 0xD7FF, 3), *draw.integers(0x1F300, 0x1FAFF, 2))]
            text = "".join(draw.permutation([*kinds, *others]))
            assert ours.encode(text) == theirs.encode(text), text
            assert ours.decode(ours.encode(text)) == text
    finally:
        backend.pre_tokenizer = before


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("messages", [TALK, TALK[:1], [{"role": "system", "content": "Be brief."}, *TALK]])
def test_the_chat_template_is_rendered_and_tokenized_alike(ours, theirs, messages, add_generation_prompt):
    options = {"add_generation_prompt": add_generation_prompt}
    assert ours.render_chat(messages, **options) == theirs.apply_chat_template(messages, tokenize=False, **options)
    assert ours.apply_chat_template(messages, **options) == theirs.apply_chat_template(messages, **options)["input_ids"]


def test_special_tokens(ours):
    assert ours.eos_ids == {0, 2} and ours.bos_id == 1 and ours.vocab_size == 49152
    assert ours.encode("hi") == ours.encode("hi", add_special_tokens=False), "the file asks for no BOS"


def test_it_loads_without_heavy_libraries():
    code = ("import sys; from tinyserve.models.files import resolve; from tinyserve.text.tokenizer import load_tokenizer; "
            "load_tokenizer(resolve('smollm2')); print([m for m in ('torch', 'numba', 'transformers', 'jinja2') if m in sys.modules])")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
