"""Sampling without a sort against sampling with one."""

import numpy as np
import pytest
from cuda_checks import assert_no_races, poisoned

from tinyserve.kernels.cuda.sampling import sample

RNG = np.random.default_rng(13)


def run(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, uniforms=None, threads=32):
    logits = np.ascontiguousarray(logits, np.float32)
    rows = len(logits)
    options = [np.full(rows, temperature, np.float32), np.full(rows, top_k, np.int32)]
    options += [np.full(rows, value, np.float32) for value in (top_p, min_p)]
    uniforms = np.zeros(rows, np.float32) if uniforms is None else np.asarray(uniforms, np.float32)
    ids = poisoned(rows, dtype=np.int32)
    sample(threads)[rows, threads](logits, *options, uniforms, poisoned(*logits.shape), ids)
    return ids.tolist()


def by_sorting(logits, temperature, top_k, top_p, min_p, uniform):
    """The definition of the op, on one row in float64."""
    weights = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    order = np.lexsort((np.arange(len(weights)), -weights))
    order = order[:top_k] if top_k > 0 else order
    if top_p < 1:
        mass = weights[order].cumsum()
        order = order[:np.searchsorted(mass, top_p * mass[-1]) + 1]
    order = order[weights[order] >= min_p]
    mass = weights[order].cumsum()
    return int(order[np.searchsorted(mass, uniform * mass[-1], side="right")])


@pytest.mark.parametrize("top_k, top_p, min_p", [(0, 1.0, 0.0), (5, 1.0, 0.0), (0, 0.7, 0.0), (0, 1.0, 0.2), (9, 0.8, 0.05), (1, 0.5, 0.0)])
def test_draws_invert_the_kept_distribution(top_k, top_p, min_p):
    logits, uniforms = 2 * RNG.standard_normal((4, 50)), [0.0, 0.31, 0.77, 0.998]
    logits = logits.astype(np.float32)
    expected = [by_sorting(row, 0.8, top_k, top_p, min_p, u) for row, u in zip(logits, uniforms)]
    assert run(logits, 0.8, top_k, top_p, min_p, uniforms) == expected


def test_equal_weights_come_by_rising_id():
    logits = np.zeros((4, 8), np.float32)
    assert run(logits, uniforms=[0.0, 0.3, 0.6, 0.99]) == [0, 2, 4, 7]
    assert run(logits, top_k=2, uniforms=[0.0, 0.49, 0.51, 0.99]) == [0, 0, 1, 1]


def test_greedy_takes_the_lowest_id_of_ties():
    assert run([[1, 3, 3, 2], [5, 5, 5, 5]], temperature=0.0) == [1, 0]


def test_the_contract_cases():
    """The order of the filters: temperature, top_k, top_p of what is left, min_p."""
    assert run([[3, 2, 1]], temperature=0.5, top_p=0.8, uniforms=[0.99]) == [0]
    assert run(np.log([[0.4, 0.3, 0.2, 0.1]]), top_k=2, top_p=0.5, uniforms=[0.99]) == [0]


@pytest.mark.parametrize("row", [[np.nan, 1, 2], [np.inf, 1, 2], [-np.inf] * 3])
def test_a_bad_row_gives_no_token(row):
    assert run([row, [0, 9, 1]], temperature=1.0)[0] == -1
    assert run([row, [0, 9, 1]], temperature=0.0) == [-1, 1]


def test_minus_infinity_is_never_drawn():
    logits = np.full((3, 40), -np.inf)
    logits[:, 7], logits[:, 31] = 0, 0
    assert run(logits, uniforms=[0.1, 0.6, 0.9999]) == [7, 31, 31]


def test_several_warps_agree_and_do_not_race():
    logits = RNG.standard_normal((1, 200)).astype(np.float32)
    assert run(logits, uniforms=[0.4], threads=64) == run(logits, uniforms=[0.4]) == [by_sorting(logits[0], 1, 0, 1, 0, 0.4)]
    one = [np.ones(1, np.float32), np.zeros(1, np.int32), np.ones(1, np.float32), np.zeros(1, np.float32), np.ones(1, np.float32) / 2]
    assert_no_races(sample(64), (1, 64), logits[:, :64].copy(), *one, poisoned(1, 64), poisoned(1, dtype=np.int32))
