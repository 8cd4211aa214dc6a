"""The front door on a tiny random model: prompts in every form, outputs with vLLM's names, streams, scores, refusals."""

import math
import subprocess
import sys

import numpy as np
import pytest
from tiny_model import END, write_model

from tinyserve import LLM, RequestOutput, SamplingParams, TokensPrompt
from tinyserve.errors import InvalidRequest, TinyserveError
from tinyserve.kernels import use

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def llm(folder):
    return LLM(folder)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request):
    yield
    if "llm" in request.fixturenames:
        llm = request.getfixturevalue("llm")
        assert not llm.engine.has_work and not llm._inbox and llm.engine.pool.free == llm.engine.pool.capacity


def tokens(output):
    return output.outputs[0].token_ids


def test_importing_the_package_is_quick_and_loads_no_heavy_library():
    code = "import sys, tinyserve; print([n for n in ('torch', 'numba', 'numpy', 'IPython', 'jupyterlab') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_engine_on_the_cpu_never_loads_torch(folder):
    code = f"import sys; from tinyserve import LLM; LLM({str(folder)!r}).generate('hi'); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_every_form_of_a_prompt_gives_the_same_answer(llm):
    ids = llm.tokenizer.encode("hello")
    forms = ["hello", ids, {"prompt": "hello"}, {"prompt_token_ids": ids}, TokensPrompt(prompt_token_ids=ids, prompt="hello")]
    (reference,) = llm.generate("hello", GREEDY)
    for form in (*forms, np.array(ids), tuple(ids)):
        (output,) = llm.generate(form, GREEDY)
        assert tokens(output) == tokens(reference) and output.prompt_token_ids == ids
    many = llm.generate(forms, GREEDY)
    assert [tokens(output) for output in many] == [tokens(reference)] * len(forms)
    assert [output.prompt for output in many] == ["hello", None, "hello", None, "hello"]
    assert llm.generate([], GREEDY) == []


def test_a_list_of_prompts_keeps_its_order_and_takes_one_params_each(llm):
    prompts = ["a", "bcd" * 20, "ef"]
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (5, 1, 9)]
    outputs = llm.generate(prompts, params)
    assert [output.prompt for output in outputs] == prompts
    assert [len(tokens(output)) for output in outputs] == [5, 1, 9]
    assert all(output.finished and output.outputs[0].finish_reason == "length" for output in outputs)
    with pytest.raises(InvalidRequest, match="3 prompts came with 2"):
        llm.generate(prompts, params[:2])


def test_shapes_of_logprobs(llm):
    params = SamplingParams(temperature=0, max_tokens=4, logprobs=2, prompt_logprobs=1, n=2, ignore_eos=True)
    (output,) = llm.generate("hello", params)
    assert [answer.index for answer in output.outputs] == [0, 1]
    for answer in output.outputs:
        assert len(answer.logprobs) == len(answer.token_ids) == 4
        for token, entries in zip(answer.token_ids, answer.logprobs):
            assert len(entries) == 2 and entries[token].rank == 1
            assert entries[token].decoded_token == llm.tokenizer.decode([token])
        assert answer.cumulative_logprob == pytest.approx(sum(e[t].logprob for t, e in zip(answer.token_ids, answer.logprobs)))
    assert len(output.prompt_logprobs) == 5 and output.prompt_logprobs[0] is None
    assert all(token in entries for token, entries in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:]))
    (plain,) = llm.generate("hello", GREEDY)
    assert plain.prompt_logprobs is plain.outputs[0].logprobs is plain.outputs[0].cumulative_logprob is None


def test_runs_repeat_with_the_models_seed(folder):
    params = SamplingParams(temperature=1.0, max_tokens=8)
    runs = [[tokens(output) for output in LLM(folder, seed=seed).generate(["x", "x"], params)] for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2] and runs[0][0] != runs[0][1]


def test_chat_is_the_template_and_then_generate(llm):
    chat = [{"role": "user", "content": "hi"}]
    (output,) = llm.chat(chat, GREEDY)
    assert output.prompt == "user: hi\nassistant: "
    assert tokens(output) == tokens(llm.generate(output.prompt, GREEDY)[0])
    assert [tokens(each) for each in llm.chat([chat, chat], GREEDY)] == [tokens(output)] * 2
    for wrong in ([], "hi", chat[0], [[]], [{"role": "user"}]):
        with pytest.raises(InvalidRequest):
            llm.chat(wrong, GREEDY)


def test_a_stream_adds_up_to_the_whole(llm):
    params = SamplingParams(temperature=0, max_tokens=9, n=2, logprobs=1, prompt_logprobs=0, ignore_eos=True)
    (whole,) = llm.generate("hello", params)
    deltas = list(llm.stream("hello", params))
    assert [output.finished for output in deltas] == [False] * (len(deltas) - 1) + [True]
    for answer in whole.outputs:
        mine = [output.outputs[0] for output in deltas if output.outputs[0].index == answer.index]
        assert "".join(part.text for part in mine) == answer.text
        assert [token for part in mine for token in part.token_ids] == answer.token_ids
        assert mine[-1].cumulative_logprob == answer.cumulative_logprob and mine[-1].finish_reason == "length"
        assert all(part.finish_reason is part.metrics is None for part in mine[:-1]) and mine[-1].metrics.ttft > 0
    assert deltas[0].prompt_logprobs == whole.prompt_logprobs and deltas[1].prompt_logprobs is None
    chat = [{"role": "user", "content": "hi"}]
    assert tokens(next(llm.stream(chat, GREEDY))) == tokens(llm.chat(chat, GREEDY)[0])[:1]


def test_closing_or_dropping_a_stream_aborts_it(llm):
    stream = llm.stream("hello", GREEDY)
    stream.close()
    assert list(stream) == []
    stream = llm.stream("hello", GREEDY)
    del stream
    assert not llm.engine.has_work
    with llm.stream("hello", GREEDY) as stream:
        next(stream)
    assert not llm.engine.has_work


def test_streams_and_generate_run_side_by_side(llm):
    (reference,) = llm.generate("hello", GREEDY)
    first = llm.stream("hello", GREEDY)
    got = tokens(next(first))
    assert tokens(llm.generate("other", GREEDY)[0])
    for output in first:
        got += tokens(output)
        assert (output.outputs[0].finish_reason is not None) == output.finished
    assert got == tokens(reference)


def test_abort_ends_a_stream_and_unknown_ids_are_no_error(llm):
    stream = llm.stream("hello", GREEDY)
    first = next(stream)
    llm.abort(first.request_id)
    llm.abort(["never", first.request_id])
    (last,) = stream
    assert last.finished and last.outputs[0].finish_reason == "abort"
    stream = llm.stream("hello", GREEDY)
    llm.engine.abort(stream.request_id)
    with pytest.raises(TinyserveError, match="LLM.abort"):
        next(stream)


@pytest.mark.parametrize("door", ["generate", "stream"])
def test_an_interrupt_aborts_what_was_started(llm, door, monkeypatch):
    steps = iter(range(100))

    def interrupted(*arguments):
        if next(steps) == 2:
            raise KeyboardInterrupt
        return run(*arguments)

    run = llm.engine.runner.run
    monkeypatch.setattr(llm.engine.runner, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(getattr(llm, door)("hello", GREEDY))
    assert not llm.engine.has_work


def test_score_is_the_sum_of_what_generate_reports(llm):
    params = SamplingParams(temperature=0, max_tokens=5, logprobs=0, ignore_eos=True)
    (output,) = llm.generate("hello", params)
    ids = output.prompt_token_ids + tokens(output)
    score = llm.score(ids)
    assert score.token_ids == ids and len(score.logprobs) == len(ids) - 1
    assert sum(score.logprobs[-5:]) == pytest.approx(output.outputs[0].cumulative_logprob, abs=1e-6)
    assert score.perplexity == pytest.approx(math.exp(-np.mean(score.logprobs)))
    assert len(llm.score([1] * 256).logprobs) == 255
    for wrong in ("", "a", [1] * 257):
        with pytest.raises(InvalidRequest, match="score needs 2 to 256"):
            llm.score(wrong)


def text_of(llm, **more):
    (output,) = llm.generate("hello", SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, **more))
    return output.outputs[0]


def test_stops_biases_and_bans_are_real(llm):
    favoured = {ord("Z") - 33: 100.0}
    assert text_of(llm, logit_bias=favoured).text == "Z" * 12
    stopped = text_of(llm, logit_bias=favoured, stop=["ZZZ", "Y"])
    assert (stopped.text, stopped.finish_reason, stopped.stop_reason, len(stopped.token_ids)) == ("", "stop", "ZZZ", 3)
    assert text_of(llm, logit_bias=favoured, stop="ZZZ", include_stop_str_in_output=True).text == "ZZZ"
    assert text_of(llm, logit_bias=favoured, stop="ZZZ", min_tokens=6).text == "Z" * 5
    assert "Z" not in text_of(llm, logit_bias=favoured, bad_words=["Z"]).text
    assert "ZZ" not in text_of(llm, logit_bias=favoured, bad_words=["ZZ"]).text
    ended = llm.generate("hello", SamplingParams(temperature=0, logit_bias={END: 100.0}))[0].outputs[0]
    assert (ended.text, ended.token_ids, ended.finish_reason, ended.stop_reason) == ("", [END], "stop", None)


def test_metrics_add_up(llm):
    (output,) = llm.generate("hello", GREEDY)
    metrics = output.metrics
    parts = dict(metrics.parts)
    assert parts.pop("e2e") == metrics.e2e == pytest.approx(sum(parts.values()))
    assert metrics.tpot == pytest.approx((metrics.e2e - metrics.ttft) / 5)
    assert llm.generate("hello", SamplingParams(max_tokens=1))[0].metrics.tpot is None


@pytest.mark.parametrize("prompt, sentence", [
    ("", "empty"), ([[]], "empty"), ("x" * 256, "256 tokens"), ([288], "outside"), ({"promt": "x"}, "promt"), ({}, "NoneType"),
    ([1.5, 2], "float"), (None, "NoneType"), (7, "int"), ([None], "NoneType"), (b"x", "bytes"), ([True], "bool"),
])
def test_bad_prompts_are_refused(llm, prompt, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        llm.generate(prompt, GREEDY)


def test_one_refused_prompt_stops_the_whole_call(llm):
    with pytest.raises(InvalidRequest):
        llm.generate(["fine", "x" * 400], GREEDY)
    with pytest.raises(InvalidRequest, match="SamplingParams"):
        llm.generate("fine", {"temperature": 0})


@pytest.mark.parametrize("setting", [
    {"max_model_len": 1}, {"max_model_len": 257}, {"max_model_len": 10**15}, {"max_model_len": "2k"}, {"max_num_seqs": 0},
    {"block_size": 12}, {"max_num_batched_tokens": 0}, {"kv_cache_dtype": "fp8"}, {"num_kv_blocks": 1}, {"dtype": "float17"},
    {"kv_cache_dtype": "bfloat16"}, {"kv_cache_dtype": "int8", "block_size": 8},
    {"device": "tpu"},
])
def test_bad_settings_are_refused(folder, setting):
    with pytest.raises(InvalidRequest):
        LLM(folder, **setting)


def test_a_learners_kernel_runs_inside_the_engine(llm):
    pytest.importorskip("torch")
    (reference,) = llm.generate("hello", GREEDY)
    calls = []

    def mine(x, y):
        calls.append(x.shape)
        return x + y

    with use(add=mine):
        (output,) = llm.generate("hello", GREEDY)
    assert tokens(output) == tokens(reference) and len(calls) == 6 * 4
    assert isinstance(output, RequestOutput)


def test_a_pool_too_small_for_a_request_says_so(folder):
    llm = LLM(folder, num_kv_blocks=5, block_size=4)
    with pytest.raises(InvalidRequest, match="cache blocks"):
        llm.generate("x" * 20, GREEDY)
    assert len(tokens(llm.generate("abc", GREEDY)[0])) == 6
