"""Runs a plan: lays its tokens out as one batch, calls the model, returns logits.

Where the kernel set can record, a step of a shape that has been seen is replayed: the batch's numbers are written into the arrays
that the recording reads, and one compiled call computes the rest.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import fields
from typing import Any, Callable

import numpy as np

from ..cache.store import KVStore
from ..kernels.selection import overridden
from ..models.batch import ForwardBatch
from .scheduler import Plan, Row

_KEPT_RECORDINGS = 16
_RECORD_UP_TO = 64  # tokens; a longer step is rarely seen again in the same shape
_FIELDS = [item.name for item in fields(ForwardBatch)]


class Runner:
    """The model, its caches, and the recordings of its steps."""

    def __init__(self, decoder: Any, store: KVStore, ops: Any, eager: bool = False):
        self.decoder, self.store, self.ops, self.eager = decoder, store, ops, eager
        self._recordings: OrderedDict[tuple[int, ...], tuple[ForwardBatch, Callable[[], Any]]] = OrderedDict()

    def run(self, plan: Plan) -> Any:
        """Logits [R, V] for the plan's `logit_rows`, in order."""
        batch = self.build(plan.rows)
        recorder = None if self.eager or overridden() else self.ops.recorder()
        if recorder is None:
            on_device = ForwardBatch(*(self.ops.array(getattr(batch, name)) for name in _FIELDS))
            return self.decoder.forward(on_device, self.store.layers)
        return self._replay(recorder, batch)

    def _replay(self, recorder: Any, batch: ForwardBatch) -> Any:
        arrays = [getattr(batch, name) for name in _FIELDS]
        key = (len(batch.token_ids), *batch.block_tables.shape, len(batch.logit_rows))
        found = self._recordings.get(key)
        if found is None:
            found = (batch, recorder.record(lambda: self.decoder.forward(batch, self.store.layers)))
            if len(batch.token_ids) <= _RECORD_UP_TO:
                self._recordings[key] = found
                if len(self._recordings) > _KEPT_RECORDINGS:
                    self._recordings.popitem(last=False)
        else:
            self._recordings.move_to_end(key)
            for name, values in zip(_FIELDS, arrays):
                getattr(found[0], name)[...] = values
        return found[1]()

    def build(self, rows: tuple[Row, ...]) -> ForwardBatch:
        """The whole batch, as host arrays. The table is as wide as the longest context needs, rounded up to a power of two."""
        counts = [row.count for row in rows]
        starts = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(counts, out=starts[1:])
        contexts = np.array([row.start + row.count for row in rows], np.int32)
        size = self.store.block_size
        width = 1 << (-(-int(contexts.max()) // size) - 1).bit_length()
        tables = [row.sequence.blocks for row in rows]
        if len(rows) == 1:
            row = rows[0]
            positions = np.arange(row.start, row.start + row.count, dtype=np.int32)
            ids, slots = row.sequence.tokens(row.start, row.count), self.store.slots(row.sequence.blocks, row.start, row.count)
        else:
            positions = np.concatenate([np.arange(row.start, row.start + row.count, dtype=np.int32) for row in rows])
            ids = [token for row in rows for token in row.sequence.tokens(row.start, row.count)]
            slots = np.concatenate([self.store.slots(row.sequence.blocks, row.start, row.count) for row in rows])
        return ForwardBatch(np.array(ids, np.int32), positions, slots, self.store.tables(tables, width), starts, contexts,
                            np.array(list(_logit_rows(rows, starts)), np.int32))


def _logit_rows(rows: tuple[Row, ...], starts: np.ndarray) -> Any:
    """Every token where prompt logprobs are wanted, else the last of a row that samples."""
    for row, start, stop in zip(rows, starts[:-1].tolist(), starts[1:].tolist()):
        if row.sequence.wants_prompt_logprobs and row.start < len(row.sequence.request.prompt_ids):
            yield from range(start, stop)
        elif row.samples:
            yield stop - 1
