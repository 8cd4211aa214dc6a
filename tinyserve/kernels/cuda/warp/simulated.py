"""The warp layer in the simulator: the 32 lanes of a warp meet, what they bring is exchanged, and each goes on with its part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..simulator.lanes import KernelFault, current, meet
from ..simulator.memory import WatchedArray, observers
from . import fragments

Pair = tuple[int, int]


def shfl(value: Any, lane: int) -> Any:
    return meet("shfl", (value, int(lane)), lambda all_: [all_[source % 32][0] for _, source in all_])


def shfl_xor(value: Any, lane: int) -> Any:
    return meet("shfl_xor", (value, int(lane)), lambda all_: [all_[i ^ (step & 31)][0] for i, (_, step) in enumerate(all_)])


def shfl_up(value: Any, lane: int) -> Any:
    return meet("shfl_up", (value, int(lane)), lambda all_: [all_[i - step if i >= step else i][0] for i, (_, step) in enumerate(all_)])


def shfl_down(value: Any, lane: int) -> Any:
    return meet("shfl_down", (value, int(lane)),
                lambda all_: [all_[i + step if i + step < 32 else i][0] for i, (_, step) in enumerate(all_)])


def ballot(predicate: Any) -> int:
    return meet("ballot", bool(predicate), lambda all_: [sum(flag << i for i, flag in enumerate(all_))] * 32)


def any_lane(predicate: Any) -> bool:
    return meet("any_lane", bool(predicate), lambda all_: [any(all_)] * 32)


def all_lanes(predicate: Any) -> bool:
    return meet("all_lanes", bool(predicate), lambda all_: [all(all_)] * 32)


def _gather(registers: Sequence[tuple], dtype: Any, layout: Callable[[int, int], Pair], shape: Pair) -> np.ndarray:
    """A matrix from the registers of 32 lanes."""
    items = np.array(registers, np.uint32).view(dtype)
    matrix = np.empty(shape, items.dtype)
    for lane in range(32):
        for item in range(items.shape[1]):
            matrix[layout(lane, item)] = items[lane, item]
    return matrix


def _as_float(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _multiply(name: str, a: tuple, b: tuple, c: tuple, settle: Callable[[list], Sequence]) -> tuple:
    for part, count, label in ((a, 4, "a"), (b, 2, "b"), (c, 4, "c")):
        if not isinstance(part, tuple) or len(part) != count:
            raise KernelFault(f"{name}: {label} must be a tuple of {count} registers")
    registers = [tuple(int(word) & 0xFFFFFFFF for word in part) for part in (a, b)]
    return meet(name, (*registers, c), settle)


def _spread(sums: np.ndarray, convert: Callable) -> list[tuple]:
    return [tuple(convert(sums[fragments.c_32bit(lane, item)]) for item in range(4)) for lane in range(32)]


def _sums(c: Sequence[tuple]) -> np.ndarray:
    matrix = np.empty(fragments.C_SHAPE, np.float64)
    for lane in range(32):
        for item in range(4):
            matrix[fragments.c_32bit(lane, item)] = c[lane][item]
    return matrix


def _settle_16bit(brought: list, read: Callable[[np.ndarray], np.ndarray], dtype: Any) -> list[tuple]:
    a, b, c = zip(*brought)
    left = read(_gather(a, dtype, fragments.a_16bit, fragments.A_SHAPE_16)).astype(np.float64)
    right = read(_gather(b, dtype, fragments.b_16bit, fragments.B_SHAPE_16)).astype(np.float64)
    return _spread((left @ right + _sums(c)).astype(np.float32), lambda value: value)


def _settle_8bit(brought: list) -> list[tuple]:
    a, b, c = zip(*brought)
    left = _gather(a, np.int8, fragments.a_8bit, fragments.A_SHAPE_8).astype(np.int64)
    right = _gather(b, np.int8, fragments.b_8bit, fragments.B_SHAPE_8).astype(np.int64)
    return _spread((left @ right + _sums(c).astype(np.int64)).astype(np.int32), int)


def mma_m16n8k16_f16(a: tuple, b: tuple, c: tuple) -> tuple:
    return _multiply("mma_m16n8k16_f16", a, b, c, lambda brought: _settle_16bit(brought, lambda m: m, np.float16))


def mma_m16n8k16_bf16(a: tuple, b: tuple, c: tuple) -> tuple:
    return _multiply("mma_m16n8k16_bf16", a, b, c, lambda brought: _settle_16bit(brought, _as_float, np.uint16))


def mma_m16n8k32_s8(a: tuple, b: tuple, c: tuple) -> tuple:
    return _multiply("mma_m16n8k32_s8", a, b, c, _settle_8bit)


def _ldmatrix(name: str, array: WatchedArray, index: Any, count: int, transposed: bool) -> tuple:
    if array.space != "shared":
        raise KernelFault(f"{name} reads shared memory; '{array.name}' is in global memory.")
    given = current().lane < 8 * count
    row = array.span("read", index, 16).view(np.uint16).copy() if given else None

    def settle(rows: list) -> list[tuple]:
        matrices = [np.stack(rows[8 * i:8 * i + 8]) for i in range(count)]
        matrices = [matrix.T if transposed else matrix for matrix in matrices]
        words = [np.ascontiguousarray(matrix).view(np.uint32) for matrix in matrices]
        return [tuple(int(word[lane // 4, lane % 4]) for word in words) for lane in range(32)]
    return meet(name, row, settle)


def ldmatrix_x4(array: WatchedArray, index: Any) -> tuple:
    return _ldmatrix("ldmatrix_x4", array, index, 4, False)


def ldmatrix_x4_trans(array: WatchedArray, index: Any) -> tuple:
    return _ldmatrix("ldmatrix_x4_trans", array, index, 4, True)


def ldmatrix_x2(array: WatchedArray, index: Any) -> tuple:
    return _ldmatrix("ldmatrix_x2", array, index, 2, False)


def ldmatrix_x2_trans(array: WatchedArray, index: Any) -> tuple:
    return _ldmatrix("ldmatrix_x2_trans", array, index, 2, True)


def cp_async(shared: WatchedArray, shared_index: Any, source: WatchedArray, source_index: Any, valid: Any) -> None:
    if shared.space != "shared" or source.space != "global":
        raise KernelFault("cp_async copies from global to shared memory.")
    origin = source.span("read", source_index, 16) if valid else np.zeros(16, np.uint8)
    target = shared.span("async write", shared_index, 16)
    target[:] = 0xFF
    current().copies[-1].append((shared, shared_index, target, origin))


def cp_async_commit() -> None:
    current().copies.append([])


def cp_async_wait(pending: int) -> None:
    lane = current()
    while len(lane.copies) - 1 > pending:
        for shared, index, target, origin in lane.copies.pop(0):
            if observers:
                shared.touch("async done", index, 16)
            target[:] = origin


def _out(words: np.ndarray, array: WatchedArray) -> tuple:
    if array.dtype == np.float32:
        return tuple(words.view(np.float32))
    return tuple(words.view(np.uint32).tolist())


def load128(array: WatchedArray, index: Any) -> tuple:
    return _out(array.span("read", index, 16), array)


def load128_once(array: WatchedArray, index: Any) -> tuple:
    if array.space != "global":
        raise KernelFault("load128_once reads global memory that no one writes; use load128 for shared memory.")
    return load128(array, index)


def load64(array: WatchedArray, index: Any) -> tuple:
    return _out(array.span("read", index, 8), array)


def load32(array: WatchedArray, index: Any) -> int:
    return int(array.span("read", index, 4).view(np.uint32)[0])


def _words(values: Sequence) -> np.ndarray:
    bits = [int(value.view(np.uint32)) if isinstance(value, np.float32) else int(value) & 0xFFFFFFFF for value in values]
    return np.array(bits, np.uint32).view(np.uint8)


def store128(array: WatchedArray, index: Any, words: tuple) -> None:
    array.span("write", index, 16)[:] = _words(words)


def store64(array: WatchedArray, index: Any, words: tuple) -> None:
    array.span("write", index, 8)[:] = _words(words)


def store32(array: WatchedArray, index: Any, word: Any) -> None:
    array.span("write", index, 4)[:] = _words((word,))
