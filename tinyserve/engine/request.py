"""What was asked (`Request`, which never changes) and how far it has come (`Sequence`, the engine's own)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from ..text.params import SamplingParams
from ..text.sampler import SampledToken, SamplingState


@dataclass(frozen=True)
class Request:
    """One prompt and its parameters. `seed` is the request's own, drawn at admission where the parameters name none."""

    id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    arrival: float
    salt: str = ""  # requests share cached blocks only with those of the same salt
    priority: int = 0  # the lower goes first


@dataclass
class Timeline:
    """Where a sequence's time went, in seconds. What is left of e2e is `stalls`: steps it did not take part in, and the waiting
    between steps."""

    arrival: float
    scheduled: Optional[float] = None
    first_token: Optional[float] = None
    finished: Optional[float] = None
    prefill: float = 0.0
    decode: float = 0.0
    detokenize: float = 0.0

    def parts(self) -> dict[str, float]:
        """queue + prefill + stalls + decode + detokenize = e2e, in seconds."""
        if self.finished is None:
            raise ValueError("The sequence has not finished.")
        e2e = self.finished - self.arrival
        queue = (self.finished if self.scheduled is None else self.scheduled) - self.arrival
        stalls = e2e - queue - self.prefill - self.decode - self.detokenize
        return {"queue": queue, "prefill": self.prefill, "stalls": stalls, "decode": self.decode, "detokenize": self.detokenize, "e2e": e2e}


@dataclass(eq=False)
class Sequence:
    """One of a request's n samples. `num_computed` tokens of prompt + output have their keys and values in `blocks`."""

    request: Request
    index: int
    sampling: SamplingState
    limit: int  # output tokens at most: max_tokens, or what the context leaves
    timeline: Timeline
    blocks: list[int] = field(default_factory=list)
    num_computed: int = 0
    num_cached: int = 0  # of these, found in the prefix index at the last admission
    link: Any = None  # the last block that the prefix index knows of this sequence
    published: int = 0  # how many of its blocks these are
    turn: tuple[int, int] = (0, 0)  # the place in the queue, kept over preemption
    preemptions: int = 0
    finish_reason: Optional[str] = None
    stop_reason: Optional[int | str] = None
    prompt_logprobs: list[Optional[SampledToken]] = field(default_factory=lambda: [None])

    @property
    def output_ids(self) -> list[int]:
        return self.sampling.output_ids

    @property
    def length(self) -> int:
        """Tokens so far, prompt and output."""
        return len(self.request.prompt_ids) + len(self.output_ids)

    @property
    def wants_prompt_logprobs(self) -> bool:
        """One sample notes them for all."""
        return self.request.params.prompt_logprobs is not None and self.index == 0

    def tokens(self, start: int, count: int) -> list[int]:
        """Token ids of positions start..start+count."""
        prompt = self.request.prompt_ids
        if start >= len(prompt):
            return self.output_ids[start - len(prompt):start - len(prompt) + count]
        part = list(prompt[start:start + count])
        return part + self.output_ids[: count - len(part)]
