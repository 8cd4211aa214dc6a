"""Logits to tokens: penalties and biases here, the draw in the kernel set's `sample` op.

Order: penalties, biases and bans; then temperature, top_k, top_p, min_p, each on what the one before it kept. Logprobs are of
the raw logits, before all of it. A request's draws depend on its seed and on the position of the token, and on nothing else
that the engine does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Optional

import numpy as np

from .params import SamplingParams


@dataclass
class SamplingState:
    """What the sampler knows of one sequence. `output_ids` is the engine's own list and grows with it."""

    params: SamplingParams
    seed: int
    prompt_ids: Sequence[int]
    output_ids: list[int]
    index: int = 0  # which of a request's n samples
    end_ids: frozenset[int] = frozenset()  # banned until min_tokens are there
    bad_sequences: tuple[tuple[int, ...], ...] = ()
    plain: bool = field(init=False)

    def __post_init__(self) -> None:
        p = self.params
        self.plain = (p.presence_penalty == p.frequency_penalty == 0 and p.repetition_penalty == 1 and not p.logit_bias
                      and not self.bad_sequences and p.min_tokens == 0 and p.logprobs is None)

    def uniform(self) -> float:
        """A number in [0, 1) for the next position: Philox (Salmon et al. 2011) keyed by (seed, sample, position)."""
        key = np.array([self.seed & (2**64 - 1), (self.index << 32) | len(self.output_ids)], np.uint64)
        bits = np.random.Philox(key=key).random_raw() >> 40
        return float(bits) * 2.0**-24

    @cached_property
    def prompt_tokens(self) -> np.ndarray:
        """The prompt's ids, each once."""
        return np.unique(np.array(self.prompt_ids, np.int64))

    @cached_property
    def biases(self) -> tuple[np.ndarray, np.ndarray]:
        """logit_bias as (ids, values)."""
        bias = self.params.logit_bias or {}
        return np.array(list(bias), np.int64), np.array(list(bias.values()), np.float32)


@dataclass(frozen=True)
class SampledToken:
    """A chosen token; with `logprobs` asked for, its own and those of the most likely ones, best first, as (id, logprob, rank)."""

    token_id: int
    logprob: Optional[float] = None
    alternatives: tuple[tuple[int, float, int], ...] = ()


def apply_penalties(logits: np.ndarray, state: SamplingState) -> None:
    """Repetition over prompt and output, presence and frequency over the output alone; in place on logits[V].

    Repetition divides positive and multiplies negative logits (Keskar et al. 2019); the others subtract (OpenAI's API)."""
    p = state.params
    if p.repetition_penalty != 1:
        seen = np.union1d(state.prompt_tokens, np.array(state.output_ids, np.int64))
        values = logits[seen]
        logits[seen] = np.where(values > 0, values / p.repetition_penalty, values * p.repetition_penalty)
    if state.output_ids and (p.presence_penalty or p.frequency_penalty):
        ids, counts = np.unique(np.array(state.output_ids, np.int64), return_counts=True)
        logits[ids] -= (p.presence_penalty + p.frequency_penalty * counts).astype(np.float32)


def apply_bans(logits: np.ndarray, state: SamplingState) -> None:
    """Biases, bad words and the ends that come too early; in place on logits[V]."""
    ids, values = state.biases
    logits[ids] += values
    banned: set[int] = set()
    if len(state.output_ids) < state.params.min_tokens:
        banned |= state.end_ids
    for sequence in state.bad_sequences:
        before = list(sequence[:-1])
        if not before or state.output_ids[-len(before):] == before:
            banned.add(sequence[-1])
    if banned:
        # Subtracted, not assigned: a NaN or an infinity of the model's must stay one, so that the request ends with an error.
        with np.errstate(invalid="ignore"):
            logits[sorted(token for token in banned if token < len(logits))] -= np.inf


class Sampler:
    """Chooses one token for each row of logits."""

    def __init__(self, ops: Any):
        self._ops = ops
        self._greedy: dict[int, tuple[np.ndarray, ...]] = {}

    def sample(self, logits: Any, states: Sequence[SamplingState]) -> list[SampledToken]:
        """logits[R, V], one state a row. A row that holds NaN or offers nothing gives token_id -1."""
        if all(state.plain for state in states):
            return [SampledToken(token) for token in self._draw(logits, states)]
        raw = self._ops.numpy(logits)
        changed = np.array(raw, np.float32)
        for row, state in zip(changed, states):
            apply_penalties(row, state)
            apply_bans(row, state)
        tokens = self._draw(self._ops.array(changed), states)
        wanted = [i for i, state in enumerate(states) if state.params.logprobs is not None]
        logprobs = self._ops.numpy(self._ops.log_softmax(self._ops.array(np.ascontiguousarray(raw[wanted])))) if wanted else []
        rows: Mapping[int, np.ndarray] = dict(zip(wanted, logprobs))
        return [_with_logprobs(token, rows[i], states[i].params.logprobs) if i in rows and token >= 0 else SampledToken(token)
                for i, token in enumerate(tokens)]

    def _draw(self, logits: Any, states: Sequence[SamplingState]) -> list[int]:
        arrays = self.parameters(states)
        ids = self._ops.sample(logits, *(self._ops.array(values) for values in arrays))
        return self._ops.numpy(ids).tolist()

    def parameters(self, states: Sequence[SamplingState]) -> tuple[np.ndarray, ...]:
        """The arguments of the `sample` op after its logits: temperature, top_k, top_p, min_p, uniforms, one a state."""
        count, p = len(states), [state.params for state in states]
        if all(x.greedy for x in p):
            if count not in self._greedy:
                self._greedy[count] = (np.zeros(count, np.float32), np.zeros(count, np.int32), np.ones(count, np.float32),
                                       np.zeros(count, np.float32), np.zeros(count, np.float32))
            return self._greedy[count]
        return (np.array([0 if x.greedy else x.temperature for x in p], np.float32),
                np.array([max(0, x.top_k) for x in p], np.int32),
                np.array([x.top_p for x in p], np.float32), np.array([x.min_p for x in p], np.float32),
                np.array([0 if s.params.greedy else s.uniform() for s in states], np.float32))


def _with_logprobs(token: int, logprobs: np.ndarray, count: int) -> SampledToken:
    return SampledToken(token, float(logprobs[token]), top_logprobs(logprobs, token, count))


def top_logprobs(logprobs: np.ndarray, token: int, count: int) -> tuple[tuple[int, float, int], ...]:
    """The `count` most likely tokens (ties: lowest id) and `token`, as (id, logprob, rank from 1), best first."""
    best = _most_likely(logprobs, min(count, len(logprobs)))
    entries = [(i, float(logprobs[i]), rank) for rank, i in enumerate(best, 1)]
    if token not in best:
        value = logprobs[token]
        rank = 1 + int((logprobs > value).sum()) + int((logprobs[:token] == value).sum())
        entries.append((token, float(value), rank))
    return tuple(entries)


def _most_likely(logprobs: np.ndarray, count: int) -> list[int]:
    """Ids of the `count` largest, ties by rising id. `count` pieces hold a maximum of at least `bound`, so nothing below it is wanted;
    that spares sorting a whole vocabulary."""
    if count == 0:
        return []
    pieces = len(logprobs) // 64
    candidates = np.arange(len(logprobs))
    if pieces > count:
        bound = np.partition(logprobs[: pieces * 64].reshape(pieces, 64).max(axis=1), -count)[-count]
        candidates = np.flatnonzero(logprobs >= bound)
    return candidates[np.argsort(-logprobs[candidates], kind="stable")[:count]].tolist()
