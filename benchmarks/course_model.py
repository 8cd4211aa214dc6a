"""The course model, made from nothing: `.venv/bin/python benchmarks/course_model.py all`, or one stage of it.

  stories  the embedded model writes the text (course_stories.py)     --minutes: how long
  train    tokenizer and weights from the text                        --steps: of BATCH x CONTEXT tokens
  export   bfloat16 weights, tokenizer, held-out text and card into tinyserve/models/course; the SHA-256 belongs into catalog.py

Every stage goes on where it was stopped; what it keeps meanwhile lies in --work, outside git. Seeded: the same text, steps and
machine give the same weights. The learning rate is constant and falls to 0 over the last fifth of the steps (Hu and others 2024,
arXiv:2404.06395), so a run that was stopped may be given more steps.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import course_card
import course_stories
import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from tinyserve.models.catalog import sha256
from tinyserve.paths import cache_dir

TARGET = Path(__file__).parent.parent / "tinyserve" / "models" / "course"
SEED, VOCABULARY, CONTEXT, BATCH = 5, 4096, 512, 2
PEAK, WARM_UP, DECAY, CLIP = 2e-3, 30, 0.2, 1.0
SPECIAL = ("<s>", "</s>", "<|user|>", "<|assistant|>")
SHAPE = dict(vocab_size=VOCABULARY, hidden_size=384, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=6,
             num_key_value_heads=2, head_dim=64, max_position_embeddings=CONTEXT, tie_word_embeddings=True,
             bos_token_id=0, eos_token_id=1)
CHAT_TEMPLATE = ("{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}"
                 "{{ eos_token }}{% else %}<|user|>{{ message['content'] }}{% endif %}{% endfor %}"
                 "{% if add_generation_prompt %}<|assistant|>{% endif %}")


# --- text ---

def split(texts: list[dict[str, str]]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """(to train on, held out): every twentieth text is never trained on."""
    return [row for i, row in enumerate(texts) if i % 20 != 7], texts[7::20]


def train_tokenizer(texts: list[dict[str, str]]) -> Tokenizer:
    """Byte-level BPE of VOCABULARY pieces; an encoded text begins with BOS."""
    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer, fast.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast.train_from_iterator((row[key] for row in texts for key in ("text", "prompt")), trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    fast.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return fast


def stream(texts: list[dict[str, str]], fast: Tokenizer) -> np.ndarray:
    """All texts end to end as token ids: every third as an answer to its prompt, the others bare."""
    ids: list[int] = []
    for i, row in enumerate(texts):
        line = f"<s><|user|>{row['prompt']}<|assistant|>{row['text']}</s>" if i % 3 == 0 else f"<s>{row['text']}</s>"
        ids += fast.encode(line, add_special_tokens=False).ids
    return np.array(ids, np.int64)


def batch(ids: np.ndarray, step: int) -> torch.Tensor:
    """[BATCH, CONTEXT + 1]: windows of a pass over the whole stream, in an order of that pass's own seed."""
    windows = len(ids) // CONTEXT - 1  # one fewer than fit, which leaves room to shift them
    epoch, at = divmod(step * BATCH, windows - windows % BATCH)
    random = np.random.default_rng((SEED, epoch))
    starts = random.permutation(windows)[at:at + BATCH] * CONTEXT + random.integers(CONTEXT)
    return torch.from_numpy(np.stack([ids[start:start + CONTEXT + 1] for start in starts]))


# --- weights ---

def rate(step: int, steps: int) -> float:
    """The learning rate of a step."""
    return PEAK * min((step + 1) / WARM_UP, 1.0, (steps - step) / (DECAY * steps))


def prepare(weight_decay: float = 0.1) -> tuple[LlamaForCausalLM, torch.optim.AdamW]:
    """A fresh seeded model and its optimizer; only matrices decay."""
    torch.manual_seed(SEED)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE))
    groups = [{"params": [p for p in model.parameters() if (p.dim() > 1) == matrix], "weight_decay": weight_decay * matrix}
              for matrix in (True, False)]
    return model, torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.95))


def save(path: Path, model: LlamaForCausalLM, optimizer: torch.optim.AdamW, step: int) -> None:
    """Weights and both moments in one safetensors file, moved to its place whole."""
    tensors = {}
    for name, weight in model.named_parameters():
        tensors[name] = weight.data
        for moment in ("exp_avg", "exp_avg_sq"):
            tensors[f"{moment}:{name}"] = optimizer.state[weight][moment]
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, {"step": str(step)})
    partial.replace(path)


def restore(path: Path, model: LlamaForCausalLM, optimizer: torch.optim.AdamW) -> int:
    """The step to go on with: 0 where there is no checkpoint."""
    if not path.exists():
        return 0
    with safe_open(path, "pt") as file:
        step = int(file.metadata()["step"])
        for name, weight in model.named_parameters():
            weight.data.copy_(file.get_tensor(name))
            moments = {moment: file.get_tensor(f"{moment}:{name}") for moment in ("exp_avg", "exp_avg_sq")}
            optimizer.state[weight] = {"step": torch.tensor(float(step)), **moments}
    return step


def train(work: Path, steps: int) -> None:
    """Tokenizer (once), then steps up to `steps`; a checkpoint every two minutes, a line of the log every ten steps."""
    texts, _ = split(course_stories.read(work / "stories"))
    if not (work / "tokenizer.json").exists():
        train_tokenizer(texts).save(str(work / "tokenizer.json"))
    ids = stream(texts, Tokenizer.from_file(str(work / "tokenizer.json")))
    model, optimizer = prepare()
    first = restore(work / "checkpoint.safetensors", model, optimizer)
    print(f"{len(texts)} texts, {len(ids)} tokens, step {first} of {steps}", flush=True)
    saved, losses = time.monotonic(), []
    for step in range(first, steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        tokens = batch(ids, step)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % 10 == 9:
            line = {"step": step + 1, "loss": round(sum(losses[-10:]) / len(losses[-10:]), 4)}
            print(line, time.strftime("%H:%M:%S"), flush=True)
            with open(work / "losses.jsonl", "a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
        if step + 1 == steps or time.monotonic() - saved > 120:
            save(work / "checkpoint.safetensors", model, optimizer, step + 1)
            saved = time.monotonic()


# --- export ---

@torch.no_grad()
def perplexity(model: LlamaForCausalLM, fast: Tokenizer, texts: list[str]) -> float:
    """Of all tokens of the texts, each read alone after BOS."""
    total, count = 0.0, 0
    for text in texts:
        ids = torch.tensor([fast.encode(text).ids[:CONTEXT]])
        total += torch.nn.functional.cross_entropy(model(ids).logits[0, :-1].float(), ids[0, 1:], reduction="sum").item()
        count += ids.shape[1] - 1
    return math.exp(total / count)


def export(work: Path, target: Path) -> None:
    """The folder that is shipped, and its SHA-256."""
    texts = course_stories.read(work / "stories")
    trained, held = split(texts)
    model, optimizer = prepare()
    step = restore(work / "checkpoint.safetensors", model, optimizer)
    fast = Tokenizer.from_file(str(work / "tokenizer.json"))
    model.to(torch.bfloat16).save_pretrained(target)
    fast.save(str(target / "tokenizer.json"))
    (target / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "model_max_length": CONTEXT,
        "chat_template": CHAT_TEMPLATE}, indent=1) + "\n", encoding="utf-8")
    kept = [row["text"] for row in held]
    while sum(map(len, kept)) > 40_000:
        kept.pop()
    (target / "held_out.txt").write_text("\n\n".join(kept) + "\n", encoding="utf-8")
    facts = {
        "texts": len(trained), "held out": len(held), "tokens": len(stream(trained, fast)), "steps": step,
        "tokens seen": step * BATCH * CONTEXT, "parameters": sum(weight.numel() for weight in model.parameters()),
        "last training loss": [json.loads(line)["loss"] for line in (work / "losses.jsonl").read_text().splitlines()][-1],
        "perplexity": round(perplexity(model.float(), fast, kept), 3), "sha256": sha256(target / "model.safetensors")}
    (target / "facts.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    (target / "README.md").write_text(course_card.card(facts, SHAPE), encoding="utf-8")
    print(json.dumps(facts, indent=1))


def main() -> None:
    """One stage, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("stories", "train", "export", "all"))
    parser.add_argument("--work", type=Path, default=cache_dir("course"))
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    if asked.stage in ("stories", "all"):
        course_stories.write(asked.work / "stories", asked.minutes * 60)
    if asked.stage in ("train", "all"):
        train(asked.work, asked.steps)
    if asked.stage in ("export", "all"):
        export(asked.work, TARGET)


if __name__ == "__main__":
    main()
