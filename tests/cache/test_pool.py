"""The block pool: counts hold under any sequence of calls, and memory is touched from the bottom up."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tinyserve.cache.pool import BlockPool, blocks_for
from tinyserve.cache.store import KVStore
from tinyserve.kernels import select


class PoolMachine(RuleBasedStateMachine):
    """Any order of take, share and release."""

    def __init__(self):
        super().__init__()
        self.pool, self.held = BlockPool(9), []

    @rule(count=st.integers(0, 10))
    def take(self, count):
        free = self.pool.free
        if count > free:
            with pytest.raises(ValueError):
                self.pool.take(count)
            assert self.pool.free == free
        else:
            self.held.append(self.pool.take(count))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def share(self, data):
        blocks = list(data.draw(st.sampled_from(self.held)))
        self.pool.share(blocks)
        self.held.append(blocks)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data):
        self.pool.release(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @invariant()
    def counts_add_up(self):
        holders = [sum(block in blocks for blocks in self.held) for block in range(9)]
        assert [self.pool.references(block) for block in range(9)] == holders
        assert holders[0] == 0
        assert self.pool.free + sum(count > 0 for count in holders) == self.pool.capacity


PoolMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
TestPool = PoolMachine.TestCase


def test_released_blocks_are_taken_before_untouched_ones():
    pool = BlockPool(100)
    first = pool.take(5)
    pool.release(first)
    assert pool.take(5) == first == [1, 2, 3, 4, 5]


def test_a_free_block_is_neither_released_nor_shared():
    pool = BlockPool(4)
    blocks = pool.take(1)
    pool.release(blocks)
    for call in (pool.release, pool.share):
        with pytest.raises(ValueError, match="Block 1"):
            call(blocks)
    with pytest.raises(ValueError):
        BlockPool(1)


@pytest.mark.parametrize("tokens, blocks", [(0, 0), (1, 1), (16, 1), (17, 2), (33, 3)])
def test_blocks_for(tokens, blocks):
    assert blocks_for(tokens, 16) == blocks


def test_slots_follow_the_block_table():
    store = KVStore(select("cpu"), layers=1, blocks=8, block_size=4, kv_heads=1, head_dim=16, dtype="float32")
    tables = store.tables([[3, 5], [7]], 2)
    assert tables.tolist() == [[3, 5], [7, 0]] and tables.dtype == np.int32
    slots = store.slots(tables, np.array([0, 0, 1], np.int32), np.array([3, 4, 2], np.int32))
    assert slots.tolist() == [15, 20, 30] and slots.dtype == np.int32
    assert store.token_bytes == 2 * 16 * 4
