"""The front door: `LLM(model).generate(prompts, params)`, with the names of vLLM's offline API."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional, Sequence, Union

from .engine.engine import Engine, EngineConfig, Progress
from .engine.request import Request, Timeline
from .errors import InvalidRequest
from .kernels.selection import select
from .models.loading import load_model
from .text.params import SamplingParams
from .text.sampler import SampledToken
from .text.tokenizer import load_tokenizer

Prompt = Union[str, Sequence[int], Mapping[str, Any]]
Message = Mapping[str, str]
KV_DTYPES = ("auto", "float32", "float16")


@dataclass(frozen=True)
class Logprob:
    """A token's log-probability under the raw distribution, its rank (1 is the most likely), and its text."""

    logprob: float
    rank: int
    decoded_token: str


@dataclass(frozen=True)
class RequestMetrics:
    """Seconds. TPOT = (e2e - TTFT) / (output tokens - 1), None for one token; `parts` add up to e2e."""

    ttft: Optional[float]
    tpot: Optional[float]
    e2e: float
    parts: Mapping[str, float]


@dataclass
class CompletionOutput:
    """One answer. `finish_reason`: "stop", "length", "abort" or "error"; `stop_reason`: the stop string or token id, or why."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: Optional[float] = None
    logprobs: Optional[list[dict[int, Logprob]]] = None
    finish_reason: Optional[str] = None
    stop_reason: Optional[Union[int, str]] = None
    metrics: Optional[RequestMetrics] = None


@dataclass
class RequestOutput:
    """A prompt and its `n` answers. `prompt_logprobs` has None for the first token, which nothing predicts."""

    request_id: str
    prompt: Optional[str]
    prompt_token_ids: list[int]
    prompt_logprobs: Optional[list[Optional[dict[int, Logprob]]]]
    outputs: list[CompletionOutput]
    finished: bool

    @property
    def metrics(self) -> Optional[RequestMetrics]:
        """Of the first answer."""
        return self.outputs[0].metrics


@dataclass(frozen=True)
class Score:
    """How likely a text is: `logprobs[i]` of token i + 1 given those before it (natural log), and exp of minus their mean."""

    token_ids: list[int]
    logprobs: list[float]
    perplexity: float


class LLM:
    """A model that is loaded once and answers many prompts.

    model: "smollm2", a GGUF file, a Hugging Face folder or a hub id. dtype: "auto", "float32", "bfloat16", "int8" or "int4".
    device: "auto", "cpu", "reference" (plain torch). max_model_len: longest prompt plus answer; default the model's own context.
    seed: makes runs repeat where a request names no seed of its own. num_kv_blocks: cache blocks of `block_size` tokens; default
    four contexts (memory is touched only as it is used). Raises the errors of `tinyserve.errors`.
    """

    def __init__(self, model: Union[str, Path] = "smollm2", *, dtype: str = "auto", device: str = "auto",
                 max_model_len: Optional[int] = None, seed: int = 0, max_num_seqs: int = 64, max_num_batched_tokens: int = 512,
                 block_size: int = 16, kv_cache_dtype: str = "auto", num_kv_blocks: Optional[int] = None):
        for name, value in (("max_num_seqs", max_num_seqs), ("max_num_batched_tokens", max_num_batched_tokens), ("block_size", block_size)):
            if not isinstance(value, int) or value < 1:
                raise InvalidRequest(f"{name} is {value!r}; it must be an integer of 1 or more.")
        if kv_cache_dtype not in KV_DTYPES:
            raise InvalidRequest(f"kv_cache_dtype {kv_cache_dtype!r} is not one of {', '.join(KV_DTYPES)}.")
        if block_size & (block_size - 1):
            raise InvalidRequest(f"block_size is {block_size}; it must be a power of two.")
        ops = select(device)
        loaded = load_model(model, ops, dtype, max_model_len)
        self.config, self.tokenizer, self.seed = loaded.config, load_tokenizer(loaded.files), seed
        self.max_model_len = self._context(max_model_len)
        blocks = num_kv_blocks or 4 * -(-self.max_model_len // block_size) + 1
        self.engine = Engine(loaded.decoder, ops, EngineConfig(
            max_model_len=self.max_model_len, num_blocks=blocks, block_size=block_size, max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens, kv_dtype="float16" if kv_cache_dtype == "auto" else kv_cache_dtype), self.tokenizer)
        self._count = 0
        self._inbox: dict[str, deque[Progress]] = {}

    def _context(self, wanted: Optional[int]) -> int:
        """The longest prompt plus answer; rotary positions may be stretched as far as the configuration's scaling says."""
        scaling = self.config.rope_scaling
        factor = scaling.get("factor", 1) if scaling.get("rope_type") in ("linear", "dynamic", "yarn") else 1
        longest = max(self.config.context_length, int(scaling.get("original_max_position_embeddings", 0) * factor))
        if scaling.get("rope_type") in ("linear", "dynamic"):
            longest = max(longest, int(self.config.context_length * factor))
        if wanted is None:
            return self.config.context_length
        if not isinstance(wanted, int) or not 2 <= wanted <= longest:
            raise InvalidRequest(f"max_model_len is {wanted!r}; this model allows 2 to {longest}.")
        return wanted

    # --- doors ---

    def generate(self, prompts: Union[Prompt, Sequence[Prompt]], sampling_params: Union[None, SamplingParams, Sequence[SamplingParams]] = None,
                 *, use_tqdm: bool = False) -> list[RequestOutput]:
        """Answer one prompt or a list: strings, lists of token ids, or {"prompt": …} / {"prompt_token_ids": …}. One
        `SamplingParams` for all, or one each. Outputs come in the order of the prompts; if any request is refused, none runs."""
        many = [prompts] if _is_one(prompts) else list(prompts)
        params = [sampling_params or SamplingParams()] * len(many) if not isinstance(sampling_params, (list, tuple)) else list(sampling_params)
        if len(params) != len(many):
            raise InvalidRequest(f"{len(many)} prompts came with {len(params)} sampling parameters; give one, or one each.")
        return self._run([self._read(prompt) for prompt in many], params, use_tqdm)

    def chat(self, messages: Union[Sequence[Message], Sequence[Sequence[Message]]],
             sampling_params: Union[None, SamplingParams, Sequence[SamplingParams]] = None, *, use_tqdm: bool = False) -> list[RequestOutput]:
        """Answer one conversation or a list of them; a conversation is a list of {"role", "content"}."""
        many = [messages] if not messages or isinstance(messages[0], Mapping) else messages
        prompts = [{"prompt_token_ids": self.tokenizer.apply_chat_template(list(chat))} for chat in many]
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    def stream(self, prompt: Union[Prompt, Sequence[Message]], sampling_params: Optional[SamplingParams] = None) -> Iterator[RequestOutput]:
        """Answer one prompt (or chat) and yield what each step adds; text and token ids are deltas, the last has `finished`.
        Closing the iterator aborts the request."""
        if not isinstance(prompt, (str, Mapping)) and len(prompt) and isinstance(prompt[0], Mapping):
            prompt = {"prompt_token_ids": self.tokenizer.apply_chat_template(prompt)}
        text, ids = self._read(prompt)
        request = self._add(ids, sampling_params or SamplingParams())
        return self._stream(request, text)

    def _stream(self, request: Request, text: Optional[str]) -> Iterator[RequestOutput]:
        unfinished = request.params.n
        try:
            while unfinished:
                for progress in self._next(request.id):
                    unfinished -= progress.finish_reason is not None
                    yield self._output(request, text, [self._completion(progress.sequence, list(progress.tokens), progress.text)], not unfinished)
        finally:
            self._forget(request.id)

    def score(self, text: Union[str, Sequence[int]]) -> Score:
        """The log-probability of every token of a text of two tokens or more, and its perplexity."""
        import math

        _, ids = self._read(text)
        if len(ids) < 2:
            raise InvalidRequest("The text has fewer than two tokens; there is nothing to predict.")
        if len(ids) > self.max_model_len:
            raise InvalidRequest(f"The text has {len(ids)} tokens and the context holds {self.max_model_len}.")
        # The last token is only ever predicted, so it is held back and scored as the first candidate of the answer.
        last = ids[-1]
        params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, logprobs=self.config.vocab, ignore_eos=True, detokenize=False)
        request = self._add(ids[:-1], params)
        progress = self._finish_all([request], False)[request.id][0]
        logprobs = [token.logprob for token in progress.sequence.prompt_logprobs[1:]]
        logprobs.append(next(value for id, value, _ in progress.tokens[0].alternatives if id == last))
        return Score(list(ids), logprobs, math.exp(-sum(logprobs) / len(logprobs)))

    # --- requests ---

    def _read(self, prompt: Prompt) -> tuple[Optional[str], list[int]]:
        """(text or None, token ids) of a prompt."""
        if isinstance(prompt, Mapping):
            known = [name for name in ("prompt_token_ids", "prompt") if name in prompt]
            if len(known) != 1 or len(prompt) != 1:
                raise InvalidRequest("A prompt given as a dict needs exactly one of 'prompt' and 'prompt_token_ids', and nothing else.")
            prompt = prompt[known[0]]
        if isinstance(prompt, str):
            return prompt, self.tokenizer.encode(prompt)
        if not all(isinstance(token, int) for token in prompt):
            raise InvalidRequest("A prompt is a string or a list of token ids; this list holds something else.")
        return None, list(prompt)

    def _add(self, ids: Sequence[int], params: SamplingParams) -> Request:
        if not isinstance(params, SamplingParams):
            raise InvalidRequest(f"sampling_params is {type(params).__name__}; give a SamplingParams.")
        request = self.engine.add(str(self._count), ids, params, seed=self.seed * 1_000_003 + self._count)
        self._inbox[request.id] = deque()
        self._count += 1
        return request

    def _forget(self, request_id: str) -> None:
        self.engine.abort(request_id)
        self._inbox.pop(request_id, None)

    def _next(self, request_id: str) -> Iterator[Progress]:
        """Step until this request has news; news of others waits in their inboxes."""
        inbox = self._inbox[request_id]
        while not inbox:
            for progress in self.engine.step():
                self._inbox[progress.sequence.request.id].append(progress)
        while inbox:
            yield inbox.popleft()

    def _finish_all(self, requests: Sequence[Request], show: bool) -> dict[str, list[Progress]]:
        """Every progress of these requests, to their ends. Interrupted, it aborts them all."""
        news: dict[str, list[Progress]] = {}
        try:
            for request in _progress_bar(requests, show):
                unfinished, news[request.id] = request.params.n, []
                while unfinished:
                    for progress in self._next(request.id):
                        news[request.id].append(progress)
                        unfinished -= progress.finish_reason is not None
        finally:
            for request in requests:
                self._forget(request.id)
        return news

    def _run(self, prompts: Sequence[tuple[Optional[str], list[int]]], params: Sequence[SamplingParams], show: bool) -> list[RequestOutput]:
        requests: list[Request] = []
        try:
            for (_, ids), each in zip(prompts, params):
                requests.append(self._add(ids, each))
        except BaseException:
            for request in requests:
                self._forget(request.id)
            raise
        news = self._finish_all(requests, show)
        return [self._whole(request, text, news[request.id]) for request, (text, _) in zip(requests, prompts)]

    # --- outputs ---

    def _whole(self, request: Request, text: Optional[str], news: Sequence[Progress]) -> RequestOutput:
        completions = []
        for index in range(request.params.n):
            mine = [progress for progress in news if progress.sequence.index == index]
            tokens = [token for progress in mine for token in progress.tokens]
            completions.append(self._completion(mine[-1].sequence, tokens, "".join(progress.text for progress in mine)))
        return self._output(request, text, completions, True, news[0].sequence.prompt_logprobs)

    def _output(self, request: Request, text: Optional[str], completions: list[CompletionOutput], finished: bool,
                prompt_logprobs: Sequence[Optional[SampledToken]] = ()) -> RequestOutput:
        wanted = request.params.prompt_logprobs is not None and prompt_logprobs
        noted = [None if token is None else self._entries(token) for token in prompt_logprobs] if wanted else None
        return RequestOutput(request.id, text, list(request.prompt_ids), noted, completions, finished)

    def _completion(self, sequence: Any, tokens: list[SampledToken], text: str) -> CompletionOutput:
        asked = sequence.request.params.logprobs is not None
        return CompletionOutput(
            index=sequence.index, text=text, token_ids=[token.token_id for token in tokens],
            cumulative_logprob=sum(token.logprob or 0.0 for token in tokens) if asked else None,
            logprobs=[self._entries(token) for token in tokens] if asked else None, finish_reason=sequence.finish_reason,
            stop_reason=sequence.stop_reason, metrics=_metrics(sequence.timeline, len(sequence.output_ids)))

    def _entries(self, token: SampledToken) -> dict[int, Logprob]:
        return {id: Logprob(logprob, rank, self.tokenizer.decode([id], skip_special_tokens=False)) for id, logprob, rank in token.alternatives}


def _is_one(prompts: Any) -> bool:
    """True for a single prompt: a string, a dict, or a list of token ids."""
    return isinstance(prompts, (str, Mapping)) or bool(prompts) and all(isinstance(token, int) for token in prompts)


def _progress_bar(requests: Sequence[Request], show: bool) -> Any:
    if not show:
        return requests
    from tqdm import tqdm

    return tqdm(requests, desc="prompts", unit="prompt")


def _metrics(timeline: Timeline, tokens: int) -> Optional[RequestMetrics]:
    if timeline.finished is None:
        return None
    parts = timeline.parts()
    ttft = None if timeline.first_token is None else timeline.first_token - timeline.arrival
    tpot = (parts["e2e"] - ttft) / (tokens - 1) if ttft is not None and tokens > 1 else None
    return RequestMetrics(ttft, tpot, parts["e2e"], parts)
