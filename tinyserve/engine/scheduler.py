"""Who runs in the next step, and how many tokens each.

There is no prefill phase and no decode phase: a sequence has computed some of its tokens and catches up, within the step's token
budget. First come, first served; a sequence is admitted when the pool holds blocks for all that it may grow to, so that nothing
that has started ever waits for memory.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ..cache.pool import BlockPool, blocks_for
from .request import Sequence

PROMPT_LOGPROB_CHUNK = 64  # logits of this many prompt tokens at a time; a row of logits is large


@dataclass(frozen=True)
class Row:
    """`count` tokens of one sequence, from position `start`."""

    sequence: Sequence
    start: int
    count: int

    @property
    def samples(self) -> bool:
        """True where the row ends at the sequence's last token, so that a new one is drawn."""
        return self.start + self.count == self.sequence.length


@dataclass(frozen=True)
class Plan:
    """One step: its rows in order, the sequences admitted in it, and how many still wait."""

    rows: tuple[Row, ...]
    admitted: tuple[Sequence, ...]
    waiting: int

    @property
    def tokens(self) -> int:
        return sum(row.count for row in self.rows)


class Scheduler:
    """Holds the waiting and the running sequences."""

    def __init__(self, pool: BlockPool, block_size: int, max_num_seqs: int, max_num_batched_tokens: int):
        self.pool, self.block_size = pool, block_size
        self.max_num_seqs, self.budget = max_num_seqs, max_num_batched_tokens
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def blocks_needed(self, sequence: Sequence) -> int:
        """Blocks for all that the sequence may grow to; its last token is never read, so it needs none."""
        return blocks_for(max(1, len(sequence.request.prompt_ids) + sequence.limit - 1), self.block_size)

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it is, and free its blocks."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self.pool.release(sequence.blocks)
        sequence.blocks = []

    def schedule(self) -> Plan:
        """The next step: running sequences in the order of their admission, then as many waiting ones as fit."""
        left, rows, admitted = self.budget, [], []
        for sequence in self.running:
            left -= self._give(sequence, left, rows)
        while self.waiting and left > 0 and len(self.running) < self.max_num_seqs:
            needed = self.blocks_needed(self.waiting[0])
            if needed > self.pool.free:
                break
            sequence = self.waiting.popleft()
            sequence.blocks = self.pool.take(needed)
            self.running.append(sequence)
            admitted.append(sequence)
            left -= self._give(sequence, left, rows)
        return Plan(tuple(rows), tuple(admitted), len(self.waiting))

    def _give(self, sequence: Sequence, left: int, rows: list[Row]) -> int:
        count = min(left, sequence.length - sequence.num_computed)
        if sequence.wants_prompt_logprobs:
            count = min(count, PROMPT_LOGPROB_CHUNK)
        if count > 0:
            rows.append(Row(sequence, sequence.num_computed, count))
        return max(count, 0)
