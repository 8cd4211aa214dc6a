"""Arrays as a simulated kernel sees them: bounds-checked, with addresses, and open to observers (traffic, races, steps)."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from .lanes import KernelFault, Lane, count_access, current, kernel_frame

POISON = 0xFF


class Observer(Protocol):
    """What a tool may listen to. `access` comes before the access is made; `barrier` after a CTA's lanes met at one."""

    def launch(self, kernel: Any, grid: tuple, block: tuple) -> None: ...

    def access(self, lane: Lane, kind: str, array: WatchedArray, address: int, nbytes: int, frame: Any) -> None: ...

    def meeting(self, lanes: list[Lane], name: str) -> None: ...

    def cta_done(self, lanes: list[Lane]) -> None: ...


observers: list[Observer] = []


class WatchedArray:
    """A view of global or shared memory: `array[index]` reads, `array[index] = value` writes, as in a kernel.

    Integers come out as Python integers (Numba widens them to 64 bits as well), floats in their own precision. An index
    outside the array, a negative one too, raises `KernelFault`: on a GPU it would read or spoil someone else's memory.
    """

    __slots__ = ("data", "space", "name", "address", "_integer")

    def __init__(self, data: np.ndarray, space: str, name: str, address: int):
        self.data, self.space, self.name, self.address = data, space, name, address
        self._integer = data.dtype.kind in "iub"

    @property
    def shape(self) -> tuple:
        return self.data.shape

    @property
    def strides(self) -> tuple:
        return self.data.strides

    @property
    def size(self) -> int:
        return self.data.size

    @property
    def ndim(self) -> int:
        return self.data.ndim

    @property
    def dtype(self) -> np.dtype:
        return self.data.dtype

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> Any:
        count_access()
        value = self._checked(index)
        if isinstance(value, np.ndarray):
            return self._view(value)
        if observers:
            self.touch("read", index, self.data.itemsize)
        return int(value) if self._integer else value

    def __setitem__(self, index: Any, value: Any) -> None:
        self._checked(index)
        if observers:
            self.touch("write", index, self.data.itemsize)
        self.data[index] = self._wrapped(value) if self._integer else value

    def _wrapped(self, value: Any) -> Any:
        """An integer cut to the width of the array, as a store cuts it."""
        bits = 8 * self.data.itemsize
        value = int(value) & ((1 << bits) - 1)
        return value - (1 << bits) if self.data.dtype.kind == "i" and value >> (bits - 1) else value

    def _checked(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        try:
            if any(part < 0 for part in parts if not isinstance(part, slice)):
                raise IndexError
            return self.data[index]
        except IndexError:
            raise KernelFault(f"{current()} used index {index} of '{self.name}', whose shape is {self.data.shape}: guard the "
                              f"access with a bound (line {kernel_frame(3).f_lineno}).") from None

    def _view(self, part: np.ndarray) -> WatchedArray:
        return WatchedArray(part, self.space, self.name, self.address + pointer(part) - pointer(self.data))

    def address_of(self, index: Any) -> int:
        """The address of one element, in bytes, in its memory space."""
        parts = index if isinstance(index, tuple) else (index,)
        return self.address + sum(int(part) * stride for part, stride in zip(parts, self.data.strides))

    def touch(self, kind: str, index: Any, nbytes: int) -> None:
        """Tell the observers that the running lane is about to access `nbytes` from this element on."""
        lane, frame, address = current(), kernel_frame(2), self.address_of(index)
        for observer in observers:
            observer.access(lane, kind, self, address, nbytes, frame)

    def span(self, kind: str, index: Any, nbytes: int) -> np.ndarray:
        """`nbytes` from this element on, as bytes; checked to be in the array, contiguous and aligned to `nbytes`."""
        self._checked(index)
        if self.address_of(index) % nbytes:
            raise KernelFault(f"{current()} accessed {nbytes} bytes of '{self.name}' at index {index}, which is not a multiple of "
                              f"{nbytes} bytes from the start of memory: a GPU stops with 'misaligned address'. (Shared arrays are aligned "
                              "to their element; ask for more: cuda.shared.array(shape, dtype, alignment=128).)")
        count, parts = nbytes // self.data.itemsize, index if isinstance(index, tuple) else (index,)
        last = self.data[parts[:-1]]
        if last.strides[0] != self.data.itemsize or parts[-1] + count > len(last):
            raise KernelFault(f"{current()} accessed {nbytes} bytes of '{self.name}' from index {index} on: they leave the last axis "
                              f"of shape {self.data.shape}.")
        if observers:
            self.touch(kind, index, nbytes)
        return last[parts[-1]:parts[-1] + count].view(np.uint8)


def pointer(array: np.ndarray) -> int:
    """Where an array's first element lies in the machine's own memory."""
    return array.__array_interface__["data"][0]


def poisoned(shape: Any, dtype: Any) -> np.ndarray:
    """Memory that holds what a kernel must not rely on: every float is NaN, every signed integer is -1."""
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8).fill(POISON)
    return array
