"""Every way to get a sampling parameter wrong, and how the refusal reads."""

import math

import pytest

from tinyserve.errors import InvalidRequest
from tinyserve.text.params import SamplingParams
from tinyserve.text.stopping import StopMatcher

BAD = {
    "n": [0, 1.0, True, 10**9, None],
    "temperature": [-0.1, math.nan, math.inf, "hot", None, 1e300, True],
    "top_p": [0, 1.01, -1, math.nan], "top_k": [-2, 1.5, 2**40, math.nan], "min_p": [-0.1, 1.1, math.nan],
    "presence_penalty": [2.1, math.nan], "frequency_penalty": [-2.1, math.inf], "repetition_penalty": [0, -1, math.inf, 1e-300],
    "seed": [1.5, "x", 2**70, -(2**70)],
    "max_tokens": [0, -1, 2.0, math.inf, False], "min_tokens": [-1, 17, None],
    "logprobs": [-1, 0.5], "prompt_logprobs": [-1, True],
    "stop": ["", ["a", ""], 5, [5], {"a": 1}], "stop_token_ids": [5, [-1], ["1"], "12", [1.0]], "bad_words": ["word", [""], 3, [3]],
    "logit_bias": [[1], {-1: 1}, {1: math.nan}, {1: 101}, {"1": 1}],
    "ignore_eos": ["yes", 1], "include_stop_str_in_output": [1], "skip_special_tokens": [None], "detokenize": [0],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_one_sentence_names_the_field_the_value_and_what_is_allowed(name, value):
    with pytest.raises(InvalidRequest) as refusal:
        SamplingParams(**{name: value})
    sentence = str(refusal.value)
    assert sentence.startswith(f"{name} is ") and "; it must be " in sentence and sentence.endswith(".") and "\n" not in sentence


def test_parameters_do_not_change_after_they_were_checked():
    ends, bias = [7], {7: 1.0}
    params = SamplingParams(stop_token_ids=ends, logit_bias=bias)
    ends.append(-1)
    bias[-1] = math.nan
    assert params.stop_token_ids == [7] and params.logit_bias == {7: 1.0}


@pytest.mark.parametrize(("temperature", "greedy"), [(0, True), (1e-30, True), (1e-4, False), (1, False)])
def test_temperatures_next_to_zero_are_greedy(temperature, greedy):
    assert SamplingParams(temperature=temperature).greedy is greedy


def test_a_long_stop_in_a_repetitive_text_is_looked_at_once():
    """Comparing every suffix with the stop, as a simple matcher does, takes minutes here."""
    matcher = StopMatcher(["a" * 20_000 + "b"])
    for _ in range(40):
        matcher.push("a" * 1000)
    assert len(matcher.flush()) == 20_000
