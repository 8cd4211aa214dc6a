"""Every sampling parameter does what it says or is refused by name, in one sentence."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyserve import SamplingParams
from tinyserve.errors import InvalidRequest


def refused(**fields):
    with pytest.raises(InvalidRequest) as problem:
        SamplingParams(**fields)
    text = str(problem.value)
    assert "\n" not in text and text.endswith(".") and any(name in text for name in fields), text


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "1", None, True, [1], 1j])
def test_numbers_that_are_not_finite_or_no_numbers(name, value):
    refused(**{name: value})


@pytest.mark.parametrize("name", ["n", "top_k", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs", "seed"])
@pytest.mark.parametrize("value", [1.5, "1", True, [1], math.nan])
def test_integers_that_are_not(name, value):
    refused(**{name: value})


@pytest.mark.parametrize(("name", "values"), {
    "n": [0, -1], "temperature": [-0.1], "top_p": [0, -0.1, 1.01], "top_k": [-2], "min_p": [-0.01, 1.01], "max_tokens": [0, -5],
    "min_tokens": [-1], "presence_penalty": [-2.1, 2.1], "frequency_penalty": [-2.1, 2.1], "repetition_penalty": [0, -1],
    "logprobs": [-1], "prompt_logprobs": [-1], "seed": [-2**63 - 1, 2**64], "stop": ["", ["a", ""], [1], 3, b"x"],
    "stop_token_ids": [[-1], ["a"], [1.5], 3, "12"], "bad_words": ["a word", [""], [1], 3],
    "logit_bias": [{-1: 1}, {"a": 1}, {1: math.nan}, {1: 101}, {1: "x"}, [1], 3], "ignore_eos": [1, None, "yes"],
    "include_stop_str_in_output": [0], "skip_special_tokens": ["no"], "detokenize": [None],
}.items())
def test_values_outside_the_range(name, values):
    for value in values:
        refused(**{name: value})


def test_contradictions():
    refused(min_tokens=5, max_tokens=4)
    refused(stop="x", detokenize=False)
    assert SamplingParams(min_tokens=5, max_tokens=5) and SamplingParams(min_tokens=500, max_tokens=None)


def test_the_edges_are_allowed():
    SamplingParams(temperature=0, top_p=1, top_k=-1, min_p=1, presence_penalty=-2, frequency_penalty=2, repetition_penalty=0.01,
                   seed=0, max_tokens=1, min_tokens=0, logprobs=0, prompt_logprobs=0, stop=[], stop_token_ids=[], bad_words=[],
                   logit_bias={})
    SamplingParams(temperature=1e-3, seed=-1, logit_bias={5: -100, 6: 100}, stop="ab", stop_token_ids=(1, 2), bad_words=("a",))


def test_numpys_numbers_are_numbers():
    import numpy as np

    params = SamplingParams(temperature=np.float32(0.5), top_p=np.float64(0.9), top_k=np.int64(3), max_tokens=np.int32(4), seed=np.int64(1),
                            stop_token_ids=np.array([1, 2]), logit_bias={np.int64(3): np.float32(1)})
    assert params.temperature == 0.5 and params.top_k == 3


def test_one_stop_or_several():
    assert SamplingParams(stop="ab").stops == ("ab",) and SamplingParams(stop=["a", "b"]).stops == ("a", "b")
    assert SamplingParams().stops == ()


def test_unknown_fields_are_refused_by_python_and_params_do_not_change():
    with pytest.raises(TypeError, match="best_of"):
        SamplingParams(best_of=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().temperature = 0.5


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)


@given(st.dictionaries(st.sampled_from([item.name for item in dataclasses.fields(SamplingParams) if item.init]), anything, max_size=3))
def test_any_values(fields):
    try:
        SamplingParams(**fields)
    except InvalidRequest as problem:
        assert "\n" not in str(problem)
