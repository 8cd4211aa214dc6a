"""The block pool: which blocks of cache memory are free, how many hold each that is not, and which are kept for a later hit."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable
from typing import Optional

NULL_BLOCK = 0


class BlockPool:
    """Hands out blocks 1..count-1, the lowest free one first, so that memory is touched only as it is needed.

    Block 0 is the null block, which holds nothing and is never handed out. A block that the prefix index knows (`keep`) is cached
    once nobody holds it: free + held + cached = capacity. Cached blocks are evicted, the least recently used first, when no block
    is free; what is held is never evicted. `on_evict` tells the index.
    """

    def __init__(self, count: int):
        if count < 2:
            raise ValueError(f"A pool of {count} blocks has none to hand out besides the null block.")
        self.count = count
        self._free = list(range(1, count))  # a heap
        self._references = [0] * count
        self._kept: set[int] = set()
        self._cached: OrderedDict[int, None] = OrderedDict()
        self.on_evict: Optional[Callable[[int], None]] = None
        self.evictions = 0

    @property
    def free(self) -> int:
        """How many blocks are free."""
        return len(self._free)

    @property
    def cached(self) -> int:
        """How many blocks nobody holds but the prefix index knows."""
        return len(self._cached)

    @property
    def available(self) -> int:
        """How many blocks `take` can hand out: free ones and cached ones."""
        return len(self._free) + len(self._cached)

    @property
    def capacity(self) -> int:
        """How many blocks there are to hand out."""
        return self.count - 1

    def take(self, blocks: int) -> list[int]:
        """`blocks` blocks, each held once. Raises ValueError where there are too few; then none is taken."""
        if blocks > self.available:
            raise ValueError(f"{blocks} blocks were asked for and {self.available} are free.")
        while blocks > len(self._free):
            self._evict()
        taken = [heapq.heappop(self._free) for _ in range(blocks)]
        for block in taken:
            self._references[block] = 1
        return taken

    def _evict(self) -> None:
        block, _ = self._cached.popitem(last=False)
        self._kept.remove(block)
        self.evictions += 1
        heapq.heappush(self._free, block)
        if self.on_evict is not None:
            self.on_evict(block)

    def keep(self, block: int) -> None:
        """The index knows this held block: when nobody holds it any more it is cached."""
        if not self._references[block]:
            raise ValueError(f"Block {block} is free and cannot be kept.")
        self._kept.add(block)

    def share(self, blocks: list[int]) -> None:
        """One more holder of blocks that are held or cached."""
        for block in blocks:
            if not self._references[block] and block not in self._cached:
                raise ValueError(f"Block {block} is free and cannot be shared.")
            self._cached.pop(block, None)
            self._references[block] += 1

    def release(self, blocks: list[int]) -> None:
        """One holder less; a block that nobody holds is free again, or cached. A table's last block is cached first, and so evicted
        before those that it continues."""
        for block in reversed(blocks):
            if not self._references[block]:
                raise ValueError(f"Block {block} is released but nobody holds it.")
            self._references[block] -= 1
            if not self._references[block] and block in self._kept:
                self._cached[block] = None
            elif not self._references[block]:
                heapq.heappush(self._free, block)

    def references(self, block: int) -> int:
        """How many hold the block."""
        return self._references[block]


def blocks_for(tokens: int, block_size: int) -> int:
    """How many blocks hold this many tokens."""
    return -(-tokens // block_size)
