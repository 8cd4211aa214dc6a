"""Contracts 6 and 19 to 21 at the sampler, on every kernel set that runs without a GPU. Distributions are counted over an even grid
of random numbers, so that they are exact to one step of the grid."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_cases import KERNELS, distribution, sample, state

from tinyserve.kernels import select

ROW = st.lists(st.floats(-6, 6, width=32), min_size=2, max_size=9)


def by_hand(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """Temperature, then top_k, top_p, min_p, each on what the one before it kept, made to sum to 1 again."""
    p = np.exp((np.array(logits, np.float64) - max(logits)) / temperature)
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))
    if top_k > 0:
        order = order[:top_k]
    mass, kept = sum(p[i] for i in order), []
    for i in order:
        kept.append(i)
        if top_p < 1 and sum(p[k] for k in kept) >= top_p * mass:
            break
    kept = [i for i in kept if p[i] >= min_p * p[order[0]]]
    out = np.zeros(len(p))
    out[kept] = p[kept] / p[kept].sum()
    return out


@pytest.mark.parametrize("kernels", KERNELS)
def test_order_of_the_filters(kernels):
    """19: temperature before top_p; top_k before top_p, which sees what top_k kept."""
    assert distribution(kernels, [3, 2, 1], temperature=0.5, top_p=0.8).tolist() == [1, 0, 0]
    assert distribution(kernels, [3, 2, 1], temperature=1, top_p=0.8)[1] > 0
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    assert distribution(kernels, logits, top_k=2, top_p=0.5).tolist() == [1, 0, 0, 0]
    assert np.allclose(distribution(kernels, logits, top_k=2), [4 / 7, 3 / 7, 0, 0], atol=2e-3)
    assert np.allclose(distribution(kernels, logits, top_p=0.5), [4 / 7, 3 / 7, 0, 0], atol=2e-3)
    assert np.allclose(distribution(kernels, logits, min_p=0.49), [4 / 9, 3 / 9, 2 / 9, 0], atol=2e-3)


@pytest.mark.parametrize("kernels", KERNELS)
def test_order_of_penalties_and_temperature(kernels):
    """19: penalties act on logits before temperature: [2, 2, 0] less 1 for token 0, at T = 0.5, is [2, 4, 0]."""
    got = distribution(kernels, [2, 2, 0], temperature=0.5, output=[0], presence_penalty=1)
    assert np.allclose(got, by_hand([2, 4, 0]), atol=2e-3)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("temperature", [0, 1e-9])
def test_temperature_0_is_argmax_and_the_lowest_id_on_ties(kernels, temperature):
    rows = [[1, 5, 5, 0], [5, 5, 5, 5], [-9, -3, -7, -3], [0, 0, 0, 1]]
    tokens = sample(kernels, rows, [state(temperature=temperature, top_k=3, top_p=0.1, seed=i) for i in range(4)])
    assert [token.token_id for token in tokens] == [1, 0, 1, 3]


@pytest.mark.parametrize("kernels", KERNELS)
@given(row=ROW, temperature=st.sampled_from([0.3, 1, 2]), top_k=st.integers(0, 9), top_p=st.sampled_from([0.25, 0.6, 0.9, 1]),
       min_p=st.sampled_from([0, 0.05, 0.4]))
@settings(max_examples=25)
def test_the_distribution_is_the_definition(kernels, row, temperature, top_k, top_p, min_p):
    expected = by_hand(row, temperature, top_k, top_p, min_p)
    got = distribution(kernels, row, steps=500, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    if not np.allclose(got, expected, atol=5e-3):  # a sum may meet a limit to the last bit: then the token beyond it may go either way
        near = [by_hand(row, temperature, top_k, min(1, top_p * (1 + d)), min_p * (1 + d)) for d in (-1e-5, 1e-5)]
        assert any(np.allclose(got, other, atol=5e-3) for other in near)


@pytest.mark.parametrize("kernels", KERNELS)
def test_penalties_count_what_they_should(kernels):
    """20: repetition sees prompt and output; presence and frequency see the output alone."""
    def greedy(**more):
        return sample(kernels, [[1.0, 1.2, 1.1, 0.9]], [state(temperature=0, **more)])[0].token_id

    assert greedy(prompt=[1], repetition_penalty=2) == greedy(output=[1], repetition_penalty=2) == 2
    assert greedy(prompt=[1, 2], output=[0], repetition_penalty=2) == 3
    assert greedy(prompt=[1, 1, 1], presence_penalty=2, frequency_penalty=2) == 1
    assert greedy(output=[1], presence_penalty=0.15) == greedy(output=[1], frequency_penalty=0.15) == 2
    assert greedy(output=[1, 1, 2], frequency_penalty=0.15) == 0  # [1, .9, .95, .9]
    assert greedy(output=[1, 1, 2], presence_penalty=0.15) == 1  # [1, 1.05, .95, .9]: once, however often
    assert greedy(output=[3], presence_penalty=-1) == 3


@pytest.mark.parametrize("kernels", KERNELS)
@given(row=ROW, count=st.integers(0, 12))
def test_logprobs_are_of_the_raw_distribution(kernels, row, count):
    """21: whatever shapes the draw, and however many alternatives are asked for."""
    ops = select(kernels)
    raw = ops.numpy(ops.log_softmax(ops.array(np.array([row], np.float32))))[0]
    shaping = {"temperature": 0.3, "top_k": 1, "presence_penalty": 1.5, "logit_bias": {0: 50.0}, "repetition_penalty": 1.5}
    for options in ({}, shaping):
        token = sample(kernels, [row], [state(output=[1], logprobs=count, **options)])[0]
        assert token.logprob == raw[token.token_id]
        assert all(value == raw[i] for i, value, _ in token.alternatives)
        assert len(token.alternatives) in (min(count, len(row)), min(count, len(row)) + 1)
        assert token.token_id in [i for i, _, _ in token.alternatives]
    assert np.allclose(raw, np.array(row) - max(row) - np.log(np.exp(np.array(row) - max(row)).sum()), atol=1e-5)


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_row_is_sampled_as_it_is_alone(kernels):
    """1, 6: neighbours, their parameters and their order change neither tokens nor logprobs, bit for bit."""
    draw = np.random.default_rng(0)
    kinds = [{}, {"temperature": 0}, {"logprobs": 3}, {"top_p": 0.7, "min_p": 0.02}, {"presence_penalty": 1, "top_k": 5},
             {"temperature": 0.4, "logit_bias": {3: 2.0}}, {"min_tokens": 9, "repetition_penalty": 1.2}]
    rows = draw.standard_normal((28, 300)).astype(np.float32) * 3

    def states():
        return [state([7] * (i % 5), seed=i, ends=[2], index=i % 3, **kinds[i % len(kinds)]) for i in range(28)]

    alone = [sample(kernels, rows[i:i + 1], [one])[0] for i, one in enumerate(states())]
    assert sample(kernels, rows, states()) == alone
    order = draw.permutation(28)
    together = sample(kernels, rows[order], [states()[i] for i in order])
    assert together == [alone[i] for i in order]


@pytest.mark.parametrize("kernels", KERNELS)
def test_every_kernel_set_draws_the_same_tokens(kernels):
    draw = np.random.default_rng(1)
    rows = draw.standard_normal((200, 100)) * 2
    states = [state(seed=i, temperature=0.8, top_p=0.95, top_k=40) for i in range(200)]
    same = [a.token_id == b.token_id for a, b in zip(sample("reference", rows, states), sample(kernels, rows, states))]
    assert sum(same) >= 199  # a random number may fall on a border to the last bit
