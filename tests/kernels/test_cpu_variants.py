"""The same bits on every processor: each op's output bytes under each dot instruction, compiled for older processors too."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tinyserve.kernels.cpu.dot import supported_variants

HERE = Path(__file__).parent
# (dot instruction, processor that LLVM compiles for; "": this one)
OTHERS = (("avx2", ""), ("plain", ""), ("avx2", "haswell"), ("plain", "ivybridge"), ("plain", "generic"))


def digests(variant: str, processor: str = "") -> dict[str, str]:
    """`every_op.py` in a process of its own, compiled for that processor."""
    environment = dict(os.environ, TINYSERVE_DOT=variant, PYTHONPATH=os.pathsep.join((str(HERE), str(HERE.parents[1]))))
    if processor:
        environment |= {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": ""}
    done = subprocess.run([sys.executable, str(HERE / "every_op.py")], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def best() -> dict[str, str]:
    return digests(supported_variants()[0])


@pytest.mark.full
@pytest.mark.parametrize("variant, processor", OTHERS)
def test_the_bits_are_the_same(best, variant, processor):
    if variant not in supported_variants() or processor and platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip(f"this processor cannot run {variant} {processor}")
    assert digests(variant, processor) == best


@pytest.mark.full
def test_an_unknown_variant_is_refused():
    environment = dict(os.environ, TINYSERVE_DOT="mmx")
    done = subprocess.run([sys.executable, "-c", "import tinyserve.kernels.cpu.kernel_set"], env=environment,
                          cwd=HERE.parents[1], capture_output=True, text=True, timeout=60)
    assert done.returncode and "'mmx'; choose one of avx512vnni, avx2, neon, plain" in done.stderr
