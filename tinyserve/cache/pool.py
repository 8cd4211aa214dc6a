"""The block pool: which blocks of cache memory are free, and how many hold each one that is not."""

from __future__ import annotations

import heapq

NULL_BLOCK = 0


class BlockPool:
    """Hands out blocks 1..count-1, the lowest free one first, so that memory is touched only as it is needed.

    Block 0 is the null block, which holds nothing and is never handed out.
    """

    def __init__(self, count: int):
        if count < 2:
            raise ValueError(f"A pool of {count} blocks has none to hand out besides the null block.")
        self.count = count
        self._free = list(range(1, count))  # a heap
        self._references = [0] * count

    @property
    def free(self) -> int:
        """How many blocks are free."""
        return len(self._free)

    @property
    def capacity(self) -> int:
        """How many blocks there are to hand out."""
        return self.count - 1

    def take(self, blocks: int) -> list[int]:
        """`blocks` blocks, each held once. Raises ValueError where there are too few; then none is taken."""
        if blocks > len(self._free):
            raise ValueError(f"{blocks} blocks were asked for and {len(self._free)} are free.")
        taken = [heapq.heappop(self._free) for _ in range(blocks)]
        for block in taken:
            self._references[block] = 1
        return taken

    def share(self, blocks: list[int]) -> None:
        """One more holder of blocks that are held already."""
        for block in blocks:
            if not self._references[block]:
                raise ValueError(f"Block {block} is free and cannot be shared.")
            self._references[block] += 1

    def release(self, blocks: list[int]) -> None:
        """One holder less; a block that nobody holds is free again."""
        for block in blocks:
            if not self._references[block]:
                raise ValueError(f"Block {block} is released but nobody holds it.")
            self._references[block] -= 1
            if not self._references[block]:
                heapq.heappush(self._free, block)

    def references(self, block: int) -> int:
        """How many hold the block."""
        return self._references[block]


def blocks_for(tokens: int, block_size: int) -> int:
    """How many blocks hold this many tokens."""
    return -(-tokens // block_size)
