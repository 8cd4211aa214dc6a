"""The prefix index and the blocks that it keeps: conservation, least recently used, keys, collisions."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tinyserve.cache.pool import BlockPool
from tinyserve.cache.prefix import HashChain


def publish(index, tokens, blocks, key=""):
    link, size = index.root(key), index.block_size
    for i, block in enumerate(blocks):
        link = index.publish(link, tokens[i * size:(i + 1) * size], block)


class Machine(RuleBasedStateMachine):
    """Prompts over two tokens come, meet what is known, are published or not, and go. A shadow memory says what each block holds."""

    def __init__(self):
        super().__init__()
        self.pool, self.held, self.content = BlockPool(8), [], {}
        self.index = HashChain(self.pool, 2)

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=9), key=st.sampled_from("ab"), known=st.booleans())
    def arrive(self, tokens, key, known):
        hits, _ = self.index.match(key, tokens)
        assert [self.content[block] for block in hits] == [(key, tuple(tokens[:2 * i + 2])) for i in range(len(hits))]
        assert len(hits) * 2 < len(tokens)
        missing = len(tokens) // 2 - len(hits)
        if missing > self.pool.available - sum(not self.pool.references(block) for block in hits):
            return
        self.pool.share(hits)
        blocks = hits + self.pool.take(missing)
        for i in range(len(hits), len(blocks)):
            self.content[blocks[i]] = key, tuple(tokens[:2 * i + 2])
        self.held.append(blocks)
        if known:
            publish(self.index, tokens, blocks, key)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def leave(self, data):
        self.pool.release(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @invariant()
    def counts_add_up(self):
        holders = [sum(block in blocks for blocks in self.held) for block in range(8)]
        assert [self.pool.references(block) for block in range(8)] == holders
        assert self.pool.free + sum(count > 0 for count in holders) + self.pool.cached == self.pool.capacity


Machine.TestCase.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestMachine = Machine.TestCase


def test_one_token_is_left_to_compute():
    """3: a prompt of two whole blocks finds one; with one token more, two."""
    pool = BlockPool(9)
    index, blocks = HashChain(pool, 4), pool.take(2)
    publish(index, list(range(8)), blocks)
    assert index.match("", list(range(8)))[0] == blocks[:1]
    assert index.match("", list(range(9)))[0] == blocks
    assert index.match("", [9, *range(1, 9)])[0] == index.match("salt", list(range(9)))[0] == []


def test_the_end_of_the_least_recently_used_goes_first_and_what_is_held_never():
    pool = BlockPool(5)
    index = HashChain(pool, 1)
    first, second = pool.take(2), pool.take(2)
    publish(index, [1, 2], first)
    publish(index, [3, 4], second)
    pool.release(first)
    assert (pool.free, pool.cached, pool.available) == (0, 2, 2)
    assert pool.take(1) == [first[1]], "the block that the other begins"
    with pytest.raises(ValueError, match="1 are free"):
        pool.take(2)
    assert index.match("", [1, 2, 0])[0] == first[:1] and index.match("", [3, 4, 0])[0] == second
    assert pool.evictions == 1


@pytest.mark.parametrize("bits", [0, 1])
def test_a_collision_is_a_miss(bits):
    """13: with a digest of no bits, or of one, a hit still has the prompt's own tokens, also after evictions."""
    Weak = type("Weak", (Machine,), {})

    def weak(self):
        Machine.__init__(self)
        self.index = HashChain(self.pool, 2, lambda data: bytes([sum(data) & bits]))

    Weak.__init__ = weak
    Weak.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
    Weak.TestCase("runTest").runTest()


def test_only_held_blocks_are_kept():
    pool = BlockPool(3)
    with pytest.raises(ValueError, match="Block 1"):
        pool.keep(1)
