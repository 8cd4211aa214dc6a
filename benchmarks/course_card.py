"""The course model's card, written from what its training measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import course_stories

_CARD = """# course: a small float model

The course quantizes, prunes and distils this model, because its weights were never rounded to few bits before: the embedded
SmolLM2 is shipped in 4 bits. `LLM("course")` loads it without a network.

| | |
|---|---|
| layout | Llama: {layers} layers, hidden {hidden}, {heads} heads and {kv} key/value heads of 64, FFN {ffn}, tied embeddings |
| vocabulary, context | {vocabulary} byte-level BPE pieces, {context} tokens |
| parameters | {parameters:,}, stored as bfloat16 |
| trained on | {texts:,} texts, {tokens:,} tokens; {seen:,} tokens seen in {steps:,} steps |
| last training loss | {loss} nats a token |
| perplexity of `held_out.txt` | {perplexity} (bfloat16 weights, float32 arithmetic, each text alone after BOS) |
| SHA-256 of `model.safetensors` | `{sha}` |

**Data.** Small stories, dialogues and reports that SmolLM2-135M-Instruct (4-bit) wrote with this engine at temperature {temperature},
at most {longest} tokens each. Text number i answers a prompt made of seeded word lists and is sampled with seed i; prompts and
lists are in `benchmarks/course_stories.py`. Texts that are broken, go in circles or begin like an earlier one are dropped, and
every twentieth that is left is held out. Of the rest every third is trained on as an answer to its prompt. An example prompt:

> {example}

**Made by** `benchmarks/course_model.py`: AdamW, seeded, on two CPU cores. The same program trains it further.

**Can:** continue a simple English story with mostly whole words and short sentences, and show what a method does to a
float model's perplexity. **Cannot:** know anything, reason, follow instructions, write code or other languages. Its text is
a small model's imitation of another small model; it repeats whatever oddities that model wrote. Not for use outside lessons.

**Licence:** Apache-2.0. Its text derives from the output of SmolLM2-135M-Instruct by Hugging Face, which has the same licence.
"""


def card(facts: Mapping[str, Any], shape: Mapping[str, Any]) -> str:
    """Markdown from the facts that `export` measured and the model's shape."""
    return _CARD.format(
        layers=shape["num_hidden_layers"], hidden=shape["hidden_size"], heads=shape["num_attention_heads"],
        kv=shape["num_key_value_heads"], ffn=shape["intermediate_size"], vocabulary=shape["vocab_size"],
        context=shape["max_position_embeddings"], parameters=facts["parameters"], texts=facts["texts"], tokens=facts["tokens"],
        seen=facts["tokens seen"], steps=facts["steps"], loss=facts["last training loss"], perplexity=facts["perplexity"],
        sha=facts["sha256"], temperature=course_stories.TEMPERATURE, longest=course_stories.LONGEST, example=course_stories.prompt(0))
