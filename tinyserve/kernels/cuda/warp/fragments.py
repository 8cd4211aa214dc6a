"""Which matrix element sits in which register of which lane: the PTX manual's fragment layouts as plain functions.

"Matrix fragments for mma.m16n8k16" (16-bit) and "mma.m16n8k32" (8-bit), PTX ISA 9.5, section 9.7.14. `item` counts the elements
that one lane holds: item 2r and 2r+1 are the low and high half of 16-bit register r; item 4r..4r+3 the bytes of 8-bit register r.
"""

from __future__ import annotations

from collections.abc import Callable

A_SHAPE_16, B_SHAPE_16, C_SHAPE = (16, 16), (16, 8), (16, 8)
A_SHAPE_8, B_SHAPE_8 = (16, 32), (32, 8)


def a_16bit(lane: int, item: int) -> tuple[int, int]:
    """(row, k) of item 0..7 of a lane's part of A[16, 16]."""
    return lane // 4 + 8 * (item // 2 % 2), 2 * (lane % 4) + item % 2 + 8 * (item // 4)


def b_16bit(lane: int, item: int) -> tuple[int, int]:
    """(k, column) of item 0..3 of a lane's part of B[16, 8]."""
    return 2 * (lane % 4) + item % 2 + 8 * (item // 2), lane // 4


def c_32bit(lane: int, item: int) -> tuple[int, int]:
    """(row, column) of item 0..3 of a lane's part of C[16, 8] and of the result."""
    return lane // 4 + 8 * (item // 2), 2 * (lane % 4) + item % 2


def a_8bit(lane: int, item: int) -> tuple[int, int]:
    """(row, k) of item 0..15 of a lane's part of A[16, 32]."""
    return lane // 4 + 8 * (item // 4 % 2), 4 * (lane % 4) + item % 4 + 16 * (item // 8)


def b_8bit(lane: int, item: int) -> tuple[int, int]:
    """(k, column) of item 0..7 of a lane's part of B[32, 8]."""
    return 4 * (lane % 4) + item % 4 + 16 * (item // 4), lane // 4


def owners(layout: Callable[[int, int], tuple[int, int]], items: int) -> dict[tuple[int, int], tuple[int, int]]:
    """{(row, column): (lane, item)} of a layout: the picture of a fragment, read the other way round."""
    return {layout(lane, item): (lane, item) for lane in range(32) for item in range(items)}
