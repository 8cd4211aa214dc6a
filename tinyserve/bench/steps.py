"""What a step costs by the number of tokens in it and by the length of the context behind it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import numpy as np

from ..cache.pool import blocks_for
from ..llm import LLM
from ..models.batch import ForwardBatch
from .protocol import interleave, ratio, seconds
from .records import Record, make


class StepTimer:
    """Steps of the model alone, on caches of its own: any number of tokens after any context."""

    def __init__(self, llm: LLM, longest: int):
        self.decoder, self.ops, self.size = llm.engine.runner.decoder, llm.engine.ops, llm.engine.config.block_size
        config, blocks = llm.config, blocks_for(longest, self.size)
        self.caches = [self.ops.new_cache(blocks + 1, self.size, config.kv_heads, config.head_dim, llm.engine.store.dtype)
                       for _ in range(config.layers)]
        self.table = np.arange(1, blocks + 1, dtype=np.int32)[None]
        self.rng, self.vocab = np.random.default_rng(0), config.vocab

    def step(self, tokens: int, context: int) -> Callable[[], float]:
        """A function that runs one recorded step of `tokens` tokens that end a context of `context`, and returns its seconds."""
        positions = np.arange(context - tokens, context, dtype=np.int32)
        width = 1 << (blocks_for(context, self.size) - 1).bit_length()
        table = np.zeros((1, width), np.int32)
        table[0, : min(width, self.table.shape[1])] = self.table[0, :width]
        batch = ForwardBatch(self.rng.integers(0, self.vocab, tokens).astype(np.int32), positions, positions + self.size, table,
                             np.array([0, tokens], np.int32), np.array([context], np.int32), np.arange(tokens, dtype=np.int32))
        replay = self.ops.recorder().record(lambda: self.decoder.forward(batch, self.caches))
        return lambda: seconds(replay)


def bench_steps(llm: LLM, tokens: Sequence[int] = (1, 2, 4, 8, 16, 32), repeats: int = 21) -> Record:
    """One step of several tokens against one of one: what verification and batching pay."""
    timer = StepTimer(llm, 256)
    taken = interleave({str(count): timer.step(count, 128) for count in tokens}, repeats, warmup=3)
    rows = [{"tokens in the step": int(count), "ms": round(statistics.median(values) * 1e3, 3),
             "times one token": round(ratio(taken[str(tokens[0])], values), 3)} for count, values in taken.items()]
    return make("steps", rows, {"repeats": repeats, "order": "in turn", "context": 128, "logits": "every token"}, taken, llm.engine.ops)


def bench_context(llm: LLM, contexts: Sequence[int] = (64, 512, 1024, 2048, 4096), repeats: int = 15) -> Record:
    """Decode at growing contexts: the weights stay, the cache that a step reads grows."""
    timer = StepTimer(llm, max(contexts))
    taken = interleave({str(context): timer.step(1, context) for context in contexts}, repeats, warmup=2)
    rows = [{"context": int(context), "ms a token": round(statistics.median(values) * 1e3, 3),
             f"times {contexts[0]}": round(ratio(taken[str(contexts[0])], values), 3),
             "cache read, MB": round(int(context) * llm.engine.store.token_bytes / 1e6, 1)} for context, values in taken.items()]
    return make("context", rows, {"repeats": repeats, "order": "in turn", "kv dtype": llm.engine.store.dtype}, taken, llm.engine.ops)
