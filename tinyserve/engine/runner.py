"""Runs a plan: lays its tokens out as one batch, calls the model, returns logits and, where no more is to be done, tokens.

Where the kernel set can record, a step of a shape that has been seen is replayed: the batch's numbers are written into the arrays
that the recording reads, and one compiled call computes the rest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any, Optional

import numpy as np

from ..cache.pool import blocks_for
from ..cache.store import KVStore
from ..kernels.selection import overridden
from ..models.batch import ForwardBatch
from .scheduler import Plan, Row

# A long step is rarely seen again in the same shape, and each recording holds its own activations and logits.
_KEPT_TOKENS, _KEPT_RECORDINGS, _KEPT_ROWS = 64, 16, 256
_FIELDS = [item.name for item in fields(ForwardBatch)]
Draw = tuple[np.ndarray, ...]  # the arguments of the `sample` op after its logits, [R] each


@dataclass(frozen=True)
class _Recording:
    batch: ForwardBatch
    draw: Optional[Draw]
    replay: Callable[[], tuple[Any, Any]]


class Runner:
    """The model, its caches, and the recordings of its steps."""

    def __init__(self, decoder: Any, store: KVStore, ops: Any, eager: bool = False):
        self.decoder, self.store, self.ops, self.eager = decoder, store, ops, eager
        self._recordings: OrderedDict[tuple[Any, ...], _Recording] = OrderedDict()

    def run(self, plan: Plan, draw: Optional[Draw] = None) -> tuple[Any, Any]:
        """(logits [R, V] for the plan's logit rows, in order; the token ids [R] that `draw` chooses, or None without it)."""
        batch = self.build(plan.rows)
        recorder = None if self.eager or overridden() else self.ops.recorder()
        if recorder is None:
            on_device = ForwardBatch(*(self.ops.array(getattr(batch, name)) for name in _FIELDS))
            return self._step(on_device, None if draw is None else tuple(self.ops.array(values) for values in draw))
        return self._recorded(recorder, batch, draw).replay()

    def _step(self, batch: ForwardBatch, draw: Optional[Draw]) -> tuple[Any, Any]:
        logits = self.decoder.forward(batch, self.store.layers)
        return logits, None if draw is None else self.ops.sample(logits, *draw)

    def _recorded(self, recorder: Any, batch: ForwardBatch, draw: Optional[Draw]) -> _Recording:
        """The recording of this shape, holding this step's numbers."""
        key = (len(batch.token_ids), *batch.block_tables.shape, len(batch.logit_rows), draw is None)
        found = self._recordings.get(key)
        if found is None:
            own = None if draw is None else tuple(values.copy() for values in draw)
            found = _Recording(batch, own, recorder.record(lambda: self._step(batch, own)))
            if len(batch.token_ids) <= _KEPT_TOKENS and len(batch.logit_rows) <= len(batch.context_lengths):
                self._recordings[key] = found
                self._forget_oldest()
            return found
        self._recordings.move_to_end(key)
        for name in _FIELDS:
            getattr(found.batch, name)[...] = getattr(batch, name)
        for held, values in zip(found.draw or (), draw or ()):
            held[...] = values
        return found

    def _forget_oldest(self) -> None:
        rows = sum(len(each.batch.logit_rows) for each in self._recordings.values())
        while len(self._recordings) > _KEPT_RECORDINGS or rows > _KEPT_ROWS:
            _, oldest = self._recordings.popitem(last=False)
            rows -= len(oldest.batch.logit_rows)

    def build(self, rows: tuple[Row, ...]) -> ForwardBatch:
        """The whole batch, as host arrays. The table is as wide as the longest context needs, rounded up to a power of two."""
        counts = [row.count for row in rows]
        ids = [token for row in rows for token in row.sequence.tokens(row.start, row.count)]
        starts = np.array([0, *accumulate(counts)], np.int32)
        first = np.array([row.start for row in rows], np.int32)
        contexts = first + np.array(counts, np.int32)
        owners = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
        positions = np.arange(len(ids), dtype=np.int32) + (first - starts[:-1])[owners]
        width = 1 << (blocks_for(int(contexts.max()), self.store.block_size) - 1).bit_length()
        tables = self.store.tables([row.sequence.blocks for row in rows], width)
        return ForwardBatch(np.array(ids, np.int32), positions, self.store.slots(tables, owners, positions), tables, starts, contexts,
                            np.array(list(_logit_rows(rows, starts)), np.int32))


def _logit_rows(rows: tuple[Row, ...], starts: np.ndarray) -> Iterator[int]:
    """Every token where prompt logprobs are wanted, else the last of a row that samples."""
    for row, start, stop in zip(rows, starts[:-1].tolist(), starts[1:].tolist()):
        if row.sequence.wants_prompt_logprobs and row.start < len(row.sequence.request.prompt_ids):
            yield from range(start, stop)
        elif row.samples:
            yield stop - 1
