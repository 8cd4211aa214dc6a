"""The embedded model against transformers on the same dequantized weights: greedy text, perplexity, and where INT8 parts company."""

import json
import math
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf_models import unpermute

from tinyserve import LLM, SamplingParams
from tinyserve.models.catalog import fetch

pytestmark = pytest.mark.full
DATA = Path(__file__).parent.parent / "data"
GREEDY = SamplingParams(temperature=0, max_tokens=32)
QUESTIONS = [
    "What is the capital of France?", "Why is the sky blue?", "Write a short poem about the sea.", "How do I boil an egg?",
    "What is 12 plus 30?", "Explain gravity to a child.", "Name three animals that can fly.", "Translate 'good morning' into Spanish.",
    "What does a compiler do?", "Give me a tip for sleeping better.",
]
BEGINNINGS = [
    "The capital of France is", "Once upon a time there was a fox who", "def fibonacci(n):\n", "Water boils at a temperature of",
    "The three primary colours are", "Dear Sir or Madam,\n\n", "In 1969, two astronauts", "A transformer is a neural network that",
    "1, 2, 3, 4, 5,", "Bread is made from flour,",
]


@pytest.fixture(scope="module")
def packed():
    return LLM("smollm2", max_model_len=2048)


@pytest.fixture(scope="module")
def exact():
    return LLM("smollm2", dtype="float32", max_model_len=2048, kv_cache_dtype="float32")


@pytest.fixture(scope="module")
def theirs():
    """A transformers model whose weights are the file's, dequantized by the gguf package."""
    reader = gguf.GGUFReader(fetch("smollm2"))
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, vocab_size=49152,
        rms_norm_eps=1e-5, max_position_embeddings=8192, rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True)).eval()
    parts = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
             "ffn_norm": "post_attention_layernorm", "token_embd": "embed_tokens", "output_norm": "norm"}
    with torch.no_grad():
        for tensor in reader.tensors:
            *layer, part, _ = tensor.name.split(".")
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            values = unpermute(values, {"attn_q": 9, "attn_k": 3}[part]) if part in ("attn_q", "attn_k") else values
            name = f"model.{'layers.' + layer[1] + '.' if layer else ''}{parts[part]}.weight"
            model.get_parameter(name).copy_(torch.from_numpy(np.array(values)))
    return model


def prompts(llm):
    chats = [llm.tokenizer.apply_chat_template([{"role": "user", "content": question}]) for question in QUESTIONS]
    return chats + [llm.tokenizer.encode(beginning) for beginning in BEGINNINGS]


def partings(model, outputs):
    """For each answer: (its length, the first step where the model's greedy choice is another token, by how much that token's
    logit is higher); the step is the length where there is none. One forward pass over prompt and answer checks every step."""
    found = []
    for output in outputs:
        answer = output.outputs[0].token_ids
        with torch.no_grad():
            logits = model(torch.tensor([output.prompt_token_ids + answer])).logits[0, len(output.prompt_token_ids) - 1:-1].numpy()
        step = next((i for i, token in enumerate(answer) if logits[i].argmax() != token), len(answer))
        found.append((len(answer), step, float(logits[step].max() - logits[step, answer[step]]) if step < len(answer) else 0.0))
    return found


def their_perplexity(model, ids):
    with torch.no_grad():
        return math.exp(model(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item())


def test_in_float32_the_greedy_text_of_twenty_prompts_is_theirs(exact, theirs):
    found = partings(theirs, exact.generate(prompts(exact), GREEDY))
    assert len(found) == 20 and all(step == length for length, step, _ in found), found
    (answer,) = exact.chat([{"role": "user", "content": QUESTIONS[0]}], GREEDY)
    assert answer.outputs[0].text == "The capital of France is Paris."


def test_packed_the_greedy_text_parts_only_where_two_tokens_are_close(packed, theirs, record_property):
    """INT8 activations move a logit by about 0.2 (root mean square): no answer may part where the choice was clearer than half a logit."""
    found = partings(theirs, packed.generate(prompts(packed), GREEDY))
    lines = [f"{text!r}: " + ("equal" if step == length else f"parts at token {step} of {length}, {gap:.2f} lower")
             for text, (length, step, gap) in zip(QUESTIONS + BEGINNINGS, found)]
    record_property("partings", lines)
    print("\n".join(lines))
    assert all(gap < 0.5 for _, _, gap in found), lines


def test_perplexity(packed, exact, theirs, record_property):
    """Float32 is theirs; INT8 activations cost at most half a percent."""
    text = (DATA / "lighthouse.txt").read_text(encoding="utf-8")
    ids = packed.tokenizer.encode(text)
    reference, ours, rounded = their_perplexity(theirs, ids), exact.score(text).perplexity, packed.score(text).perplexity
    record_property("perplexity", {"transformers": reference, "float32": ours, "packed": rounded})
    print(f"transformers {reference:.4f}, float32 {ours:.4f}, packed {rounded:.4f} ({100 * (rounded / reference - 1):+.2f} %)")
    assert len(ids) >= 1000 and abs(ours / reference - 1) < 1e-4
    assert rounded / reference - 1 <= 0.005


def test_golden_text(packed):
    """The answers of the packed model, token for token: the same on every processor, so a change here is a change of arithmetic.
    Written by `python tests/models/test_embedded_model.py`."""
    assert golden(packed) == json.loads((DATA / "smollm2_golden.json").read_text(encoding="utf-8"))


def golden(llm):
    outputs = llm.generate(prompts(llm), GREEDY)
    return [{"prompt": text, "text": output.outputs[0].text, "token_ids": list(output.outputs[0].token_ids)}
            for text, output in zip(QUESTIONS + BEGINNINGS, outputs)]


if __name__ == "__main__":
    made = golden(LLM("smollm2", max_model_len=2048))
    (DATA / "smollm2_golden.json").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
