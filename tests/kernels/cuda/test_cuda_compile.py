"""Every kernel of the catalog, compiled and assembled for sm_80 and sm_90 with no GPU: budgets kept, instructions in place."""

import importlib.util
import subprocess
import sys

import pytest

from tinyserve.kernels.cuda.catalog import BUILDS
from tinyserve.kernels.cuda.occupancy import occupancy, resident_ctas
from tinyserve.kernels.cuda.report import compile_report, table
from tinyserve.kernels.cuda.toolchain import ToolchainMissing, missing_packages, tool

needs_toolchain = pytest.mark.skipif(bool(missing_packages()), reason=f"not installed: {', '.join(missing_packages())}")

EVERY_DOOR = '''
import numpy as np
from numba import cuda, float32
from tinyserve.kernels.cuda import warp
from tinyserve.kernels.cuda.toolchain import assemble, compile_ptx

@cuda.jit
def every_door(halves, floats, words, out):
    i = cuda.threadIdx.x
    tile = cuda.shared.array((32, 16), np.float16, alignment=16)
    warp.cp_async(tile, (i, 0), halves, 16 * i, i < 30)
    warp.cp_async_commit()
    warp.cp_async_wait(0)
    cuda.syncthreads()
    a, b = warp.ldmatrix_x4(tile, (i & 15, 0)), warp.ldmatrix_x2_trans(tile, (i & 15, 8))
    c = warp.mma_m16n8k16_bf16(a, b, warp.mma_m16n8k16_f16(a, b, (floats[i], float32(0), float32(0), float32(0))))
    f, w = warp.load128_once(floats, 4 * i), warp.load128(words, 4 * i)
    total = warp.warp_sum(c[0]) + warp.shfl_up(c[1], 1) + warp.shfl_down(c[2], 1) + warp.exp2(f[0])
    n = warp.mma_m16n8k32_s8(a, b, (warp.dp4a_s8(w[0], w[1], 0), warp.dp4a_u8s8(w[2], w[3], 1), 0, 0))
    flags = warp.ballot(total > float32(0))
    if warp.any_lane(n[0] > 3) and warp.all_lanes(n[1] > 4):
        flags = warp.u32(flags + 1)
    warp.store128(out, 4 * i, (warp.pack_f16(total, f[1]), warp.pack_bf16(total, f[1]), flags, warp.shfl(w[1], 3)))

ptx = compile_ptx(every_door, "void(float16[::1], float32[::1], uint32[::1], uint32[::1])", (8, 0))
print(ptx)
print(assemble(ptx, (8, 0)).sass)
'''


@needs_toolchain
@pytest.mark.full
def test_each_door_is_the_instruction_it_names(tmp_path):
    script = tmp_path / "every_door.py"
    script.write_text(EVERY_DOOR)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=_path())
    assert done.returncode == 0, done.stderr
    for text in (
        "cp.async.cg.shared.global", "cp.async.commit_group", "cp.async.wait_group 0", "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
        "shfl.sync.bfly.b32", "shfl.sync.up.b32", "shfl.sync.down.b32", "shfl.sync.idx.b32", "vote.sync.ballot.b32",
        "vote.sync.any.pred", "vote.sync.all.pred", "dp4a.s32.s32", "dp4a.u32.s32", "ld.global.nc.L1::no_allocate.v4.u32",
        "ld.global.v4.u32", "st.global.v4.u32", "cvt.rn.f16x2.f32", "cvt.rn.bf16x2.f32", "ex2.approx.ftz.f32",
        "HMMA.16816.F32 ", "HMMA.16816.F32.BF16", "IMMA.16832.S8.S8", "LDSM.16.M88.4", "LDSM.16.MT88.2", "LDGSTS.E.BYPASS.128", "SHFL.BFLY",
    ):
        assert text in done.stdout, f"{text} is not in the listing"


@needs_toolchain
@pytest.mark.full
def test_the_catalog_keeps_its_budgets():
    rows = compile_report()
    assert len(rows) == 2 * len(BUILDS)
    assert not any(row.faults for row in rows), table([row for row in rows if row.faults])
    assert all(row.occupancy > 0 for row in rows)


@needs_toolchain
def test_one_kernel_by_name():
    row, = compile_report(["vector_add_wide"], ["sm_90"])
    assert row.found == {"128-bit loads": 2, "128-bit stores": 1} and row.faults == [] and row.occupancy == 1.0
    assert "vector_add_wide" in table([row])


@pytest.mark.parametrize("threads, registers, shared, ctas", [
    (256, 32, 0, 8), (256, 64, 0, 4), (256, 255, 0, 1), (32, 16, 0, 32), (128, 32, 48 * 1024, 3), (1024, 64, 0, 1),
])
def test_occupancy_by_hand(threads, registers, shared, ctas):
    assert resident_ctas("sm_80", threads, registers, shared) == ctas
    assert occupancy("sm_80", threads, registers, shared) == ctas * threads / 2048


def test_a_missing_tool_names_its_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolchainMissing, match="pip install nvidia-cuda-nvcc"):
        tool("bin/ptxas")
    with pytest.raises(ToolchainMissing, match="nvidia-cuda-nvrtc"):
        compile_report()


def _path():
    import os

    return {**os.environ, "PYTHONPATH": os.getcwd()}
