"""Folders in the public quantized layouts: the numbers that they stand for, run by the fused kernels, and what is refused."""

import json

import numpy as np
import pytest
from checkpoints import OPS, difference, logits
from safetensors.numpy import load_file, save_file
from tiny_model import write_model

from tinyserve import LLM, SamplingParams
from tinyserve.errors import CorruptCheckpoint, UnsupportedModel
from tinyserve.kernels.layouts import DenseWeight, Int4Weight, Int8Weight, dequantize
from tinyserve.models.loading import load_model
from tinyserve.quantization.gptq import gptq
from tinyserve.quantization.grid import Grid, round_to_nearest
from tinyserve.quantization.packing import write

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True, "checkpoint_format": "gptq"}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}


def compressed(bits, group):
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group" if group > 0 else "channel", "group_size": group}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}}


CASES = {
    "gptq": (GPTQ, Grid(4, 32), 1), "gptq v2": ({**GPTQ, "checkpoint_format": "gptq_v2"}, Grid(4, 32, False), 2),
    "gptq 3 bits": ({**GPTQ, "bits": 3}, Grid(3, 32), 1), "gptq 8 bits": ({**GPTQ, "bits": 8, "group_size": -1}, Grid(8, -1), 1),
    "awq": (AWQ, Grid(4, 32, False), 1), "compressed": (compressed(4, 32), Grid(4, 32), 1),
    "compressed asymmetric": (compressed(4, 32), Grid(4, 32, False), 1), "compressed 8 bits": (compressed(8, -1), Grid(8, -1), 1)}


def folders(tmp_path, declared, quantize, version=1):
    """(the quantized folder, a folder with the same numbers in float32)."""
    packed, floats = (tmp_path / name for name in ("packed", "floats"))
    for folder in (packed, floats):
        folder.mkdir()
        write_model(folder)
    tensors, held = load_file(packed / "model.safetensors"), {}
    for name in [name for name in tensors if "proj" in name]:
        found = quantize(tensors.pop(name))
        base = name.removesuffix("weight")
        tensors |= {base + part: value for part, value in write(found, declared["quant_method"], name, version).items()}
        held[name] = found.dequantize()
    save_file(tensors, packed / "model.safetensors")
    save_file(load_file(floats / "model.safetensors") | held, floats / "model.safetensors")
    path = packed / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": declared}))
    return packed, floats


@pytest.mark.parametrize("case", CASES)
def test_a_folder_runs_fused_with_its_own_numbers(case, tmp_path):
    declared, grid, version = CASES[case]
    packed, floats = folders(tmp_path, declared, lambda matrix: round_to_nearest(matrix, grid), version)
    ours, theirs = (load_model(folder, OPS).decoder.weights for folder in (packed, floats))
    for mine, exact in zip(ours.layers, theirs.layers):
        for part in ("qkv", "up"):
            (one,), (other,) = getattr(mine, part), getattr(exact, part)
            assert isinstance(one.weight, Int8Weight if grid.bits == 8 else Int4Weight)
            assert (dequantize(one.weight) == dequantize(other.weight)).all()
        assert (dequantize(mine.output.weight) == dequantize(exact.output.weight)).all()
        assert (dequantize(mine.down.weight) == dequantize(exact.down.weight)).all()
    assert isinstance(ours.embedding, DenseWeight)
    ids = list(range(40))
    assert (logits(packed, ids) == logits(floats, ids)).all()  # both expanded to float32
    assert difference(logits(packed, ids, dtype="auto"), logits(floats, ids)) < 0.2  # INT8 activations, random weights
    assert LLM(packed, max_model_len=64).generate("abc", SamplingParams(max_tokens=4, temperature=0))[0].outputs[0].token_ids


def test_act_order_is_read_and_has_no_fused_kernel(tmp_path):
    def shuffled(matrix):
        draw = np.random.default_rng(0).standard_normal((200, matrix.shape[1]))
        return gptq(matrix, draw.T @ draw, Grid(4, 32), act_order=True, static_groups=False)

    packed, floats = folders(tmp_path, {**GPTQ, "desc_act": True}, shuffled)
    assert (logits(packed, range(20)) == logits(floats, range(20))).all()
    with pytest.raises(UnsupportedModel, match="self_attn.q_proj.*act-order.*float32"):
        load_model(packed, OPS)


@pytest.mark.parametrize(("declared", "reason"), [
    ({**GPTQ, "quant_method": "bitsandbytes"}, "bitsandbytes"), ({**GPTQ, "bits": 2}, "2 bits"), ({**GPTQ, "bits": "4"}, "bits = '4'"),
    ({**GPTQ, "checkpoint_format": "marlin"}, "marlin"), ({**AWQ, "version": "gemv"}, "gemv"), ("gptq", "None"),
    ({**compressed(4, 32), "format": "int-quantized"}, "pack-quantized"), ({**GPTQ, "group_size": 0}, "groups of 0"),
    ({**GPTQ, "group_size": 64}, "groups of 32 columns; the configuration says 64"), ({**GPTQ, "bits": 8}, "shape"),
    (AWQ, "has no tensor|shape"), (compressed(4, 32), "no tensor")], ids=str)
def test_a_configuration_that_lies_is_refused(declared, reason, tmp_path):
    packed, _ = folders(tmp_path, GPTQ, lambda matrix: round_to_nearest(matrix, Grid(4, 32)))
    path = packed / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": declared}))
    with pytest.raises((CorruptCheckpoint, UnsupportedModel), match=reason):
        load_model(packed, OPS)
