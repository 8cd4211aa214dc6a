"""The prefix index: which full blocks already hold the keys and values of a prompt's beginning.

A hash chain, as vLLM's prefix cache: a block's digest covers its tokens and the digest of the block before it. A digest only finds
a candidate; its tokens and those of all blocks before it are compared, so a collision is a miss and never a wrong answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from .pool import BlockPool


@dataclass(frozen=True, eq=False)
class Link:
    """A full block in a chain. The root has no parent, and the key (number format, salt) in place of tokens."""

    digest: bytes
    tokens: tuple[Any, ...]
    parent: Optional[Link] = None

    def same(self, other: Link) -> bool:
        """True where both chains hold the same tokens under the same key, all the way to the root."""
        one: Optional[Link] = self
        two: Optional[Link] = other
        while one is not two:
            if one is None or two is None or one.tokens != two.tokens:
                return False
            one, two = one.parent, two.parent
        return True


def sha256(data: bytes) -> bytes:
    """The usual digest."""
    return hashlib.sha256(data).digest()


class HashChain:
    """Finds published blocks. The pool says when one is evicted."""

    def __init__(self, pool: BlockPool, block_size: int, digest: Callable[[bytes], bytes] = sha256):
        self.pool, self.block_size, self._digest = pool, block_size, digest
        self._found: dict[bytes, tuple[Link, int]] = {}
        self._digests: dict[int, bytes] = {}
        pool.on_evict = self._forget

    def root(self, key: str) -> Link:
        """Where the chains of this key begin."""
        return Link(self._digest(key.encode()), (key,))

    def match(self, key: str, tokens: Sequence[int]) -> tuple[list[int], Link]:
        """The blocks that hold the longest known beginning of `tokens`, and their last link. One token at least is left over, since
        the model must compute one to say what follows."""
        blocks: list[int] = []
        link, size = self.root(key), self.block_size
        for start in range(0, (len(tokens) - 1) // size * size, size):
            following = self._next(link, tokens[start:start + size])
            found = self._found.get(following.digest)
            if found is None or not found[0].same(following):
                break
            link = found[0]
            blocks.append(found[1])
        return blocks, link

    def publish(self, parent: Link, tokens: Sequence[int], block: int) -> Link:
        """Make a held block of `block_size` computed tokens known. Where its tokens, or its digest, are known already it stays private."""
        link = self._next(parent, tokens)
        if link.digest not in self._found:
            self._found[link.digest] = link, block
            self._digests[block] = link.digest
            self.pool.keep(block)
        return link

    def _next(self, parent: Link, tokens: Sequence[int]) -> Link:
        mine = tuple(tokens)
        return Link(self._digest(parent.digest + b"".join(token.to_bytes(4, "little") for token in mine)), mine, parent)

    def _forget(self, block: int) -> None:
        del self._found[self._digests.pop(block)]
