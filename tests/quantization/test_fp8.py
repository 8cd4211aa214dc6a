"""FP8 against torch's own types, over all codes and over random bits of float32."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.extra.numpy import arrays

from tinyserve.errors import UnsupportedModel
from tinyserve.quantization.fp8 import from_fp8, to_fp8

TYPES = {"e4m3": (torch.float8_e4m3fn, 448), "e5m2": (torch.float8_e5m2, 57344)}


@pytest.mark.parametrize("kind", TYPES)
def test_every_code(kind):
    codes = np.arange(256, dtype=np.uint8)
    theirs = torch.from_numpy(codes).view(TYPES[kind][0]).float().numpy()
    assert np.array_equal(from_fp8(codes, kind), theirs, equal_nan=True)


@pytest.mark.parametrize("kind", TYPES)
@given(arrays(np.uint32, 64))
def test_every_float_in_range(kind, bits):
    dtype, largest = TYPES[kind]
    spread = bits.view(np.float32)
    small = np.ldexp(1 + (bits & 0xFF) / 256, bits.astype(int) % 36 - 18)  # many ties
    for values in (spread, small.astype(np.float32)):
        values = values[np.abs(values) <= largest]
        assert (to_fp8(values, kind) == torch.from_numpy(values).to(dtype).view(torch.uint8).numpy()).all()


def test_by_hand():
    """1.0625 lies half way between 1 and 1.125: the even mantissa wins. Beyond the largest: the largest."""
    assert to_fp8(np.array([1, 1.0625, 1.1875, -448, 1e9])).tolist() == [0x38, 0x38, 0x3A, 0xFE, 0x7E]
    assert to_fp8(np.array([1, 57344, -1e9]), "e5m2").tolist() == [0x3C, 0x7B, 0xFB]
    assert np.isnan(from_fp8(to_fp8(np.array([np.nan]))))
    with pytest.raises(UnsupportedModel, match="'e3m4'"):
        to_fp8(np.ones(1), "e3m4")
