"""E0 on the CPU: a request's logits are the same bits whatever batch, chunk or block size it is computed in, for every format."""

import functools

import numpy as np
import pytest
from tiny_model import write_model

from tinyserve.engine.engine import Engine, EngineConfig
from tinyserve.kernels import select
from tinyserve.models.loading import load_model
from tinyserve.text.params import SamplingParams

FORMATS = ("float32", "bfloat16", "int8", "int4")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    folder = write_model(tmp_path_factory.mktemp("model"))
    return functools.lru_cache(lambda dtype: load_model(folder, select("cpu"), dtype).decoder)


def answers(decoder, requests, *, budget=512, seqs=64, block_size=16, kv="float16", eager=False):
    """{name: (token, logprob, alternatives) of every token} of requests {name: (prompt, params)}, added in that order."""
    blocks = 64 * 256 // block_size
    engine = Engine(decoder, select("cpu"), EngineConfig(256, blocks, block_size, seqs, budget, kv, eager))
    got = {}
    for name, (prompt, params) in requests.items():
        engine.add(name, prompt, params)
    while engine.has_work:
        for progress in engine.step():
            got.setdefault(progress.sequence.request.id, []).extend(progress.tokens)
    return got


def prompts(count, seed=0):
    draw = np.random.default_rng(seed)
    return [draw.integers(0, 256, draw.integers(1, 40)).tolist() for _ in range(count)]


def params(i, temperature):
    return SamplingParams(temperature=temperature, seed=i, max_tokens=8, logprobs=3, ignore_eos=True)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("temperature", [0, 0.6])
def test_batch(decoder, dtype, temperature):
    """1: 32 prompts alone, together, shuffled, in small batches."""
    requests = {str(i): (prompt, params(i, temperature)) for i, prompt in enumerate(prompts(32))}
    alone = {}
    for name, request in requests.items():
        alone |= answers(decoder(dtype), {name: request})
    assert answers(decoder(dtype), requests) == alone
    for seed in range(2):
        order = np.random.default_rng(seed).permutation(list(requests)).tolist()
        assert answers(decoder(dtype), {name: requests[name] for name in order}, budget=64, seqs=5 + 20 * seed) == alone


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunks(decoder, dtype, chunk):
    """2: two blocks and three tokens, and a long prompt, cut as the budget says."""
    requests = {str(size): (prompts(1, size)[0] * 40, params(0, 0)) for size in (0, 1)}
    requests = {name: (prompt[:size], one) for (name, (prompt, one)), size in zip(requests.items(), (35, 200))}
    for name, request in requests.items():
        whole = answers(decoder(dtype), {name: request})
        assert answers(decoder(dtype), {name: request}, budget=chunk) == whole
        assert answers(decoder(dtype), {name: request}, eager=True) == whole
    assert answers(decoder(dtype), requests, budget=chunk)["0"] == answers(decoder(dtype), {"0": requests["0"]})["0"]


@pytest.mark.parametrize("block_size, kv", [(size, kv) for kv in ("float16", "float32") for size in (1, 4, 64)] + [(64, "int8")])
def test_block_size(decoder, block_size, kv):
    request = {"x": (prompts(1)[0] * 3, params(0, 0.6))}
    assert answers(decoder("int4"), request, block_size=block_size, kv=kv) == answers(decoder("int4"), request, kv=kv)


@pytest.mark.parametrize("budget", [5, 64, 512])
def test_prompt_logprobs_do_not_depend_on_chunks_or_on_the_answer(decoder, budget):
    """21: the first entry is null, the rest are the logprobs that the answer's tokens would have had."""
    engine = Engine(decoder("float32"), select("cpu"), EngineConfig(256, 64, 16, 8, budget))
    first = engine_run(engine, [7, 8, 9], SamplingParams(temperature=0, max_tokens=20, logprobs=2, ignore_eos=True))
    tokens = [token.token_id for progress in first for token in progress.tokens]
    again = engine_run(engine, [7, 8, 9, *tokens], SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=2))
    notes = again[0].sequence.prompt_logprobs
    assert len(notes) == 23 and notes[0] is None
    assert notes[3:] == [token for progress in first for token in progress.tokens]


def engine_run(engine, prompt, params):
    engine.add("x", prompt, params)
    news = []
    while engine.has_work:
        news += engine.step()
    return news
