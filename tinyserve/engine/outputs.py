"""What a caller gets back, with the names and shapes of vLLM's offline API, and how it is made from an engine's progress."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Any, Optional, Union

from ..text.sampler import SampledToken
from .engine import Progress
from .request import Request, Timeline


@dataclass(frozen=True)
class Logprob:
    """A token's log-probability under the raw distribution, its rank (1 is the most likely), and its text."""

    logprob: float
    rank: int
    decoded_token: str


@dataclass(frozen=True)
class RequestMetrics:
    """Seconds. TPOT = (e2e - TTFT) / (output tokens - 1), None for one token; `parts` (queue, prefill, stalls, decode and
    detokenize) add up to e2e."""

    ttft: Optional[float]
    tpot: Optional[float]
    e2e: float
    parts: Mapping[str, float]


@dataclass
class CompletionOutput:
    """One answer. `finish_reason`: "stop", "length", "abort", "error" or None while it grows; `stop_reason`: the stop string or
    token id (None for the model's own end token), or what the error was. "error" means that the logits were not finite."""

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


class OutputBuilder:
    """Turns the progress of one request into outputs. `prompt` is the text that was given, None for token ids."""

    def __init__(self, request: Request, prompt: Optional[str], tokenizer: Any):
        self.request, self.prompt, self._tokenizer = request, prompt, tokenizer
        self._cumulative = [0.0] * request.params.n
        self._prompt_given = False

    def delta(self, progress: Progress, finished: bool) -> RequestOutput:
        """What one step added: text and tokens are new, `cumulative_logprob` is the sum so far. The prompt's logprobs come once."""
        notes = None
        if progress.sequence.index == 0 and not self._prompt_given:
            notes, self._prompt_given = self._prompt_logprobs(progress), True
        return self._output([self._completion([progress])], notes, finished)

    def whole(self, news: Many[Progress]) -> RequestOutput:
        """Everything, from all progress of a request that has finished."""
        answers: list[list[Progress]] = [[] for _ in range(self.request.params.n)]
        for progress in news:
            answers[progress.sequence.index].append(progress)
        return self._output([self._completion(mine) for mine in answers], self._prompt_logprobs(answers[0][-1]), True)

    def _output(self, answers: list[CompletionOutput], notes: Any, finished: bool) -> RequestOutput:
        return RequestOutput(self.request.id, self.prompt, list(self.request.prompt_ids), notes, answers, finished)

    def _completion(self, news: Many[Progress]) -> CompletionOutput:
        last = news[-1]
        tokens = [token for progress in news for token in progress.tokens]
        asked, index, ended = self.request.params.logprobs is not None, last.sequence.index, last.finish_reason is not None
        self._cumulative[index] += sum(token.logprob or 0.0 for token in tokens)
        return CompletionOutput(
            index=index, text="".join(progress.text for progress in news), token_ids=[token.token_id for token in tokens],
            cumulative_logprob=self._cumulative[index] if asked else None,
            logprobs=[self._entries(token) for token in tokens] if asked else None, finish_reason=last.finish_reason,
            stop_reason=last.sequence.stop_reason if ended else None,
            metrics=request_metrics(last.sequence.timeline, len(last.sequence.output_ids)) if ended else None)

    def _prompt_logprobs(self, progress: Progress) -> Optional[list[Optional[dict[int, Logprob]]]]:
        if self.request.params.prompt_logprobs is None:
            return None
        return [None if token is None else self._entries(token) for token in progress.sequence.prompt_logprobs]

    def _entries(self, token: SampledToken) -> dict[int, Logprob]:
        return {id: Logprob(value, rank, self._text(id)) for id, value, rank in token.alternatives}

    def _text(self, token: int) -> str:
        return self._tokenizer.decode([token], skip_special_tokens=False) if self._tokenizer else ""


def request_metrics(timeline: Timeline, tokens: int) -> RequestMetrics:
    """The figures of a sequence that has finished after `tokens` output tokens."""
    parts = timeline.parts()
    ttft = None if timeline.first_token is None else timeline.first_token - timeline.arrival
    tpot = (parts["e2e"] - ttft) / (tokens - 1) if ttft is not None and tokens > 1 else None
    return RequestMetrics(ttft, tpot, parts["e2e"], parts)
