"""The programs that make the course model: what text they keep, what they never train on, and that a stopped run goes on."""

import importlib
import json
import math
from pathlib import Path

import pytest
from safetensors.numpy import load_file

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
STORY = "Anna went to the market with a blue hat. The wind took it away over the river. Tom ran after it and gave it back. They laughed."


@pytest.fixture
def stories(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("course_stories")


@pytest.fixture
def training(stories, monkeypatch):
    """The program with a model of a few thousand weights."""
    module = importlib.import_module("course_model")
    tiny = dict(vocab_size=300, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                num_key_value_heads=1, head_dim=8, max_position_embeddings=16)
    for name, value in {"SHAPE": {**module.SHAPE, **tiny}, "VOCABULARY": 300, "CONTEXT": 16}.items():
        monkeypatch.setattr(module, name, value)
    return module


def shard(folder, texts, end="stop", name="00000"):
    folder.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"id": i, "prompt": f"Tell of {i}.", "text": text, "end": end}) for i, text in enumerate(texts)]
    (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")


def test_a_prompt_is_a_function_of_its_number(stories):
    assert stories.prompt(3) == stories.prompt(3) and len({stories.prompt(number) for number in range(500)}) == 500


def test_a_text_that_was_cut_ends_with_its_last_whole_sentence(stories, tmp_path):
    shard(tmp_path, [STORY + " Then the"], end="length")
    assert [row["text"] for row in stories.read(tmp_path)] == [STORY]


@pytest.mark.parametrize("text", ["Too short.", STORY + " 水", "# Title\n" + STORY, STORY + " They laughed." * 5],
                         ids=["short", "another script", "markup", "in circles"])
def test_broken_texts_are_dropped(stories, tmp_path, text):
    shard(tmp_path, [text, STORY])
    assert [row["text"] for row in stories.read(tmp_path)] == [STORY]


def test_fancy_quotes_become_plain_and_repeats_go_over_all_shards(stories, tmp_path):
    shard(tmp_path, [STORY + " “It’s mine,” she said."])
    shard(tmp_path, [STORY + " Another end."], name="00001")
    assert [row["text"] for row in stories.read(tmp_path)] == [STORY + ' "It\'s mine," she said.']


def test_one_text_in_twenty_is_held_out_and_none_is_lost(training):
    texts = [{"text": str(i)} for i in range(100)]
    trained, held = training.split(texts)
    assert [row["text"] for row in held] == ["7", "27", "47", "67", "87"]
    assert len(trained) == 95 and not {row["text"] for row in trained} & {row["text"] for row in held}


def test_a_pass_reads_every_window_once(training):
    ids = training.np.arange(16 * 11)  # 10 windows of 16 with room to shift, two a step
    starts = sorted(int(row[0]) for step in range(5) for row in training.batch(ids, step))
    assert len(starts) == 10 and {later - first for first, later in zip(starts, starts[1:])} == {16}
    assert training.batch(ids, 0).shape == (2, 17)
    assert training.batch(ids, 5).tolist() != training.batch(ids, 0).tolist()


def test_the_rate_rises_stays_and_falls_to_nothing(training):
    rates = [training.rate(step, 1000) / training.PEAK for step in (0, 29, 500, 800, 900, 999)]
    assert rates == pytest.approx([1 / 30, 1, 1, 1, 0.5, 0.005])


def words(seed):
    """A text of its own for each seed."""
    return f"{STORY.replace('Anna', 'Abcdefgh'[seed % 8] * (seed + 2))} It was day {seed}."


def test_a_run_that_was_stopped_ends_with_the_same_weights(training, monkeypatch, tmp_path):
    monkeypatch.setattr(training, "rate", lambda step, steps: 1e-3)
    for name, stops in {"whole": (6,), "stopped": (2, 6)}.items():
        shard(tmp_path / name / "stories", map(words, range(40)))
        for steps in stops:
            training.train(tmp_path / name, steps)
    whole, stopped = (load_file(tmp_path / name / "checkpoint.safetensors") for name in ("whole", "stopped"))
    assert whole.keys() == stopped.keys() and all((whole[key] == stopped[key]).all() for key in whole)


def test_what_is_exported_is_a_model_with_its_facts(training, tmp_path):
    from tinyserve import LLM

    shard(tmp_path / "stories", map(words, range(40)))
    training.train(tmp_path, 10)
    target = tmp_path / "target"
    target.mkdir()
    training.export(tmp_path, target)
    facts, held = json.loads((target / "facts.json").read_text()), (target / "held_out.txt").read_text().strip().split("\n\n")
    assert (facts["texts"], facts["held out"], facts["steps"], facts["tokens seen"]) == (38, 2, 10, 10 * 2 * 16)
    assert held == [words(7), words(27)] and str(facts["perplexity"]) in (target / "README.md").read_text()
    llm = LLM(target)
    ids = [llm.tokenizer.encode(text)[:16] for text in held]
    scores = [value for each in ids for value in llm.score(each).logprobs]
    assert math.exp(-sum(scores) / len(scores)) == pytest.approx(facts["perplexity"], rel=2e-3)
