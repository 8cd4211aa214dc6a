"""Contracts 2 to 4, 7, 8 and 10 to 13 with the prefix cache, preemption and static batches."""

import functools
import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import HistoryDecoder, hashed, write_model

from tinyserve.engine.engine import Engine, EngineConfig
from tinyserve.kernels import select
from tinyserve.models.loading import load_model
from tinyserve.text.params import SamplingParams

POLICIES = [dict(zip(("prefix_cache", "preempt", "static"), each)) for each in itertools.product((False, True), repeat=3)]


def make(rule=hashed, blocks=40, block_size=4, budget=8, seqs=8, **policy):
    config = EngineConfig(128, blocks, block_size, seqs, budget, "float32", eager=True, **policy)
    return Engine(HistoryDecoder(rule), select("cpu"), config)


def check(engine):
    """7: free + held + cached = total, and reference counts are the tables'."""
    pool, counts = engine.pool, Counter(block for each in engine.scheduler.running for block in each.blocks)
    assert pool.free + len(counts) + pool.cached == pool.capacity and 0 not in counts
    assert all(pool.references(block) == count for block, count in counts.items())
    assert not any(each.blocks for each in engine.scheduler.waiting)


def drain(engine, limit=3000):
    tokens, reasons = {}, {}
    for _ in range(limit):
        if not engine.has_work:
            assert engine.pool.available == engine.pool.capacity
            return {name: (tokens[name], reasons[name]) for name in tokens}
        for progress in engine.step():
            key = progress.sequence.request.id
            tokens.setdefault(key, []).extend(token.token_id for token in progress.tokens)
            reasons[key] = progress.finish_reason
        check(engine)
    raise AssertionError("the engine did not finish")


def expected(prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(hashed(tokens).argmax()))
    return tokens[len(prompt):]


def greedy(count, **more):
    return SamplingParams(temperature=0, max_tokens=count, **more)


work = st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=24), st.integers(1, 12), st.integers(-2, 2)),
                min_size=1, max_size=8)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@settings(max_examples=15, deadline=None)
@given(work, st.integers(1, 40), st.integers(1, 9), st.integers(9, 30))
def test_every_policy_gives_the_answers_of_each_alone(policy, work, budget, seqs, blocks):
    """1, 2, 7, 10: prompts that begin alike, any budget, batch, pool and priorities."""
    engine = make(budget=budget, seqs=seqs, blocks=blocks + 1, **policy)
    for i, (prompt, count, priority) in enumerate(work):
        engine.add(str(i), prompt, greedy(count), priority=priority)
    answers = drain(engine)
    assert answers == {str(i): (expected(prompt, count), "length") for i, (prompt, count, _) in enumerate(work)}


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    folder = write_model(tmp_path_factory.mktemp("model"))
    return functools.lru_cache(lambda dtype: load_model(folder, select("cpu"), dtype).decoder)


def real(decoder, budget=64, **policy):
    return Engine(decoder, select("cpu"), EngineConfig(256, 64, 16, 8, budget, **policy))


def tokens_of(engine, prompt, params):
    engine.add("x", prompt, params)
    return [token for _ in iter(lambda: engine.has_work, False) for progress in engine.step() for token in progress.tokens]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("size", [35, 32])
@pytest.mark.parametrize("budget", [1, 7, 64])
def test_a_hit_changes_no_bit(decoder, dtype, size, budget):
    """2, 3: logprobs of every token, for two blocks and three tokens and for two whole blocks, sent three times."""
    prompt = np.random.default_rng(0).integers(0, 256, size).tolist()
    params = greedy(6, logprobs=5, ignore_eos=True)
    off, on = real(decoder(dtype), budget), real(decoder(dtype), budget, prefix_cache=True)
    reference = tokens_of(off, prompt, params)
    for round_ in range(3):
        assert tokens_of(on, prompt, params) == reference
        known = on.scheduler.index.match("float16/", prompt)[0]
        assert len(known) == (size - 1) // 16
        assert on.plan.rows[0].sequence.num_cached == (len(known) * 16 if round_ else 0)


def test_prompt_logprobs_are_complete_with_the_cache_on(decoder):
    """21."""
    engine = real(decoder("float32"), prefix_cache=True)
    notes = []
    for _ in range(2):
        engine.add("x", list(range(40)), greedy(2, prompt_logprobs=1))
        while engine.has_work:
            last = engine.step()
        notes.append(last[-1].sequence.prompt_logprobs)
    assert notes[0] == notes[1] and len(notes[0]) == 40


@pytest.mark.parametrize("dtype", ["float32", "int4"])
@pytest.mark.parametrize("cache", [False, True])
def test_a_preempted_request_returns(decoder, dtype, cache):
    """4: block 16, prompts of 34, 35 generated, two requests, 7 blocks against 20."""
    prompts = np.random.default_rng(1).integers(0, 256, (2, 34)).tolist()
    got, preempted = [], []
    for blocks in (7, 20):
        engine = Engine(decoder(dtype), select("cpu"), EngineConfig(256, blocks + 1, 16, 8, 64, prefix_cache=cache, preempt=True))
        answers = {}
        for name, prompt in zip("ab", prompts):
            engine.add(name, prompt, greedy(35, logprobs=1, ignore_eos=True))
        preempted.append([])
        while engine.has_work:
            for progress in engine.step():
                answers.setdefault(progress.sequence.request.id, []).extend(progress.tokens)
            preempted[-1] += [each.request.id for each in engine.plan.preempted]
            check(engine)
        assert engine.pool.available == engine.pool.capacity
        got.append(answers)
    assert got[0] == got[1] and [len(each) for each in got[0].values()] == [35, 35]
    assert set(preempted[0]) == {"b"} and preempted[1] == [], "the older one is never the victim"


def test_other_salts_and_other_tokens_share_nothing():
    """13."""
    engine, prompt = make(prefix_cache=True), list(range(12))
    hits = {}
    for name, tokens, salt in (("first", prompt, ""), ("again", prompt, ""), ("salted", prompt, "s"), ("other", [1, *prompt[1:]], "")):
        engine.add(name, tokens, greedy(2), salt=salt)
        engine.step()
        engine.step()
        hits[name] = engine.plan.rows[0].sequence.num_cached
        drain(engine)
    assert hits == {"first": 0, "again": 8, "salted": 0, "other": 0}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_never_published(bad):
    """12: the request ends with an error, a good one beside it does not, and the next meets nothing of the bad one."""
    ill = {"on": True}

    def rule(history):
        return np.full(32, bad, np.float32) if ill["on"] and history[0] == 7 else hashed(history)

    engine = make(rule, prefix_cache=True)
    engine.add("bad", [7] * 20, greedy(3))
    engine.add("good", [8] * 6, greedy(3))
    answers = drain(engine)
    assert answers["bad"] == ([], "error") and answers["good"] == (expected([8] * 6, 3), "length")
    assert engine.scheduler.index.match("float32/", [7] * 20)[0] == []
    ill["on"] = False
    engine.add("bad", [7] * 20, greedy(3))
    assert drain(engine)["bad"] == (expected([7] * 20, 3), "length")


def test_static_batches_do_not_mix():
    engine = make(budget=16, seqs=2, static=True)
    for i, count in enumerate((2, 5, 2)):
        engine.add(str(i), [i, 1], greedy(count))
    seen = []
    while engine.has_work:
        engine.step()
        seen.append("".join(row.sequence.request.id for row in engine.plan.rows))
    assert seen == ["01", "01", "1", "1", "1", "2", "2"]


def test_decodes_come_first_and_every_row_says_why():
    engine = make(budget=6)
    engine.add("long", [1] * 14, greedy(2))
    engine.step()
    engine.add("short", [2], greedy(9))
    plans = []
    for _ in range(3):
        engine.step()
        plans.append([(row.sequence.request.id, row.count, row.reason) for row in engine.plan.rows])
    assert plans == [[("long", 6, "chunk")], [("long", 2, "last chunk"), ("short", 1, "decode")],
                     [("long", 1, "decode"), ("short", 1, "decode")]]


def test_priority_goes_first_and_ages():
    """11: a flood of urgent requests passes an ordinary one for a while and not for ever."""
    engine = make(seqs=1)
    engine.add("runs", [1], greedy(3))
    engine.step()
    engine.add("plain", [2], greedy(1), priority=1)
    finished = []
    for i in range(150):
        engine.add(str(i), [3], greedy(1))
        finished += [progress.sequence.request.id for progress in engine.step() if progress.finish_reason]
    assert finished[:2] == ["runs", "0"] and 90 <= finished.index("plain") <= 101


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_aborts_leak_nothing_under_any_policy(policy):
    """8."""
    engine, draw = make(blocks=14, **policy), np.random.default_rng(0)
    for i in range(60):
        engine.add(str(i), draw.integers(0, 2, draw.integers(1, 20)).tolist(), greedy(6))
        for _ in range(draw.integers(0, 3)):
            engine.step()
            check(engine)
        engine.abort(str(int(draw.integers(0, i + 1))))
        check(engine)
    drain(engine)
    assert not engine.scheduler.running and not engine.scheduler.waiting and not engine._streams
