"""The sampler: penalties and bans against their definitions, random numbers, and what the fast path costs."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling_cases import KERNELS, sample, state

from tinyserve.kernels import select
from tinyserve.text.sampler import Sampler, apply_bans, apply_penalties, top_logprobs

IDS = st.lists(st.integers(0, 11), max_size=20)
LOGITS = st.lists(st.floats(-30, 30, width=32), min_size=12, max_size=12)


class CountingOps:
    """A kernel set that counts the calls of its ops."""

    def __init__(self):
        self.ops, self.calls = select("cpu"), []

    def __getattr__(self, name):
        self.calls.append(name)
        return getattr(self.ops, name)


def test_greedy_rows_without_extras_cost_one_op():
    ops = CountingOps()
    tokens = Sampler(ops).sample(np.eye(3, 8, dtype=np.float32), [state(temperature=0) for _ in range(3)])
    assert [token.token_id for token in tokens] == [0, 1, 2] and all(token.logprob is None for token in tokens)
    assert ops.calls.count("sample") == 1 and set(ops.calls) == {"sample", "array", "numpy"}


@given(LOGITS, IDS, IDS, st.sampled_from([1, 0.5, 1.3]), st.sampled_from([0, -2, 0.4]), st.sampled_from([0, 2, -0.3]))
def test_penalties_are_their_definition(logits, prompt, output, repetition, presence, frequency):
    row = np.array(logits, np.float32)
    apply_penalties(row, state(output, prompt, repetition_penalty=repetition, presence_penalty=presence, frequency_penalty=frequency))
    for token, (before, after) in enumerate(zip(logits, row.tolist())):
        expected = before
        if token in prompt or token in output:
            expected = before / repetition if before > 0 else before * repetition
        if token in output:
            expected -= presence + frequency * output.count(token)
        assert math.isclose(after, expected, rel_tol=1e-5, abs_tol=1e-5)


def test_penalties_do_not_touch_the_callers_logits():
    logits = np.ones((1, 8), np.float32)
    for settings in ({"repetition_penalty": 2}, {"logit_bias": {3: 5}}, {"logprobs": 2}):
        Sampler(select("cpu")).sample(logits, [state([1, 2], **settings)])
    assert (logits == 1).all()


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_bias_moves_a_token(kernels):
    assert sample(kernels, [[0, 1, 2, 3]], [state(temperature=0, logit_bias={1: 2.5})])[0].token_id == 1
    assert sample(kernels, [[0, 1, 2, 3]], [state(temperature=0, logit_bias={3: -100, 2: -1.5})])[0].token_id == 1


@pytest.mark.parametrize(("output", "banned"), [
    ([], {1}), ([5], {1}), ([2], {1, 3}), ([9, 2], {1, 3}), ([4, 5], {1, 6}), ([4], {1}), ([5, 4], {1}), ([4, 5, 2], {1, 3})])
def test_bad_words_ban_the_token_that_would_complete_them(output, banned):
    row = np.zeros(12, np.float32)
    apply_bans(row, state(output, prompt=[2, 4, 5], bad=[(1,), (2, 3), (4, 5, 6)]))
    assert set(np.flatnonzero(np.isinf(row)).tolist()) == banned


@pytest.mark.parametrize(("count", "banned"), [(0, [3, 7]), (2, [3, 7]), (3, []), (9, [])])
def test_ends_are_banned_until_min_tokens_are_there(count, banned):
    row = np.zeros(12, np.float32)
    apply_bans(row, state([1] * count, ends=[3, 7, 99], min_tokens=3))
    assert np.flatnonzero(np.isinf(row)).tolist() == banned


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("settings", [{}, {"temperature": 0}, {"min_tokens": 5}, {"logprobs": 2}, {"repetition_penalty": 2}, {"top_k": 1}])
def test_logits_that_are_not_finite_give_no_token_even_where_they_would_be_banned(kernels, bad, settings):
    healthy = state(temperature=0)
    tokens = sample(kernels, [[0, 1, bad, 0], [0, 1, 2, 0]], [state(ends=[2], **settings), healthy])
    assert [token.token_id for token in tokens] == [-1, 2]


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_row_that_offers_nothing_gives_no_token(kernels):
    assert sample(kernels, [[-math.inf] * 4], [state()])[0].token_id == -1
    assert sample(kernels, [[-math.inf, 1, -math.inf, -math.inf]], [state(logprobs=4)])[0].token_id == 1


@pytest.mark.parametrize("kernels", KERNELS)
def test_extremes_that_are_allowed_work(kernels):
    row = [3, -math.inf, 1, 0]
    for settings in ({"temperature": 1e6}, {"temperature": 2e-5}, {"top_p": 1e-30}, {"min_p": 1}, {"top_k": 2**31 - 1},
                     {"repetition_penalty": 1000}, {"repetition_penalty": 0.001}):
        assert sample(kernels, [row], [state(**settings)])[0].token_id in (0, 2, 3)


# --- random numbers ---

def test_numbers_are_those_of_the_seed_position_and_sample_for_good():
    """Recorded: an answer with a seed stays the same from version to version."""
    assert [state([0] * n).uniform() for n in range(3)] == [0.011546730995178223, 0.8133540153503418, 0.8144335746765137]
    assert state(index=1).uniform() != state(seed=1).uniform() != state().uniform()
    assert state(seed=-1).uniform() == state(seed=2**64 - 1).uniform()


def test_numbers_depend_on_nothing_else():
    random.seed(1)
    np.random.seed(1)
    first = state([5, 6], seed=3).uniform()
    random.seed(2)
    np.random.random(10)
    assert state([9, 9], prompt=[1, 2, 3], seed=3, top_k=4, temperature=0.3).uniform() == first


def test_numbers_are_spread_evenly_over_positions_seeds_and_samples():
    for numbers in ([state([0] * n).uniform() for n in range(2000)], [state(seed=n).uniform() for n in range(2000)],
                    [state(index=n).uniform() for n in range(2000)]):
        counts, _ = np.histogram(numbers, 20, (0, 1))
        assert ((counts - 100) ** 2 / 100).sum() < 45  # chi squared, 19 degrees of freedom: p = 0.0007
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.08 and max(numbers) < 1


# --- logprobs ---

@given(st.lists(st.sampled_from([-3.0, -2.0, -1.0, -0.5]), min_size=1, max_size=12), st.integers(0, 14), st.data())
def test_alternatives_are_the_sorted_list(values, count, data):
    token = data.draw(st.integers(0, len(values) - 1))
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    expected = [(i, values[i], rank) for rank, i in enumerate(order, 1) if rank <= count or i == token]
    assert list(top_logprobs(np.array(values, np.float32), token, count)) == expected


@given(st.integers(1, 2000), st.integers(0, 40), st.integers(0, 2**32), st.booleans())
def test_alternatives_of_a_large_vocabulary(size, count, seed, ties):
    draw = np.random.default_rng(seed)
    values = (draw.integers(-5, 0, size) if ties else draw.standard_normal(size)).astype(np.float32)
    order = np.lexsort((np.arange(size), -values))[:count].tolist()
    assert [i for i, _, _ in top_logprobs(values, 0, count)][:count] == order
