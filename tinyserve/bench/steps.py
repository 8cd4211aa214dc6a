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

    def __init__(self, llm: LLM, longest: int, kv_dtype: str = ""):
        self.decoder, self.ops, self.size = llm.engine.runner.decoder, llm.engine.ops, llm.engine.config.block_size
        config, blocks = llm.config, blocks_for(longest, self.size)
        self.config, dtype = config, kv_dtype or llm.engine.store.dtype
        self.caches = [self.ops.new_cache(blocks + 1, self.size, config.kv_heads, config.head_dim, dtype) for _ in range(config.layers)]
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

    def attention(self, context: int) -> Callable[[], float]:
        """A function that runs one token's attention of every layer over a filled context, and returns its seconds."""
        config, positions = self.config, np.arange(context, dtype=np.int32)
        for keys, values in self.caches:
            k, v = self.rng.standard_normal((2, context, config.kv_heads, config.head_dim), np.float32)
            self.ops.store_kv(k, v, positions + self.size, keys, values)
        q = self.rng.standard_normal((1, config.heads, config.head_dim), np.float32)
        table, ends = self.table[:, : blocks_for(context, self.size)].copy(), (np.array([0, 1], np.int32), np.array([context], np.int32))
        scale = config.head_dim ** -0.5
        replay = self.ops.recorder().record(lambda: [self.ops.attention(q, *pair, table, *ends, scale) for pair in self.caches][-1])
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


def bench_kv(llm: LLM, contexts: Sequence[int] = (512, 1024, 2048, 4096), repeats: int = 15) -> Record:
    """One token's attention over caches of every dtype: what a smaller cache saves."""
    rows, samples, ops = [], {}, llm.engine.ops
    for context in contexts:
        timers = {dtype: StepTimer(llm, context, dtype) for dtype in ops.kv_dtypes}
        taken = interleave({dtype: timer.attention(context) for dtype, timer in timers.items()}, repeats, warmup=2)
        rows += [{"context": context, "kv dtype": dtype, "ms, all layers": round(statistics.median(values) * 1e3, 3),
                  "times faster than float16": round(ratio(values, taken["float16"]), 3)} for dtype, values in taken.items()]
        samples |= {f"{dtype} at {context}": values for dtype, values in taken.items()}
    return make("kv", rows, {"repeats": repeats, "order": "in turn", "tokens in the step": 1}, samples, ops)
