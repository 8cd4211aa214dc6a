"""The engine: add requests, call `step` until there is no work. Synchronous and deterministic; time passes in `step` alone."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Any, Optional

from ..cache.pool import BlockPool, blocks_for
from ..cache.prefix import HashChain
from ..cache.store import KVStore
from ..errors import InvalidRequest
from ..text.params import SamplingParams
from ..text.sampler import SampledToken, Sampler, SamplingState, top_logprobs
from .request import Request, Sequence, Timeline
from .runner import Runner
from .scheduler import Plan, Row, Scheduler
from .stream import TextStream


@dataclass(frozen=True)
class EngineConfig:
    """Sizes of the engine, in tokens and blocks, and its policies. `num_blocks` counts the null block too. `prefix_cache`: blocks of
    equal beginnings are shared. `preempt`: memory is given out as it is needed, and taken back from the newest. `static`: batches run
    to their end before the next one starts."""

    max_model_len: int
    num_blocks: int
    block_size: int = 16
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    kv_dtype: str = "float16"
    eager: bool = False  # call every op, never replay a recorded step
    prefix_cache: bool = False
    preempt: bool = False
    static: bool = False


@dataclass(frozen=True)
class Progress:
    """What a step added to one sequence; the last one carries `finish_reason` ("stop", "length", "abort" or "error")."""

    sequence: Sequence
    tokens: tuple[SampledToken, ...]
    text: str
    finish_reason: Optional[str]


class Engine:
    """Scheduler, runner and sampler around one decoder (`.config`, `.forward(batch, caches)`)."""

    def __init__(self, decoder: Any, ops: Any, config: EngineConfig, tokenizer: Any = None,
                 clock: Callable[[], float] = time.perf_counter):
        model = decoder.config
        self.config, self.ops, self.tokenizer, self.clock = config, ops, tokenizer, clock
        self.vocab = model.vocab
        self.end_ids = frozenset(model.end_ids) | (tokenizer.eos_ids if tokenizer is not None else frozenset())
        self.store = KVStore(ops, layers=model.layers, blocks=config.num_blocks, block_size=config.block_size,
                             kv_heads=model.kv_heads, head_dim=model.head_dim, dtype=config.kv_dtype)
        self.pool = BlockPool(config.num_blocks)
        index = HashChain(self.pool, config.block_size) if config.prefix_cache else None
        self.scheduler = Scheduler(self.pool, config.block_size, config.max_num_seqs, config.max_num_batched_tokens, index=index,
                                   key=config.kv_dtype, preempt=config.preempt, static=config.static)
        self.runner, self.sampler = Runner(decoder, self.store, ops, config.eager), Sampler(ops)
        self.plan: Optional[Plan] = None
        self._live: dict[str, list[Sequence]] = {}
        self._streams: dict[tuple[str, int], TextStream] = {}

    @property
    def has_work(self) -> bool:
        """True while a request is waiting or running."""
        return bool(self._live)

    def is_live(self, request_id: str) -> bool:
        """True from `add` until the request's last progress."""
        return request_id in self._live

    # --- requests ---

    def add(self, request_id: str, prompt_ids: Many[int], params: SamplingParams, seed: Optional[int] = None, *,
            salt: str = "", priority: int = 0) -> Request:
        """Queue a request; nothing is computed yet. It shares cached blocks with requests of its `salt` only; a lower `priority` goes
        first. Raises `InvalidRequest` for what can never be served."""
        limit = self._limit(request_id, prompt_ids, params)
        chosen = params.seed if params.seed is not None else seed if seed is not None else secrets.randbits(63)
        request = Request(request_id, tuple(map(int, prompt_ids)), params, chosen, self.clock(), salt, priority)
        bad = self._bad_sequences(params)
        sequences = []
        for index in range(params.n):
            state = SamplingState(params, chosen, request.prompt_ids, [], index, self._bannable_ends(params), bad)
            sequences.append(Sequence(request, index, state, limit, Timeline(request.arrival)))
            self._streams[request_id, index] = TextStream(self.tokenizer, params)
        self._live[request_id] = sequences
        for sequence in sequences:
            self.scheduler.add(sequence)
        return request

    def _limit(self, request_id: str, prompt_ids: Many[int], params: SamplingParams) -> int:
        """Output tokens at most, after every check that needs no computing."""
        size, longest = len(prompt_ids), self.config.max_model_len
        if request_id in self._live:
            raise InvalidRequest(f"Request id {request_id!r} is in use.")
        if not size:
            raise InvalidRequest("The prompt is empty; give at least one token.")
        if size >= longest:
            raise InvalidRequest(f"The prompt has {size} tokens and the context holds {longest}, which leaves no room for an answer.")
        if min(prompt_ids) < 0 or max(prompt_ids) >= self.vocab:
            raise InvalidRequest(f"The prompt holds a token id outside 0..{self.vocab - 1}.")
        for name, ids in (("logit_bias", params.logit_bias or ()), ("stop_token_ids", params.stop_token_ids or ())):
            if any(token >= self.vocab for token in ids):
                raise InvalidRequest(f"{name} holds a token id outside 0..{self.vocab - 1}.")
        if self.tokenizer is None and (params.stops or params.bad_words):
            raise InvalidRequest("Stop strings and bad words need a tokenizer, and this engine has none.")
        limit = min(longest - size, params.max_tokens or longest)
        needed = blocks_for(max(1, size + limit - 1), self.config.block_size)
        if needed > self.pool.capacity:
            raise InvalidRequest(f"The request may grow to {size + limit} tokens, which need {needed} cache blocks; there are "
                                 f"{self.pool.capacity}. Shorten the prompt or lower max_tokens.")
        return limit

    def _bannable_ends(self, params: SamplingParams) -> frozenset[int]:
        """Tokens that end a text, and so must not come before min_tokens."""
        ends = frozenset() if params.ignore_eos else self.end_ids
        return ends | frozenset(params.stop_token_ids or ())

    def _bad_sequences(self, params: SamplingParams) -> tuple[tuple[int, ...], ...]:
        """Each bad word as tokens, at the start of a text and after a space."""
        variants = {tuple(self.tokenizer.encode(prefix + word.lstrip(), add_special_tokens=False))
                    for word in params.bad_words or () for prefix in ("", " ")}
        return tuple(sorted(ids for ids in variants if ids))

    def abort(self, request_id: str) -> list[Progress]:
        """End a request at once, in any state; an unknown id is no error."""
        return [self._finish(sequence, "abort", ()) for sequence in list(self._live.get(request_id, ()))]

    # --- the step ---

    def step(self) -> list[Progress]:
        """Compute one plan and return what it added, in the plan's order."""
        started = self.clock()
        plan = self.plan = self.scheduler.schedule()
        if not plan.rows:
            return []
        for sequence in plan.admitted:
            if sequence.timeline.scheduled is None:
                sequence.timeline.scheduled = started
        tokens = iter(self._compute(plan))
        ended = self.clock()
        progress = []
        for row in plan.rows:
            self._account(row, ended - started)
            token = next(tokens) if row.samples else None
            if row.sequence.finish_reason is not None:  # aborted while the step ran
                continue
            row.sequence.num_computed += row.count
            if token is not None:
                if token.token_id >= 0:
                    self.scheduler.publish(row.sequence)
                progress.append(self._advance(row.sequence, token))
        return progress

    def _account(self, row: Row, seconds: float) -> None:
        timeline = row.sequence.timeline
        if row.start < len(row.sequence.request.prompt_ids):
            timeline.prefill += seconds
        else:
            timeline.decode += seconds

    def _compute(self, plan: Plan) -> list[SampledToken]:
        """Run the model, note prompt logprobs, and choose one token for every row that samples."""
        states = [row.sequence.sampling for row in plan.rows if row.samples]
        noted = any(self._notes(row) for row in plan.rows)
        # Without penalties or logprobs the draw needs nothing but the logits, so it is part of the model's own step.
        draw = self.sampler.parameters(states) if states and not noted and all(state.plain for state in states) else None
        logits, ids = self.runner.run(plan, draw)
        if ids is not None:
            return [SampledToken(token) for token in self.ops.numpy(ids).tolist()]
        picked = self._note(plan, logits) if noted else logits
        return self.sampler.sample(picked, states) if states else []

    def _notes(self, row: Row) -> bool:
        return row.sequence.wants_prompt_logprobs and row.start < len(row.sequence.request.prompt_ids)

    def _note(self, plan: Plan, logits: Any) -> Any:
        """Keep the prompt's logprobs; the logits of the rows that sample."""
        at, chosen = 0, []
        for row in plan.rows:
            if self._notes(row):
                self._note_prompt_logprobs(row, logits[at:at + row.count])
                at += row.count
            elif row.samples:
                at += 1
            if row.samples:
                chosen.append(at - 1)
        return logits[chosen]

    def _note_prompt_logprobs(self, row: Row, logits: Any) -> None:
        sequence, count = row.sequence, row.sequence.request.params.prompt_logprobs or 0
        prompt = sequence.request.prompt_ids
        logprobs = self.ops.numpy(self.ops.log_softmax(logits))
        for offset, values in enumerate(logprobs):
            following = row.start + offset + 1
            if len(sequence.prompt_logprobs) == following < len(prompt):  # noted already where it was preempted
                token = prompt[following]
                sequence.prompt_logprobs.append(SampledToken(token, float(values[token]), top_logprobs(values, token, count)))

    def _advance(self, sequence: Sequence, token: SampledToken) -> Progress:
        """Append a token, and see whether the sequence ends with it."""
        now = self.clock()
        if token.token_id < 0:
            sequence.stop_reason = "the model's logits are not finite"
            return self._finish(sequence, "error", ())
        if sequence.timeline.first_token is None:
            sequence.timeline.first_token = now
        sequence.output_ids.append(token.token_id)
        params, reason, text = sequence.request.params, None, ""
        ends = token.token_id in self.end_ids and not params.ignore_eos
        named = not ends and token.token_id in (params.stop_token_ids or ())
        if ends or named:
            reason, sequence.stop_reason = "stop", token.token_id if named else None
        if reason is None or (named and params.include_stop_str_in_output):
            text, stop = self._streams[sequence.request.id, sequence.index].push(token.token_id, len(sequence.output_ids))
            if stop is not None:
                reason, sequence.stop_reason = "stop", stop
        if reason is None and len(sequence.output_ids) >= sequence.limit:
            reason = "length"
        sequence.timeline.detokenize += self.clock() - now
        return self._finish(sequence, reason, (token,), text) if reason else Progress(sequence, (token,), text, None)

    def _finish(self, sequence: Sequence, reason: str, tokens: tuple[SampledToken, ...], text: str = "") -> Progress:
        stream = self._streams.pop((sequence.request.id, sequence.index))
        if not (reason == "stop" and isinstance(sequence.stop_reason, str)):
            rest, stop = stream.finish()
            text += rest
            if stop is not None:
                reason, sequence.stop_reason = "stop", stop
        sequence.finish_reason, sequence.timeline.finished = reason, self.clock()
        self.scheduler.remove(sequence)
        live = self._live[sequence.request.id]
        live.remove(sequence)
        if not live:
            del self._live[sequence.request.id]
        return Progress(sequence, tokens, text, reason)
