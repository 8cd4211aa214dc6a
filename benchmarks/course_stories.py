"""The course model's text: the embedded model writes small stories and dialogues, in batches, with this engine.

`write(folder, seconds)` appends whole shards to `folder`: one JSON line a text, `{"id", "prompt", "text"}`. Text number i is
a function of i alone (its words, its seed), so a run that was stopped goes on where it stopped, and any machine that computes
the same bits writes the same texts. `read(folder)` gives them back without the broken and the repeated ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import time
from pathlib import Path

SHARD = 128  # texts a file: what a stopped run may lose
LONGEST = 256  # tokens a text
TEMPERATURE = 0.8

NAMES = ("Anna Ben Clara David Ella Finn Grace Henry Ida Jack Kate Leo Mia Noah Olga Peter Rosa Sam Tina Tom Una Victor Wendy Zoe "
         "Amir Bea Carlos Dina Emil Fatima Hana Ivan Jonas Lily Max Nora Oscar Paula Ravi Sara").split()
PEOPLE = ("a boy;a girl;an old man;an old woman;a farmer;a baker;a teacher;a fisherman;a small dog;a clever cat;a young bear;"
          "a little bird;a sailor;a gardener;a grandmother;a brother and a sister;two friends").split(";")
PLACES = ("the garden;the forest;a small village;the market;a school;the kitchen;the beach;an old house;the river;a farm;the park;"
          "a mountain;the library;a train;an island;the snow;a bridge;the city;a boat;the attic").split(";")
THINGS = ("a red ball;a lost key;a blue hat;a broken cup;a letter;a lamp;an apple tree;a warm coat;a small boat;a drum;a map;"
          "a loaf of bread;a kite;a silver coin;a bicycle;a book;a wooden box;a clock;an umbrella;a bowl of soup;a flower;"
          "a pair of shoes;a bell;a toy car").split(";")
FEELINGS = "happy sad afraid proud angry curious tired lonely kind brave shy surprised thankful patient hungry jealous".split()
KINDS = (
    "Write a short story in simple words about {person} named {name} and {thing}. It happens in {place}. {name} feels {feeling}.",
    "Write a short story for small children. In {place}, {name} finds {thing}. At first {name} is {feeling}.",
    "Write a short dialogue between {name} and {other}. They are in {place} and talk about {thing}. One of them is {feeling}.",
    "Tell me in a few plain sentences what {name} did in {place} with {thing}, and why {name} was {feeling}.",
    "Write a short story that begins with: One day, {name} went to {place} with {thing}. It teaches how to be {feeling} or not.",
)


def prompt(number: int) -> str:
    """The request for text `number`: a kind of text with seeded words in it."""
    words = random.Random(number)
    name, other = words.sample(NAMES, 2)
    return words.choice(KINDS).format(name=name, other=other, person=words.choice(PEOPLE), place=words.choice(PLACES),
                                      thing=words.choice(THINGS), feeling=words.choice(FEELINGS))


def write(folder: Path, seconds: float, batch: int = 64) -> None:
    """Append shards for so many seconds; a shard is written beside its place and moved there whole."""
    from tinyserve import LLM, SamplingParams

    folder.mkdir(parents=True, exist_ok=True)
    llm, end = LLM("smollm2", max_num_seqs=batch, max_model_len=512, num_kv_blocks=batch * 32 + 1), time.monotonic() + seconds
    shard = len(list(folder.glob("*.jsonl")))
    while time.monotonic() < end:
        start, numbers = time.monotonic(), range(shard * SHARD, (shard + 1) * SHARD)
        prompts = [prompt(number) for number in numbers]
        outputs = llm.chat([[{"role": "user", "content": text}] for text in prompts],
                           [SamplingParams(temperature=TEMPERATURE, max_tokens=LONGEST, seed=number) for number in numbers])
        answers = [output.outputs[0] for output in outputs]
        lines = [json.dumps({"id": number, "prompt": asked, "text": answer.text, "end": answer.finish_reason})
                 for number, asked, answer in zip(numbers, prompts, answers)]
        partial = folder / "partial"
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.replace(partial, folder / f"{shard:05d}.jsonl")
        tokens = sum(len(answer.token_ids) for answer in answers)
        print(f"shard {shard}: {tokens} tokens, {tokens / (time.monotonic() - start):.0f} a second", flush=True)
        shard += 1


def _clean(text: str, end: str) -> str:
    """The text up to its last whole sentence, in plain characters."""
    for fancy, plain in (("’", "'"), ("‘", "'"), ("“", '"'), ("”", '"'), ("—", " - "), ("–", "-"), ("…", "...")):
        text = text.replace(fancy, plain)
    text = re.sub(r"\n{2,}", "\n", text).strip()
    if end == "length":
        text = text[:max(text.rfind(mark) for mark in (".", "!", "?", '."', '!"', '?"')) + 1]
    return text


def _broken(text: str) -> bool:
    """Too short, not plain English text, or a text that goes round in circles."""
    sentences = [each.strip() for each in re.split(r"(?<=[.!?])\s", text) if each.strip()]
    return len(text) < 120 or not text.isascii() or any(mark in text for mark in "#*[]{}<>|\\_") \
        or len(set(sentences)) < 0.8 * len(sentences)


def read(folder: Path) -> list[dict[str, str]]:
    """The texts of every whole shard in order, cleaned, without broken ones and without those that begin like an earlier one."""
    kept, seen = [], set()
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            text = _clean(row["text"], row["end"])
            key = hashlib.sha256(" ".join(text.lower().split()[:24]).encode()).digest()
            if not _broken(text) and key not in seen:
                seen.add(key)
                kept.append({"prompt": row["prompt"], "text": text})
    return kept
