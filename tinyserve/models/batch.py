"""What one step of the model computes, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Array = Any


@dataclass(frozen=True)
class ForwardBatch:
    """T tokens of S sequences laid end to end; all int32.

    Sequence s owns tokens query_start[s]:query_start[s+1], the last ones of its context_lengths[s]; `slots` says where their
    keys and values go, `block_tables` where its whole context lies, `logit_rows` for which tokens logits are wanted.
    """

    token_ids: Array  # [T]
    positions: Array  # [T]
    slots: Array  # [T]
    block_tables: Array  # [S, M]
    query_start: Array  # [S + 1]
    context_lengths: Array  # [S]
    logit_rows: Array  # [R]
