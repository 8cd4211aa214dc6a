"""Words of the public layouts, worked out by hand from their definitions, and GGUF blocks as the gguf package reads them."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize as gguf_dequantize

from tinyserve.errors import CorruptCheckpoint, UnsupportedModel
from tinyserve.quantization.blocks import to_blocks
from tinyserve.quantization.grid import Grid, Quantized, round_to_nearest
from tinyserve.quantization.packing import from_words, read, to_words, write


def word(value):
    return np.array(value, np.uint32).view(np.int32).tolist()


def matrix(rows=8, columns=64, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def made(codes, zeros, bits=4, groups=None):
    codes, zeros = np.array(codes, np.uint8), np.array(zeros, np.uint8)
    return Quantized(codes, np.ones(zeros.shape, np.float16), zeros, bits, groups)


def test_gptq_words():
    """Row n of W runs down column n of qweight, eight codes a word; zeros run along N."""
    tensor = made([list(range(8)), [15] * 8, *[[0] * 8] * 6], [[8]] * 8)
    first, second = write(tensor, "gptq"), write(tensor, "gptq", version=2)
    assert first["qweight"].shape == (1, 8) and first["qweight"][0, :3].tolist() == word([0x76543210, 0xFFFFFFFF, 0])
    assert first["qzeros"].tolist() == [[0x77777777]] and second["qzeros"].tolist() == [[word(0x88888888)]]
    assert first["g_idx"].tolist() == [0] * 8 and first["scales"].shape == (1, 8)
    zero = made([[1] * 8] * 8, [[0]] * 8)
    assert write(zero, "gptq", version=2)["qzeros"].tolist() == [[0]]
    with pytest.raises(UnsupportedModel, match="'q'.*zero point of 0"):
        write(zero, "gptq", "q")


def test_gptq_zeros_by_version():
    parts = {"qweight": np.zeros((1, 8), np.int32), "qzeros": np.array([[0x76543210]], np.int32), "scales": np.ones((1, 8), np.float16)}
    assert read(parts, "gptq", 4).zeros.ravel().tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert read(parts, "gptq", 4, version=2).zeros.ravel().tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    parts["qzeros"] = np.array([[word(0xF0000000)]], np.int32)
    with pytest.raises(CorruptCheckpoint, match="'q'.*zero point of 16"):
        read(parts, "gptq", 4, "q")


def test_three_bits_are_one_stream():
    """Ten codes and two bits of the eleventh in the first word: codes 1 0 0 … 0 6 -> bit 0, and 6 = 0b110 at bits 30 to 32."""
    codes = np.zeros((1, 32), np.uint8)
    codes[0, 0], codes[0, 10], codes[0, 31] = 1, 6, 5
    assert to_words(codes, 3).tolist() == [word([0x80000001, 1, 0xA0000000])]
    assert (from_words(to_words(codes, 3), 3) == codes).all()


def test_act_order_is_honoured():
    groups = np.array([1, 0] * 4, np.int32)
    parts = {"qweight": np.full((1, 8), 0x11111111, np.int32), "qzeros": np.full((2, 1), 0x77777777, np.int32),
             "scales": np.repeat([[1.0], [2.0]], 8, axis=1).astype(np.float16), "g_idx": groups}
    assert read(parts, "gptq", 4).dequantize()[0].tolist() == [-14, -7] * 4
    parts["g_idx"] = np.array([0, 0, 0, 0, 0, 1, 1, 1], np.int32)
    with pytest.raises(CorruptCheckpoint, match="'q'.*g_idx"):
        read(parts, "gptq", 4, "q")


def test_awq_words():
    """Columns 0..7 of the outputs: nibbles 0 2 4 6 1 3 5 7 from the lowest, for weights and for zeros."""
    tensor = made([[n] * 8 for n in range(8)], [[n + 8] for n in range(8)])
    parts = write(tensor, "awq")
    assert parts["qweight"].shape == (8, 1) and parts["qweight"][0].tolist() == [0x75316420]
    assert parts["qzeros"].tolist() == [word([0xFDB9ECA8])]
    found = read({"qweight": np.full((8, 1), 0x75316420, np.int32), "qzeros": np.array([word([0xFDB9ECA8])], np.int32),
                  "scales": np.full((1, 8), 0.5, np.float16)}, "awq", 4)
    assert found.dequantize().tolist() == [[-4.0] * 8] * 8 and found.codes[:, 0].tolist() == list(range(8))


def test_compressed_tensors_words():
    """W's own orientation; codes and zeros are signed values plus 8; zeros run along N; a symmetric matrix has none."""
    tensor = made([list(range(8))] * 8, [[n] for n in range(8)])
    parts = write(tensor, "compressed-tensors")
    assert parts["weight_packed"].tolist() == [[0x76543210]] * 8 and parts["weight_zero_point"].tolist() == [[0x76543210]]
    assert parts["weight_shape"].tolist() == [8, 8]
    symmetric = write(made([list(range(8))] * 8, [[8]] * 8), "compressed-tensors")
    assert "weight_zero_point" not in symmetric
    assert read(symmetric, "compressed-tensors", 4).dequantize()[0].tolist() == [-8, -7, -6, -5, -4, -3, -2, -1]
    with pytest.raises(CorruptCheckpoint, match=r"says shape \[8, 9\]"):
        read(symmetric | {"weight_shape": np.array([8, 9])}, "compressed-tensors", 4)


@pytest.mark.parametrize(("layout", "grid", "version"), [
    ("gptq", Grid(4, 32), 1), ("gptq", Grid(3, 32), 1), ("gptq", Grid(4, 64, False), 2), ("gptq", Grid(8, -1), 1),
    ("awq", Grid(4, 32, False), 1), ("compressed-tensors", Grid(4, 32, False), 1), ("compressed-tensors", Grid(8, -1), 1)], ids=str)
def test_what_is_written_is_read(layout, grid, version):
    tensor = round_to_nearest(matrix(32), grid)
    found = read(write(tensor, layout, version=version), layout, grid.bits, version=version)
    assert (found.dequantize() == tensor.dequantize()).all() and found.groups is None


@pytest.mark.parametrize(("change", "reason"), [
    ({"scales": np.full((2, 8), np.nan, np.float16)}, "float16 does not hold"), ({"scales": np.ones((2, 7), np.float16)}, "do not fit"),
    ({"scales": np.full((2, 8), 1e6, np.float32)}, "float16 does not hold"), ({"qzeros": np.zeros((1, 1), np.int32)}, "do not fit"),
    ({"qweight": np.zeros((8, 8), np.int64)}, "32-bit words"), ({"qzeros": None}, "has no qzeros")], ids=str)
def test_parts_that_contradict_each_other(change, reason):
    parts = write(round_to_nearest(matrix(), Grid(4, 32)), "gptq") | change
    with pytest.raises(CorruptCheckpoint, match=f"'layer.q'.*{reason}"):
        read({name: part for name, part in parts.items() if part is not None}, "gptq", 4, "layer.q")


def test_what_a_layout_cannot_hold():
    for layout, grid, shape in (("awq", Grid(3, 32), (8, 64)), ("gptq", Grid(4, 4), (8, 12)), ("zip", Grid(4, 32), (8, 64))):
        with pytest.raises(UnsupportedModel, match="'q'"):
            write(round_to_nearest(matrix(*shape), grid), layout, "q")


@pytest.mark.parametrize(("grid", "kind"), [
    (Grid(4, 32), "Q4_0"), (Grid(3, 64), "Q4_0"), (Grid(4, 64, False), "Q4_1"), (Grid(3, 32, False), "Q4_1"), (Grid(8, -1), "Q8_0")],
    ids=str)
def test_gguf_blocks_are_what_the_gguf_package_reads(grid, kind):
    tensor = round_to_nearest(matrix(), grid)
    found, rows = to_blocks(tensor)
    assert found == kind
    assert (gguf_dequantize(rows, GGMLQuantizationType[kind]) == tensor.dequantize()).all()


@pytest.mark.parametrize("layout", ("gptq", "awq", "compressed-tensors"))
def test_parts_are_contiguous_whatever_the_memory_order_of_the_matrix(layout):
    tensor = round_to_nearest(np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32), Grid(4, 32, False))
    turned = Quantized(*(np.asfortranarray(part) for part in (tensor.codes, tensor.scales, tensor.zeros)), 4)
    straight, parts = write(tensor, layout), write(turned, layout)
    assert all(part.flags.c_contiguous and (part == straight[name]).all() for name, part in parts.items())
    assert turned.dequantize().flags.c_contiguous
