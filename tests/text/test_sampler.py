"""6, 19, 20, 21: penalties, the order of the filters, logprobs, and draws that depend on a seed and a position alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tinyserve import SamplingParams
from tinyserve.kernels import select
from tinyserve.text.sampler import Sampler, SamplingState, apply_bans, apply_penalties

OPS = select("cpu")
SAMPLER = Sampler(OPS)


def state(prompt=(), output=(), seed=0, index=0, ends=(), bad=(), **params):
    return SamplingState(SamplingParams(**params), seed, list(prompt), list(output), index, frozenset(ends), tuple(bad))


def sample(logits, *states):
    return SAMPLER.sample(OPS.array(np.array(logits, np.float32)), states)


def token(logits, one):
    return sample([logits], one)[0].token_id


def drawn(logits, count=400, **params):
    """The set of tokens that `count` seeds draw."""
    states = [state(seed=seed, **params) for seed in range(count)]
    return {each.token_id for each in sample([logits] * count, *states)}


def probabilities(*p):
    with np.errstate(divide="ignore"):
        return np.log(np.array(p, np.float32))


# --- 19: the order of the filters ---

def test_temperature_comes_before_top_p():
    assert drawn([3, 2, 1], temperature=0.5, top_p=0.8) == {0}  # .867 .117 .016
    assert drawn([3, 2, 1], temperature=1.0, top_p=0.8) == {0, 1}  # .665 .245 .090


def test_top_p_is_of_what_top_k_kept():
    assert drawn(probabilities(0.4, 0.3, 0.2, 0.1), top_k=2, top_p=0.5) == {0}
    assert drawn(probabilities(0.4, 0.3, 0.2, 0.1), top_p=0.5) == {0, 1}


def test_min_p_comes_last():
    assert drawn(probabilities(0.5, 0.3, 0.15, 0.05), min_p=0.5) == {0, 1}
    assert drawn(probabilities(0.5, 0.3, 0.15, 0.05), min_p=0.25, top_p=0.75) == {0, 1}


def test_temperature_0_is_the_most_likely_token_the_lowest_id_on_ties():
    assert token([1, 3, 3, 2], state(temperature=0)) == 1
    assert token([1, 3, 3, 2], state(temperature=0, top_k=5, top_p=0.1, min_p=0.9)) == 1


def test_penalties_come_before_temperature():
    """2 halved is 1, below 1.5, at any temperature; the logprob is still of the raw logits."""
    (chosen,) = sample([[2, 1.5, 0]], state(prompt=[0], temperature=0, repetition_penalty=2.0, logprobs=0))
    raw = np.array([2, 1.5, 0])
    assert chosen.token_id == 1 and chosen.logprob == pytest.approx(1.5 - np.log(np.exp(raw).sum()), abs=1e-6)


# --- 20: penalties ---

def penalized(logits, one):
    row = np.array(logits, np.float32)
    apply_penalties(row, one)
    return row.tolist()


def test_penalties_by_hand():
    logits = [4, -4, 3, 2, 1]
    assert penalized(logits, state([0, 1], [2], repetition_penalty=2.0)) == [2, -8, 1.5, 2, 1]
    assert penalized(logits, state([0, 1], [2, 3, 3], presence_penalty=0.5)) == [4, -4, 2.5, 1.5, 1]
    assert penalized(logits, state([0, 1], [2, 3, 3], frequency_penalty=0.5)) == [4, -4, 2.5, 1, 1]
    assert penalized(logits, state([0], [0, 2, 2], presence_penalty=1.0, frequency_penalty=-0.5, repetition_penalty=2.0)) == [
        1.5, -4, 1.5, 2, 1]
    assert penalized(logits, state([0, 1], [], presence_penalty=2.0, frequency_penalty=2.0)) == logits


@given(arrays(np.float32, 12, elements=st.floats(-8, 8, width=16)), st.lists(st.integers(0, 11), max_size=8),
       st.lists(st.integers(0, 11), max_size=8), st.floats(0.1, 3), st.floats(-2, 2), st.floats(-2, 2))
def test_penalties_as_they_are_written_down(logits, prompt, output, repetition, presence, frequency):
    expected = []
    for i, value in enumerate(logits.tolist()):
        if i in prompt or i in output:
            value = value / repetition if value > 0 else value * repetition
        expected.append(value - (presence * (i in output) + frequency * output.count(i)))
    one = state(prompt, output, repetition_penalty=repetition, presence_penalty=presence, frequency_penalty=frequency)
    assert np.allclose(penalized(logits, one), expected, rtol=1e-5, atol=1e-5)


# --- biases and bans ---

def test_logit_bias():
    assert token([1, 2, 3], state(temperature=0, logit_bias={0: 5.0, 2: -100})) == 0
    assert drawn([0, 0, 0], logit_bias={0: -100, 1: 50}) == {1}


def test_ends_are_banned_until_min_tokens_are_there():
    for count, expected in ((0, 1), (2, 1), (3, 4), (4, 4)):
        assert token([0, 5, 0, 0, 9], state(output=[1] * count, ends=[4, 3], temperature=0, min_tokens=3)) == expected


def test_a_bad_word_of_one_token_and_of_several():
    assert token([1, 9, 2], state(temperature=0, bad=[(1,)])) == 2
    row = np.zeros(8, np.float32)
    apply_bans(row, state(output=[1, 7], bad=[(7, 2), (1, 7, 3), (7, 7, 4)]))
    assert np.flatnonzero(np.isneginf(row)).tolist() == [2, 3]


def test_a_bad_row_is_marked_and_harms_no_other():
    nan, nothing = [np.nan, 1, 2], [-np.inf] * 3
    for params in ({}, {"logprobs": 1}, {"repetition_penalty": 2.0}, {"temperature": 0}):
        chosen = sample([nan, [0, 0, 50], nothing], *[state(prompt=[0], **params)] * 3)
        assert [each.token_id for each in chosen] == [-1, 2, -1]


# --- 21: logprobs ---

@given(arrays(np.float32, 9, elements=st.floats(-20, 20, width=16)), st.integers(0, 12), st.integers(0, 2**32))
def test_logprobs_are_of_the_raw_distribution_whatever_is_asked(logits, count, seed):
    asked = {"temperature": 0.7, "top_k": 4, "repetition_penalty": 1.3, "logit_bias": {2: 3.0}, "frequency_penalty": 0.4}
    (chosen,) = sample([logits], state([1], [2], seed=seed, logprobs=count, **asked))
    reference = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
    assert chosen.logprob == pytest.approx(reference[chosen.token_id], abs=1e-5)
    ids = [i for i, _, _ in chosen.alternatives]
    best = sorted(range(9), key=lambda i: (-logits[i], i))
    assert ids[:min(count, 9)] == best[:count] and set(ids[count:]) <= {chosen.token_id} and chosen.token_id in ids
    for i, logprob, rank in chosen.alternatives:
        assert logprob == pytest.approx(reference[i], abs=1e-5) and rank == best.index(i) + 1
    (without,) = sample([logits], state([1], [2], seed=seed, **asked))
    assert without.token_id == chosen.token_id and without.logprob is None and without.alternatives == ()


# --- 6: seeds ---

def test_a_draw_depends_on_seed_sample_and_position_alone():
    logits = np.random.default_rng(0).standard_normal((1, 50)).astype(np.float32)

    def draw(seed, position, index=0, others=0):
        states = [*(state(seed=99 + i) for i in range(others)), state(seed=seed, index=index, output=[0] * position)]
        return sample(np.repeat(logits, others + 1, 0), *states)[-1].token_id

    for others in (1, 5, 30):
        assert [draw(s, p, others=others) for s in range(5) for p in range(5)] == [draw(s, p) for s in range(5) for p in range(5)]
    assert len({draw(s, 0) for s in range(40)}) > 5 and len({draw(0, p) for p in range(40)}) > 5
    assert len({draw(0, 0, i) for i in range(40)}) > 5


def test_uniforms_are_uniform_and_below_one():
    values = np.array([state(seed=seed, output=[0] * position).uniform() for seed in range(40) for position in range(50)])
    assert values.min() >= 0 and values.max() < 1
    assert np.abs(np.histogram(values, 10, (0, 1))[0] / len(values) - 0.1).max() < 0.03
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.06


def test_draws_follow_the_distribution():
    p = np.array([0.5, 0.25, 0.15, 0.1])
    ids = [each.token_id for each in sample([probabilities(*p)] * 4000, *(state(seed=seed) for seed in range(4000)))]
    assert np.abs(np.bincount(ids, minlength=4) / 4000 - p).max() < 0.03


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(-1, 5), st.floats(0.1, 1), st.floats(0, 1)), min_size=1, max_size=6))
def test_rows_of_different_parameters_do_not_touch_each_other(settings):
    logits = np.random.default_rng(1).standard_normal((len(settings), 30)).astype(np.float32)
    states = [state(seed=i, temperature=t, top_k=k, top_p=p, min_p=m) for i, (t, k, p, m) in enumerate(settings)]
    together = [each.token_id for each in sample(logits, *states)]
    assert together == [token(row, one) for row, one in zip(logits, states)]
