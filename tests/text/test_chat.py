"""Chat templates: as transformers renders them, in a sandbox, with refusals that a reader understands."""

import pytest
from tiny_model import byte_tokenizer

from tinyserve.errors import InvalidRequest, UnsupportedModel
from tinyserve.text.tokenizer import Tokenizer

ALTERNATING = """{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/...') }}{% endif %}
[{{ m.role }}] {{ m['content'] | trim }}{{ eos_token }}
{% endfor %}
{%- if add_generation_prompt %}[assistant]{% endif %}"""
FANCY = """{%- for m in messages if m.role != 'system' -%}
    {%- if loop.index0 == 9 %}{% break %}{% endif -%}
    {% generation %}{{ m | tojson }}{% endgeneration %}
    {{- '' if tools is none and not documents else 'tools' }}
    {%- set ns = namespace(x=m.content.split('x')) %}{{ ns.x[-1] }}
{%- endfor %} {{ messages[0].missing is defined }}"""
TALK = [{"role": "user", "content": " hé<llo "}, {"role": "assistant", "content": "x & y"}, {"role": "user", "content": "bye"}]


def tokenizer(template):
    fast = byte_tokenizer()
    fast.add_special_tokens(["<s>"])
    return Tokenizer(fast, bos_id=257, chat_template=template, special_names={"bos_token": "<s>", "eos_token": "<|end|>"})


def test_a_chat_is_rendered():
    text = tokenizer(ALTERNATING).render_chat(TALK)
    assert text == "<s>[user] hé<llo<|end|>\n[assistant] x & y<|end|>\n[user] bye<|end|>\n[assistant]"
    assert tokenizer(ALTERNATING).render_chat(TALK, add_generation_prompt=False) == text.removesuffix("[assistant]")


@pytest.mark.full
@pytest.mark.parametrize("template", [ALTERNATING, FANCY])
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_transformers_renders_the_same(template, add_generation_prompt):
    from transformers import PreTrainedTokenizerFast

    ours = tokenizer(template)
    theirs = PreTrainedTokenizerFast(tokenizer_object=ours.fast, bos_token="<s>", eos_token="<|end|>", chat_template=template)
    assert ours.render_chat(TALK, add_generation_prompt) == theirs.apply_chat_template(
        TALK, add_generation_prompt=add_generation_prompt, tokenize=False)
    assert ours.apply_chat_template(TALK, add_generation_prompt) == theirs.apply_chat_template(
        TALK, add_generation_prompt=add_generation_prompt)["input_ids"]


@pytest.mark.parametrize(("messages", "why"), [
    ([], "empty"), ("hello", "list of messages"), ({"role": "user", "content": "x"}, "list of messages"), (None, "list of messages"),
    (["hello"], "'role' and a 'content'"), ([{"role": "user"}], "'content'"), ([{"content": "x"}], "'role'"),
    ([{"role": "user", "content": None}], "both strings"), ([{"role": 1, "content": "x"}], "both strings"),
    (TALK[1:], "roles must alternate"), ([*TALK, TALK[0]], "roles must alternate"),
])
def test_messages_that_cannot_be_rendered(messages, why):
    with pytest.raises(InvalidRequest, match=why) as refusal:
        tokenizer(ALTERNATING).render_chat(messages)
    assert str(refusal.value).endswith(".") and not str(refusal.value).endswith("..")


@pytest.mark.parametrize("template", [
    "{{ messages[0]['content'] + 1 }}", "{{ messages[5]['content'] }}", "{{ 1 / 0 }}", "{{ messages[0].content | nofilter(1) }}",
    "{% for i in range(10**9) %}{% endfor %}", "{{ missing.attribute }}"])
def test_a_template_that_fails_is_an_error_of_ours(template):
    with pytest.raises((InvalidRequest, UnsupportedModel)):
        tokenizer(template).render_chat(TALK)


@pytest.mark.parametrize("template", [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ messages.append(1) }}", "{{ messages[0].update(role='x') }}",
    "{{ raise_exception.__globals__['json'] }}", "{% set x = namespace() %}{{ x.__init__.__globals__['os'] }}"])
def test_a_template_cannot_reach_out_of_its_sandbox(template):
    with pytest.raises(InvalidRequest):
        tokenizer(template).render_chat(TALK)


def test_a_template_that_cannot_be_read_is_the_models_fault():
    with pytest.raises(UnsupportedModel, match="chat template"):
        tokenizer("{% if %}").render_chat(TALK)


def test_a_model_without_a_template_says_so():
    with pytest.raises(InvalidRequest, match="no chat template"):
        tokenizer(None).render_chat(TALK)


def test_the_callers_messages_are_left_alone():
    mine = [dict(message) for message in TALK]
    tokenizer(ALTERNATING).render_chat(mine)
    assert mine == TALK
