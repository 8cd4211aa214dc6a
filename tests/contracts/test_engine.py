"""Engine contracts on a model whose answer depends on every token so far: limits, memory, aborts, ends, time.

The numbers are those of the list of engine contracts; exactness over a real decoder is in test_exactness.py."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import HistoryDecoder, hashed, peaked

from tinyserve.engine.engine import Engine, EngineConfig
from tinyserve.errors import InvalidRequest
from tinyserve.kernels import select
from tinyserve.text.params import SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=6)


def make_engine(rule=hashed, blocks=40, block_size=4, budget=8, seqs=8, context=64, end_ids=(), **more):
    decoder = HistoryDecoder(rule, end_ids=end_ids)
    config = EngineConfig(context, blocks, block_size, seqs, budget, "float32", eager=True)
    return Engine(decoder, select("cpu"), config, **more)


def check_conservation(engine):
    """7: free + held = total, no block held twice, nothing computed twice."""
    held = [block for sequence in engine.scheduler.running for block in sequence.blocks]
    assert engine.pool.free + len(held) == engine.pool.capacity
    assert len(set(held)) == len(held) and 0 not in held
    assert all(engine.pool.references(block) == 1 for block in held)
    assert not any(sequence.blocks for sequence in engine.scheduler.waiting)
    for sequence in engine.scheduler.running:
        assert sequence.num_computed <= sequence.length
        assert len(sequence.blocks) * engine.config.block_size >= sequence.num_computed


def drain(engine, limit=10_000):
    """Step to the end; {(id, index): (tokens, finish reason)}."""
    tokens, reasons = {}, {}
    for _ in range(limit):
        if not engine.has_work:
            assert engine.pool.free == engine.pool.capacity
            return {key: (tokens[key], reasons.get(key)) for key in tokens}
        for progress in engine.step():
            key = progress.sequence.request.id, progress.sequence.index
            tokens.setdefault(key, []).extend(token.token_id for token in progress.tokens)
            reasons[key] = progress.finish_reason
        check_conservation(engine)
    raise AssertionError("the engine did not finish")


def alone(prompt, params, seed=0, **more):
    engine = make_engine(**more)
    engine.add("x", prompt, params, seed=seed)
    return drain(engine)["x", 0]


def expected(prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(hashed(tokens).argmax()))
    return tokens[len(prompt):]


requests = st.lists(st.tuples(st.lists(st.integers(0, 31), min_size=1, max_size=20), st.integers(1, 12)), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None)
@given(requests, st.integers(1, 70), st.integers(1, 9), st.integers(9, 40), st.sampled_from([1, 4, 16]))
def test_any_workload_that_fits_one_at_a_time_gives_the_answers_of_each_alone(work, budget, seqs, blocks, block_size):
    """1, 2, 7, 10: whatever the budget, batch, pool or block size."""
    engine = make_engine(budget=budget, seqs=seqs, blocks=blocks * 4 // block_size + 1, block_size=block_size)
    for i, (prompt, count) in enumerate(work):
        engine.add(str(i), prompt, SamplingParams(temperature=0, max_tokens=count))
    answers = drain(engine, limit=2000)
    for i, (prompt, count) in enumerate(work):
        assert answers[str(i), 0] == (expected(prompt, count), "length")


def test_each_tokens_keys_are_written_once():
    """7: prompt and output, without the last token, which nothing reads."""
    engine = make_engine(budget=3)
    engine.add("x", list(range(11)), GREEDY)
    drain(engine)
    written = engine.runner.decoder.written
    assert len(written) == sum(written.values()) == 11 + 6 - 1


def test_draws_depend_on_the_requests_own_seed_and_position():
    """6: nothing else in the engine changes them."""
    params = SamplingParams(temperature=1.0, max_tokens=8)
    reference = alone([1, 2, 3], params, seed=11)
    for others in (0, 1, 5):
        engine = make_engine(budget=5)
        for i in range(others):
            engine.add(f"other {i}", [i, 4], SamplingParams(temperature=0.7, max_tokens=5 + i), seed=i)
        engine.add("x", [1, 2, 3], SamplingParams(temperature=1.0, max_tokens=8, seed=11), seed=99)
        assert drain(engine)["x", 0] == reference
    assert alone([1, 2, 3], params, seed=12) != reference


def test_samples_of_one_request_differ_and_repeat():
    def run():
        engine = make_engine()
        engine.add("x", [1, 2], SamplingParams(n=4, temperature=1.0, max_tokens=8, seed=5))
        return drain(engine)

    answers = run()
    assert answers == run()
    assert len({tuple(tokens) for tokens, _ in answers.values()}) > 1


@pytest.mark.parametrize("steps", range(7))
def test_abort_in_every_state(steps):
    """8: queued, mid-prefill, at the first token, mid-decode; twice; unknown."""
    engine = make_engine(budget=4)
    engine.add("kept", [9, 9, 1], GREEDY)
    engine.add("gone", list(range(10)), GREEDY)
    got = [progress for _ in range(steps) for progress in engine.step() if progress.sequence.request.id == "kept"]
    (ended,) = engine.abort("gone")
    assert ended.finish_reason == "abort" and not engine.is_live("gone")
    check_conservation(engine)
    assert engine.abort("gone") == engine.abort("never") == []
    tokens = [token.token_id for progress in got for token in progress.tokens]
    rest = drain(engine)
    assert tokens + (rest["kept", 0][0] if rest else []) == expected([9, 9, 1], 6)


def test_every_third_of_200_requests_aborted():
    engine = make_engine(blocks=30)
    order = np.random.default_rng(0)
    ended = 0
    for i in range(200):
        engine.add(str(i), order.integers(0, 32, order.integers(1, 20)).tolist(), SamplingParams(n=1 + i % 2, temperature=0, max_tokens=5))
        if i % 3 == 0:
            for _ in range(order.integers(0, 3)):
                ended += sum(progress.finish_reason is not None for progress in engine.step())
            ended += len(engine.abort(str(i - i % 9)))
        check_conservation(engine)
    assert ended + len(drain(engine)) >= 300
    assert not engine._streams and not engine.scheduler.running and not engine.scheduler.waiting


def test_what_never_fits_is_refused_and_harms_nobody():
    """9: pool of 4 blocks of 4."""
    engine = make_engine(blocks=5)
    with pytest.raises(InvalidRequest, match="cache blocks"):
        engine.add("big", list(range(20)), GREEDY)
    with pytest.raises(InvalidRequest, match="24 tokens.*max_tokens"):
        engine.add("grows", list(range(12)), SamplingParams(temperature=0, max_tokens=12))
    engine.add("small", [1, 2, 3], GREEDY)
    assert drain(engine) == {("small", 0): (expected([1, 2, 3], 6), "length")}


def test_a_request_waits_for_memory_and_no_newer_one_starves_it():
    """10, 11: the head of the queue gets the next free blocks."""
    engine = make_engine(blocks=7)
    engine.add("runs", [1] * 8, SamplingParams(temperature=0, max_tokens=4))
    engine.add("big", [2] * 16, SamplingParams(temperature=0, max_tokens=8))
    finished = []
    for i in itertools.count():
        if i < 20:
            engine.add(f"late {i}", [3], SamplingParams(temperature=0, max_tokens=3))
        finished += [progress.sequence.request.id for progress in engine.step() if progress.finish_reason]
        if not engine.has_work:
            break
    assert finished[:2] == ["runs", "big"] and len(finished) == 22


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_end_one_request(bad):
    """12: an error for that one, nothing for the others."""

    def rule(history):
        return np.full(32, bad, np.float32) if history[0] == 7 and len(history) > 4 else hashed(history)

    engine = make_engine(rule)
    engine.add("bad", [7, 1, 2], GREEDY)
    engine.add("good", [8, 1, 2], GREEDY)
    answers = drain(engine)
    assert answers["bad", 0][1] == "error" and len(answers["bad", 0][0]) == 2
    assert answers["good", 0] == (expected([8, 1, 2], 6), "length")


def counting(history):
    return peaked((history[-1] + 1) % 32)


@pytest.mark.parametrize("more, tokens, reason, why", [
    ({}, [4, 5, 6], "stop", None),
    ({"ignore_eos": True}, [4, 5, 6, 7, 8, 9], "length", None),
    ({"stop_token_ids": [5]}, [4, 5], "stop", 5),
    ({"ignore_eos": True, "stop_token_ids": [8]}, [4, 5, 6, 7, 8], "stop", 8),
    ({"min_tokens": 4}, [4, 5, 0, 1, 2, 3], "length", None),  # 6 comes too early; the lowest of the others is next
])
def test_ends(more, tokens, reason, why):
    """16: the model's end tokens and the request's own; the last one is counted once. The minimum bans them."""
    engine = make_engine(counting, end_ids=(6,))
    engine.add("x", [3], SamplingParams(temperature=0, max_tokens=6, **more))
    news = [progress for _ in range(6) for progress in engine.step()]
    got = [token.token_id for progress in news for token in progress.tokens]
    assert (got, news[-1].finish_reason, news[-1].sequence.stop_reason) == (tokens, reason, why)


def test_max_tokens():
    """18: none is refused, one is one step, the context is the limit."""
    with pytest.raises(InvalidRequest, match="max_tokens"):
        SamplingParams(max_tokens=0)
    engine = make_engine(context=16)
    for prompt, sentence in (([], "empty"), ([1] * 16, "16 tokens"), ([1] * 30, "30 tokens"), ([32], "outside 0..31"), ([-1], "outside")):
        with pytest.raises(InvalidRequest, match=sentence):
            engine.add("x", prompt, GREEDY)
    engine.add("one", [1, 2], SamplingParams(temperature=0, max_tokens=1))
    assert drain(engine) == {("one", 0): (expected([1, 2], 1), "length")}
    assert engine.runner.decoder.steps == 1
    for most in (100, None):
        engine.add("long", list(range(10)), SamplingParams(temperature=0, max_tokens=most))
        assert drain(engine)["long", 0] == (expected(list(range(10)), 6), "length")


def test_ids_in_use_and_ids_outside_the_vocabulary_are_refused():
    engine = make_engine()
    engine.add("x", [1], GREEDY)
    for request, params, sentence in (("x", {}, "in use"), ("y", {"stop_token_ids": [99]}, "stop_token_ids"),
                                      ("y", {"logit_bias": {99: 1.0}}, "logit_bias"), ("y", {"stop": "a"}, "tokenizer")):
        with pytest.raises(InvalidRequest, match=sentence):
            engine.add(request, [1], SamplingParams(**params))
    assert len(drain(engine)) == 1


def test_time_adds_up():
    """33: with a clock that ticks once a look, every part is known."""
    ticks = itertools.count()
    engine = make_engine(budget=4, clock=lambda: float(next(ticks)))
    news = []
    for name in "ab":
        engine.add(name, [1] * 6, SamplingParams(temperature=0, max_tokens=3))
    while engine.has_work:
        news += [progress.sequence for progress in engine.step() if progress.finish_reason]
    for sequence in news:
        parts = sequence.timeline.parts()
        assert all(value >= 0 for value in parts.values())
        assert parts.pop("e2e") == pytest.approx(sum(parts.values())) == sequence.timeline.finished - sequence.timeline.arrival
        assert parts["prefill"] > 0 and parts["decode"] > 0 and parts["detokenize"] > 0
    assert news[1].timeline.scheduled > news[0].timeline.scheduled
    with pytest.raises(ValueError, match="not finished"):
        engine.add("c", [1], GREEDY)
        engine._live["c"][0].timeline.parts()
