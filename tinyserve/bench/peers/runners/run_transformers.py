"""transformers in bfloat16 on the dequantized weights, one token a forward pass."""

import sys

import torch
from talk import serve
from transformers import AutoModelForCausalLM

torch.set_num_threads(int(sys.argv[2]))
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16).eval()


@torch.no_grad()
def generate(ids, new):
    cache, tokens = None, torch.tensor([ids])
    for _ in range(new):
        output = model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, tokens = output.past_key_values, output.logits[:, -1].argmax(-1, keepdim=True)
        yield int(tokens)


serve(generate)
