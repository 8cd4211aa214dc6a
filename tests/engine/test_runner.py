"""The runner: batches as arrays, and recorded steps that are replayed with new numbers."""

from types import SimpleNamespace

import numpy as np

from tinyserve.cache.store import KVStore
from tinyserve.engine.request import Request, Sequence, Timeline
from tinyserve.engine.runner import Runner
from tinyserve.engine.scheduler import Plan, Row
from tinyserve.kernels import select, use
from tinyserve.text.params import SamplingParams

OPS = select("cpu")


class TableDecoder:
    """Logits are a row of a table, found by the token: an op of the kernel set, so that it can be recorded."""

    table = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)
    calls = 0

    def forward(self, batch, caches):
        self.calls += 1
        return OPS.take_rows(OPS.take_rows(self.table, batch.token_ids), batch.logit_rows)


def make(**more):
    return Runner(TableDecoder(), KVStore(OPS, layers=1, blocks=40, block_size=4, kv_heads=1, head_dim=16, dtype="float32"), OPS, **more)


def row(tokens, start, count, blocks, **params):
    request = Request("x", tuple(tokens), SamplingParams(**params), 0, 0.0)
    return Row(Sequence(request, 0, SimpleNamespace(output_ids=[]), 8, Timeline(0.0), blocks), start, count)


def plan(*rows):
    return Plan(rows, (), 0)


def draw(count, temperature=0.0):
    return (np.full(count, temperature, np.float32), np.zeros(count, np.int32), np.ones(count, np.float32),
            np.zeros(count, np.float32), np.zeros(count, np.float32))


def test_a_batch_of_a_chunk_a_decode_and_a_prompt():
    batch = make().build((row(range(10, 20), 3, 3, [5, 6, 7]), row(range(7), 6, 1, [9, 2]), row([30, 31], 0, 2, [4])))
    assert batch.token_ids.tolist() == [13, 14, 15, 6, 30, 31]
    assert batch.positions.tolist() == [3, 4, 5, 6, 0, 1]
    assert batch.slots.tolist() == [23, 24, 25, 10, 16, 17]
    assert batch.block_tables.tolist() == [[5, 6], [9, 2], [4, 0]]
    assert batch.query_start.tolist() == [0, 3, 4, 6] and batch.context_lengths.tolist() == [6, 7, 2]
    assert batch.logit_rows.tolist() == [3, 5]  # the chunk does not reach its last token
    assert all(value.dtype == np.int32 and value.flags.c_contiguous for value in vars(batch).values())


def test_prompt_logprobs_ask_for_every_row():
    batch = make().build((row(range(5), 0, 3, [1, 2], prompt_logprobs=0), row([1], 0, 1, [3])))
    assert batch.logit_rows.tolist() == [0, 1, 2, 3]


def test_a_shape_is_recorded_once_and_replayed_with_new_numbers():
    runner = make()
    for token in (3, 17, 8):
        logits, ids = runner.run(plan(row([token], 0, 1, [1])), draw(1))
        assert (logits == TableDecoder.table[token]).all() and ids.tolist() == [TableDecoder.table[token].argmax()]
    assert runner.decoder.calls == 1
    assert runner.run(plan(row([5], 0, 1, [1])))[1] is None
    assert runner.decoder.calls == 2


def test_the_draws_parameters_are_read_at_each_replay():
    runner, one = make(), plan(row([3], 0, 1, [1]))
    order = np.argsort(-TableDecoder.table[3])
    hot = draw(1, temperature=5)
    hot[1][:], hot[4][:] = 2, 0.99  # of the two best, the second
    for parameters, token in ((draw(1), order[0]), (hot, order[1]), (draw(1), order[0])):
        assert runner.run(one, parameters)[1].tolist() == [token]


def test_eager_and_overridden_steps_are_never_replayed():
    runner = make(eager=True)
    for _ in range(2):
        runner.run(plan(row([3], 0, 1, [1])), draw(1))
    assert runner.decoder.calls == 2
    runner, one = make(), plan(row([3], 0, 1, [1]))
    expected = runner.run(one)[0].copy()
    with use(add=lambda x, y: x):
        assert (runner.run(one)[0] == expected).all()
    assert runner.decoder.calls == 2


def test_few_recordings_are_kept():
    runner = make()
    for count in range(1, 30):
        runner.run(plan(row([1] * count, 0, count, list(range(1, 9)))))
    assert len(runner._recordings) == 16
    logits, _ = runner.run(plan(row([2] * 4, 0, 4, [1])))
    assert (logits == TableDecoder.table[2]).all() and len(runner._recordings) == 16


def test_wide_recordings_push_out_older_ones_and_whole_prompts_of_logits_are_not_kept():
    runner = make()
    for count in range(30, 38):
        runner.run(plan(*[row([1], 0, 1, [1])] * count))
    assert [len(each.batch.logit_rows) for each in runner._recordings.values()] == list(range(31, 38))
    runner.run(plan(row(range(9), 0, 9, [1, 2, 3], prompt_logprobs=0)))
    assert len(runner._recordings) == 7
