"""Who runs in the next step, and how many tokens each.

There is no prefill phase and no decode phase: a sequence has computed some of its tokens and catches up, within the step's token
budget: first those that want one token, then prompts in chunks. Who waits goes by priority, and by arrival among equals; waiting
`AGEING` steps is worth one level of priority, so nobody is passed for ever.

Two ways to share memory. Without preemption a sequence is admitted when the pool holds blocks for all that it may grow to. With it,
blocks for the tokens that are there are enough; where they run out the newest sequence gives its blocks back, waits, and computes
its tokens again. The oldest is never the victim of a newer one, so it always comes to its end.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from operator import attrgetter
from typing import Optional

from ..cache.pool import BlockPool, blocks_for
from ..cache.prefix import HashChain
from .request import Sequence

PROMPT_LOGPROB_CHUNK = 64  # logits of this many prompt tokens at a time; a row of logits is large
AGEING = 100


@dataclass(frozen=True)
class Row:
    """`count` tokens of one sequence, from position `start`, and why: "decode", "chunk" or "last chunk" of what is to be computed."""

    sequence: Sequence
    start: int
    count: int
    reason: str = ""

    @property
    def samples(self) -> bool:
        """True where the row ends at the sequence's last token, so that a new one is drawn."""
        return self.start + self.count == self.sequence.length


@dataclass(frozen=True)
class Plan:
    """One step: its rows in order, the sequences admitted in it, how many still wait, and those that gave up their blocks."""

    rows: tuple[Row, ...]
    admitted: tuple[Sequence, ...]
    waiting: int
    preempted: tuple[Sequence, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(row.count for row in self.rows)


class Scheduler:
    """Holds the waiting and the running sequences. `static`: a batch is admitted only when the one before it has ended."""

    def __init__(self, pool: BlockPool, block_size: int, max_num_seqs: int, max_num_batched_tokens: int, *,
                 index: Optional[HashChain] = None, key: str = "", preempt: bool = False, static: bool = False):
        self.pool, self.block_size, self.index, self.key = pool, block_size, index, key
        self.max_num_seqs, self.budget = max_num_seqs, max_num_batched_tokens
        self.preempt, self.static = preempt, static
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self._steps = self._added = 0

    def blocks_needed(self, sequence: Sequence) -> int:
        """Blocks for all that the sequence may grow to; its last token is never read, so it needs none."""
        return blocks_for(max(1, len(sequence.request.prompt_ids) + sequence.limit - 1), self.block_size)

    def add(self, sequence: Sequence) -> None:
        """Give a sequence its place in the queue."""
        sequence.turn = (sequence.request.priority * AGEING + self._steps, self._added)
        self._added += 1
        insort(self.waiting, sequence, key=attrgetter("turn"))

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it is, and give back its blocks."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self.pool.release(sequence.blocks)
        sequence.blocks = []

    def schedule(self) -> Plan:
        """The next step: running sequences, those that want one token first, then as many waiting ones as fit."""
        self._steps += 1
        may_admit = not (self.static and self.running)
        rows: list[Row] = []
        preempted: list[Sequence] = []
        for sequence in sorted(self.running, key=lambda each: each.length - each.num_computed > 1):
            if sequence not in preempted:
                self._give(sequence, rows, preempted)
        admitted = self._admit(rows) if may_admit and not preempted else []
        return Plan(tuple(rows), tuple(admitted), len(self.waiting), tuple(preempted))

    def _admit(self, rows: list[Row]) -> list[Sequence]:
        admitted: list[Sequence] = []
        while self.waiting and len(self.running) < self.max_num_seqs and (self.static or _tokens(rows) < self.budget):
            sequence = self.waiting[0]
            if not self._take(sequence):
                break
            del self.waiting[0]
            self.running.append(sequence)
            admitted.append(sequence)
            self._give(sequence, rows, [])
        return admitted

    def _take(self, sequence: Sequence) -> bool:
        """Give a waiting sequence its blocks, those that the prefix index knows first; False where memory is too short."""
        needed = blocks_for(sequence.length, self.block_size) if self.preempt else self.blocks_needed(sequence)
        hits, link = [], None
        if self.index is not None:
            # A sequence that notes its prompt's logprobs computes every token, whatever is known.
            known = [] if sequence.wants_prompt_logprobs else sequence.tokens(0, sequence.length)
            hits, link = self.index.match(f"{self.key}/{sequence.request.salt}", known)
        revived = sum(not self.pool.references(block) for block in hits)
        if needed - len(hits) > self.pool.available - revived:
            return False
        self.pool.share(hits)
        sequence.blocks = hits + self.pool.take(needed - len(hits))
        sequence.num_computed = sequence.num_cached = len(hits) * self.block_size
        sequence.link, sequence.published = link, len(hits)
        return True

    def publish(self, sequence: Sequence) -> None:
        """Make the sequence's full blocks known. Only for sequences whose newest logits were finite: a bad key or value reaches every
        later logit of its sequence."""
        if self.index is None:
            return
        for i in range(sequence.published, sequence.num_computed // self.block_size):
            tokens = sequence.tokens(i * self.block_size, self.block_size)
            sequence.link = self.index.publish(sequence.link, tokens, sequence.blocks[i])
            sequence.published = i + 1

    def _give(self, sequence: Sequence, rows: list[Row], preempted: list[Sequence]) -> None:
        """Add the sequence's row, as long as budget and memory allow."""
        left = sequence.length - sequence.num_computed
        count = min(self.budget - _tokens(rows), left)
        if sequence.wants_prompt_logprobs:
            count = min(count, PROMPT_LOGPROB_CHUNK)
        if count > 0 and self._grow(sequence, sequence.num_computed + count, rows, preempted):
            reason = "chunk" if count < left else "decode" if left == 1 else "last chunk"
            rows.append(Row(sequence, sequence.num_computed, count, reason))

    def _grow(self, sequence: Sequence, tokens: int, rows: list[Row], preempted: list[Sequence]) -> bool:
        """Blocks for this many tokens, the newest sequences giving up theirs; False where that is this one itself."""
        missing = blocks_for(tokens, self.block_size) - len(sequence.blocks)
        while missing > self.pool.available:
            victim = max(self.running, key=attrgetter("turn"))
            rows[:] = [row for row in rows if row.sequence is not victim]
            self.remove(victim)
            victim.num_computed = 0
            victim.preemptions += 1
            insort(self.waiting, victim, key=attrgetter("turn"))
            preempted.append(victim)
            if victim is sequence:
                return False
        sequence.blocks += self.pool.take(max(0, missing))
        return True


def _tokens(rows: list[Row]) -> int:
    return sum(row.count for row in rows)
