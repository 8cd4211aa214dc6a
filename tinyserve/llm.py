"""The front door: `LLM(model).generate(prompts, params)`, with the names of vLLM's offline API."""

from __future__ import annotations

import math
import secrets
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

from .cache.pool import blocks_for
from .engine.engine import Engine, EngineConfig, Progress
from .engine.outputs import CompletionOutput, Logprob, OutputBuilder, RequestMetrics, RequestOutput, Score
from .engine.prompts import Prompt, TextPrompt, TokensPrompt, is_one, read_prompt
from .engine.request import Request
from .errors import InvalidRequest, TinyserveError
from .kernels.selection import select
from .models.config import ModelConfig
from .models.files import resolve
from .models.loading import DEFAULT_POSITIONS, load_model, read_config
from .text.params import SamplingParams
from .text.tokenizer import Tokenizer, load_tokenizer

__all__ = ["LLM", "CompletionOutput", "Logprob", "RequestMetrics", "RequestOutput", "Score", "Stream", "TextPrompt", "TokensPrompt"]

Message = Mapping[str, str]
Params = Union[None, SamplingParams, Sequence[SamplingParams]]


class LLM:
    """A model that is loaded once and answers many prompts.

    model: "smollm2", a GGUF file, a Hugging Face folder or a hub id. dtype: "auto", "float32", "bfloat16", "int8" or "int4".
    device: "auto", "cpu", "reference" (plain torch); kernels: a ready kernel set in its place. max_model_len: longest prompt plus
    answer in tokens; default the model's own, at most 32768. kv_cache_dtype: "auto" (float16), "float32", or "int8" (one scale a
    token and head: half the bytes of float16, and slightly other logits). seed: makes runs repeat where a request names no seed of
    its own (None: they differ). num_kv_blocks: cache blocks of `block_size` tokens; default four contexts (memory is touched only
    as it is used). enable_prefix_caching: prompts that begin alike share what is computed of it. enforce_eager: call every op,
    never replay a recorded step. Raises the errors of `tinyserve.errors`.
    """

    def __init__(self, model: Union[str, Path] = "smollm2", *, dtype: str = "auto", device: str = "auto",
                 max_model_len: Optional[int] = None, seed: Optional[int] = 0, max_num_seqs: int = 64,
                 max_num_batched_tokens: int = 512, block_size: int = 16, kv_cache_dtype: str = "auto",
                 num_kv_blocks: Optional[int] = None, enable_prefix_caching: bool = False,
                 enforce_eager: bool = False, kernels: Any = None):
        _check_sizes(max_num_seqs=(max_num_seqs, 1), max_num_batched_tokens=(max_num_batched_tokens, 1), block_size=(block_size, 1),
                     num_kv_blocks=(2 if num_kv_blocks is None else num_kv_blocks, 2))
        if block_size & (block_size - 1):
            raise InvalidRequest(f"block_size is {block_size}; it must be a power of two.")
        ops, files = select(device) if kernels is None else kernels, resolve(model)
        if kv_cache_dtype not in ("auto", *ops.kv_dtypes):
            raise InvalidRequest(f"kv_cache_dtype {kv_cache_dtype!r} is not one of auto, {', '.join(ops.kv_dtypes)}.")
        self.config: ModelConfig = read_config(files)
        self.max_model_len = _context(self.config, max_model_len)
        self.tokenizer: Tokenizer = load_tokenizer(files)
        loaded = load_model(files, ops, dtype, self.max_model_len)
        self.seed = secrets.randbits(32) if seed is None else seed
        settings = EngineConfig(
            max_model_len=self.max_model_len, num_blocks=num_kv_blocks or 4 * blocks_for(self.max_model_len, block_size) + 1,
            block_size=block_size, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens,
            kv_dtype="float16" if kv_cache_dtype == "auto" else kv_cache_dtype, eager=enforce_eager,
            prefix_cache=enable_prefix_caching)
        try:
            self.engine = Engine(loaded.decoder, ops, settings, self.tokenizer)
        except ValueError as problem:  # a cache that these kernels cannot make
            raise InvalidRequest(str(problem)) from None
        self._count = 0
        self._inbox: dict[str, deque[Progress]] = {}

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.tokenizer

    # --- doors ---

    def generate(self, prompts: Union[Prompt, Sequence[Prompt]], sampling_params: Params = None, *,
                 use_tqdm: bool = False) -> list[RequestOutput]:
        """Answer one prompt or a list: strings, lists of token ids, or {"prompt": …} / {"prompt_token_ids": …}. One
        `SamplingParams` for all, or one each. Outputs come in the order of the prompts; if any request is refused
        (`InvalidRequest`), none runs. Interrupted, it aborts what it started. An answer whose logits are not finite ends with
        `finish_reason` "error", the others are not harmed."""
        many = [prompts] if is_one(prompts) else prompts
        if isinstance(many, (bytes, type(None))) or not isinstance(many, Iterable):
            raise InvalidRequest(f"prompts is {type(prompts).__name__}; give one prompt or a list of them.")
        return self._run([read_prompt(prompt, self.tokenizer) for prompt in many], sampling_params, use_tqdm)

    def chat(self, messages: Union[Sequence[Message], Sequence[Sequence[Message]]], sampling_params: Params = None, *,
             add_generation_prompt: bool = True, use_tqdm: bool = False) -> list[RequestOutput]:
        """Answer one conversation or a list of them; a conversation is a list of {"role", "content"}. The rest as `generate`."""
        if isinstance(messages, (str, Mapping)) or not messages:
            raise InvalidRequest("messages must be a list of {'role', 'content'}, or a list of such lists.")
        many = [messages] if isinstance(messages[0], Mapping) else messages
        return self._run([self._read_chat(chat, add_generation_prompt) for chat in many], sampling_params, use_tqdm)

    def stream(self, prompt: Union[Prompt, Sequence[Message]], sampling_params: Optional[SamplingParams] = None) -> Stream:
        """Answer one prompt (or chat) and yield what each step adds: text and token ids are deltas, the last has `finished`.
        Closing the iterator, or dropping it, aborts the request."""
        chat = not isinstance(prompt, (str, Mapping)) and len(prompt) > 0 and isinstance(prompt[0], Mapping)
        text, ids = self._read_chat(prompt, True) if chat else read_prompt(prompt, self.tokenizer)
        return Stream(self, self._add(ids, sampling_params or SamplingParams()), text)

    def score(self, text: Prompt) -> Score:
        """The log-probability of every token of a text of two tokens or more, and its perplexity."""
        _, ids = read_prompt(text, self.tokenizer)
        if not 2 <= len(ids) <= self.max_model_len:
            raise InvalidRequest(f"The text has {len(ids)} tokens; a score needs 2 to {self.max_model_len}, the context.")
        # The last token is only ever predicted, so it is held back and looked up among the candidates of the answer.
        params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, logprobs=self.config.vocab, ignore_eos=True,
                                detokenize=False)
        request = self._add(ids[:-1], params)
        progress = self._finish([request], False)[request.id][0]
        if not progress.tokens:
            raise TinyserveError(f"The text cannot be scored: {progress.sequence.stop_reason}.")
        logprobs = [token.logprob for token in progress.sequence.prompt_logprobs[1:]]
        logprobs.append(next(value for id, value, _ in progress.tokens[0].alternatives if id == ids[-1]))
        return Score(ids, logprobs, math.exp(-sum(logprobs) / len(logprobs)))

    def abort(self, request_id: Union[str, Sequence[str]]) -> None:
        """End requests at once; their streams get a last output with `finish_reason` "abort". Unknown ids are no error."""
        for each in [request_id] if isinstance(request_id, str) else request_id:
            self._deliver(self.engine.abort(each))

    # --- requests ---

    def _read_chat(self, messages: Sequence[Message], add_generation_prompt: bool) -> tuple[str, list[int]]:
        text = self.tokenizer.render_chat(list(messages), add_generation_prompt)
        return text, self.tokenizer.encode(text, add_special_tokens=False)

    def _add(self, ids: Sequence[int], params: SamplingParams) -> Request:
        if not isinstance(params, SamplingParams):
            raise InvalidRequest(f"sampling_params is {type(params).__name__}; give a SamplingParams.")
        request = self.engine.add(str(self._count), ids, params, seed=self.seed * 1_000_003 + self._count)
        self._inbox[request.id] = deque()
        self._count += 1
        return request

    def _deliver(self, news: Iterable[Progress]) -> None:
        """Progress of requests that were added to the engine directly is theirs to collect, and not kept here."""
        for progress in news:
            inbox = self._inbox.get(progress.sequence.request.id)
            if inbox is not None:
                inbox.append(progress)

    def _next(self, request_id: str) -> Progress:
        """The request's next news, stepping as often as it takes; news of others waits in their inboxes."""
        inbox = self._inbox[request_id]
        while not inbox:
            if not self.engine.is_live(request_id):
                raise TinyserveError(f"Request {request_id} was ended behind this LLM's back; use LLM.abort.")
            self._deliver(self.engine.step())
        return inbox.popleft()

    def _forget(self, request_id: str) -> None:
        self.engine.abort(request_id)
        self._inbox.pop(request_id, None)

    def _finish(self, requests: Sequence[Request], show: bool) -> dict[str, list[Progress]]:
        """Every progress of these requests, to their ends. Interrupted, it aborts them all."""
        news: dict[str, list[Progress]] = {}
        try:
            for request in _progress_bar(requests, show):
                unfinished, news[request.id] = request.params.n, []
                while unfinished:
                    progress = self._next(request.id)
                    news[request.id].append(progress)
                    unfinished -= progress.finish_reason is not None
        finally:
            for request in requests:
                self._forget(request.id)
        return news

    def _run(self, prompts: Sequence[tuple[Optional[str], list[int]]], params: Params, show: bool) -> list[RequestOutput]:
        each = list(params) if isinstance(params, (list, tuple)) else [params or SamplingParams()] * len(prompts)
        if len(each) != len(prompts):
            raise InvalidRequest(f"{len(prompts)} prompts came with {len(each)} sampling parameters; give one, or one each.")
        requests: list[Request] = []
        try:
            for (_, ids), one in zip(prompts, each):
                requests.append(self._add(ids, one))
        except BaseException:
            for request in requests:
                self._forget(request.id)
            raise
        news = self._finish(requests, show)
        return [OutputBuilder(request, text, self.tokenizer).whole(news[request.id]) for request, (text, _) in zip(requests, prompts)]


class Stream(Iterator[RequestOutput]):
    """The answer to one prompt as it grows. `close()`, or the end of a `with` block, aborts what is left of it."""

    def __init__(self, llm: LLM, request: Request, prompt: Optional[str]):
        self.request_id = request.id
        self._llm, self._unfinished = llm, request.params.n
        self._outputs = OutputBuilder(request, prompt, llm.tokenizer)

    def __next__(self) -> RequestOutput:
        if not self._unfinished:
            raise StopIteration
        try:
            progress = self._llm._next(self.request_id)
        except BaseException:
            self.close()
            raise
        self._unfinished -= progress.finish_reason is not None
        output = self._outputs.delta(progress, not self._unfinished)
        if not self._unfinished:
            self.close()
        return output

    def close(self) -> None:
        """Abort the request if it has not finished; twice is no error."""
        self._unfinished = 0
        self._llm._forget(self.request_id)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *problem: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _check_sizes(**sizes: tuple[Any, int]) -> None:
    for name, (value, least) in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InvalidRequest(f"{name} is {value!r}; it must be an integer of {least} or more.")


def _context(config: ModelConfig, wanted: Optional[int]) -> int:
    """The longest prompt plus answer; rotary positions may be stretched as far as the configuration's scaling says."""
    scaling = config.rope_scaling
    factor = scaling.get("factor", 1) if scaling.get("rope_type") in ("linear", "dynamic", "yarn") else 1
    longest = max(config.context_length, int(scaling.get("original_max_position_embeddings", 0) * factor))
    if scaling.get("rope_type") in ("linear", "dynamic"):
        longest = max(longest, int(config.context_length * factor))
    if wanted is None:
        return min(config.context_length, DEFAULT_POSITIONS)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 2 <= wanted <= longest:
        raise InvalidRequest(f"max_model_len is {wanted!r}; this model allows 2 to {longest}.")
    return wanted


def _progress_bar(requests: Sequence[Request], show: bool) -> Any:
    if not show:
        return requests
    from tqdm import tqdm

    return tqdm(requests, desc="prompts", unit="prompt")
