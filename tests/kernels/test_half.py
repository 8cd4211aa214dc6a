"""float16 without the instruction for it: every value against NumPy, which rounds the same way."""

import numpy as np
import pytest
from numba import njit

from tinyserve.kernels.cpu import half, memory


@pytest.fixture
def without_instruction(monkeypatch):
    monkeypatch.setattr(half, "HARDWARE", False)


def test_every_half_widens_exactly(without_instruction):
    @njit
    def run(source, target, count):
        for i in range(count):
            memory.store_f32(target + 4 * i, memory.load_f16(source + 2 * i))

    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    out = np.empty(65536, np.float32)
    run(halves.ctypes.data, out.ctypes.data, 65536)
    wanted = halves.astype(np.float32)
    assert np.array_equal(out.view(np.uint32)[~np.isnan(wanted)], wanted.view(np.uint32)[~np.isnan(wanted)])
    assert np.isnan(out[np.isnan(wanted)]).all()


def test_floats_narrow_to_nearest_even(without_instruction):
    @njit
    def run(source, target, count):
        for i in range(0, count, 16):
            memory.store_f16x16(target + 2 * i, memory.load_f32x16(source + 4 * i))

    halves = np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(np.float32)
    middle = (halves[:-2] + halves[1:-1]) / 2  # ties
    around = np.concatenate([halves, middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(1e9)),
                             [65519.9, 65520, 65536, 1e30, 1e-30, 0, np.inf]]).astype(np.float32)
    values = np.concatenate([around, -around, np.zeros(16, np.float32)])
    values = values[: len(values) // 16 * 16]
    out = np.empty(len(values), np.float16)
    run(values.ctypes.data, out.ctypes.data, len(values))
    with np.errstate(over="ignore"):
        wanted = values.astype(np.float16)
    assert np.array_equal(out.view(np.uint16), wanted.view(np.uint16))
