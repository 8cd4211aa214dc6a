"""benchmarks/gpu.py: its checks hold at toy sizes in the simulator, and without a GPU it says so and measures nothing."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cuda_checks import TorchInSimulator

from tinyserve.kernels.cuda.kernel_set import CudaKernels

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "gpu.py"


def test_the_checks_pass_at_toy_sizes():
    spec = importlib.util.spec_from_file_location("gpu_benchmark", SCRIPT)
    gpu = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gpu)
    bench = gpu.Bench(CudaKernels(TorchInSimulator(), "float16"), "cpu")
    batches = ((1, 1), (1, 37)), ((20, 1, 3), (20, 40, 9))
    found = gpu.checks(bench, hidden=64, vocab=80, heads=(4, 2, 32), batches=batches)
    assert len(found) == 10 and all(check["ok"] for check in found), found


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, cwd=SCRIPT.parents[1])
    assert done.returncode == 2 and "No CUDA device" in done.stdout
