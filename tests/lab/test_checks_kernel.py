"""Every kernel of the catalog as an exercise: the project's own passes, an empty one does not, planted wrong ones are refused."""

import subprocess
import sys

import pytest

from tinyserve.errors import InvalidRequest
from tinyserve.kernels.cuda import simulate
from tinyserve.kernels.cuda.catalog import BUILDS
from tinyserve.lab import checks

simulate()
from numba import cuda  # noqa: E402
from planted import planted  # noqa: E402

from tinyserve.kernels.cuda.ladder import reduction, softmax, transpose  # noqa: E402

NAMES = list(dict.fromkeys(build.name for build in BUILDS))
BARRIER = "cuda.syncthreads()"


@pytest.mark.parametrize("name", NAMES)
def test_the_projects_own_kernel_passes_and_an_empty_one_does_not(name):
    exercise = checks.kernel(name)
    verdict = exercise(exercise.reference)
    assert verdict.passed and verdict.use is exercise.reference, verdict
    empty = exercise(cuda.jit(lambda *arguments: None))
    assert not empty.passed and empty.use is exercise.reference and "elements are wrong" in empty.message


@pytest.mark.parametrize("name, old, new, words", [
    ("vector_add", "i < out", "i <= out", "used index 4 of 'a'"),
    ("vector_add", "i < out.shape[0]", "i < out.shape[0] - 1", "never written"),
    ("vector_add", "cuda.grid(1)", "cuda.threadIdx.x * cuda.gridDim.x + cuda.blockIdx.x", "read sectors"),
    ("vector_add_wide", "q[3]", "q[2]", "wrong"), ("scale_thread_per_row", "x.shape[1]", "x.shape[1] - 1", "never written"),
    ("scale_thread_per_column", "factor * x", "x", "wrong"), ("transpose_naive", "out[column, row]", "out[row, column]", ""),
    ("transpose_tiled", BARRIER, "pass", "no barrier between"), ("transpose_padded", "PADDED", "TILE", "bank conflicts: "),
    ("transpose_padded", "out_row < x.shape[1]", "out_row <= x.shape[1]", "guard the access"),
    ("sum_atomic", "cuda.atomic.add(out, 0, x[i])", "out[0] += x[i]", "race on 'out'"),
    ("sum_tree", f"partial[thread + half]\n        {BARRIER}", "partial[thread + half]", "no barrier between"),
    ("sum_tree", f"partial[thread + half]\n        {BARRIER}", f"partial[thread + half]\n            {BARRIER}", "can never meet"),
    ("sum_tree", "thread < half", "thread < half - 1", "wrong"), ("sum_tree", "half = THREADS // 2", "half = THREADS", "guard the access"),
    ("sum_shuffles", BARRIER, "pass", "no barrier between"), ("sum_shuffles", "warp_sum(total)", "total", "wrong"),
    ("softmax_three_passes", "- top", "", "wrong"), ("softmax_online", "total * exp2(top - higher)", "total", "wrong"),
    ("matvec_thread_per_row", "range(x.shape[0])", "range(1, x.shape[0])", "wrong"),
    ("matvec_warp_per_row", "warp_sum(total)", "total", "wrong"), ("matvec_float16_wide", "d * second[3]", "d * second[2]", "wrong"),
    ("matmul_naive", "column < out", "column <= out", ""), ("matmul_tiled", f"tile_b[x, i]\n        {BARRIER}", "tile_b[x, i]", "race"),
    ("matmul_tiled", "tile_b[x, i]", "tile_b[i, x]", "wrong"),
    ("saxpy", "cuda.grid(1), x.shape[0]", "cuda.grid(1), x.shape[0] + 1", "guard the access"),
    ("saxpy", "range(cuda.grid(1), x.shape[0], cuda.gridsize(1))", "range(4 * cuda.grid(1), min(4 * cuda.grid(1) + 4, x.shape[0]))",
     "read sectors"), ("saxpy", "x.shape[0], cuda.gridsize(1)", "min(cuda.gridsize(1), x.shape[0])", "wrong"),
    ("saxpy", "+ y[i]", "", "wrong"),
    ("quarter_turn", BARRIER, "pass", "no barrier between"), ("quarter_turn", "PADDED", "TILE", "bank conflicts: "),
    ("quarter_turn", "- 1 - row", "- row", "guard the access"), ("quarter_turn", "x.shape[0] - 1 - row", "row", "wrong"),
    ("quarter_turn", "row < x.shape[0] and ", "", "guard the access"),
    ("row_max", f"thread + half])\n        {BARRIER}", "thread + half])", "no barrier between"),
    ("row_max", f"thread + half])\n        {BARRIER}", f"thread + half])\n            {BARRIER}", "can never meet"),
    ("row_max", "float32(FAR_BELOW)", "float32(0)", "wrong"), ("row_max", "x.shape[1], THREADS", "x.shape[1] - 1, THREADS", "wrong"),
    ("row_max", "range(thread, x.shape[1], THREADS)", "range(3 * thread, min(3 * thread + 3, x.shape[1]))", "read sectors"),
    ("row_max", "partial[thread] = largest", "out[row] = largest\n    partial[thread] = largest", "race on 'out'"),
    ("matmul_tensor_cores", "cp_async_wait(1)", "cp_async_wait(2)", "async write"),
    ("matmul_tensor_cores", "swizzled(row, k + 8 * (lane // 8 % 2))", "k + 8 * (lane // 8 % 2)", "wrong"),
])
def test_a_planted_wrong_rung_is_refused_with_the_reason(name, old, new, words):
    exercise = checks.kernel(name)
    verdict = exercise(planted(exercise.reference, old, new))
    assert not verdict.passed and words in verdict.message, verdict


@pytest.mark.parametrize("name, old, new", [
    ("rms_norm", "+ float32(eps)", ""), ("layer_norm", "+ b[5]", ""), ("log_softmax", "range(thread, size", "range(thread, size - 1"),
    ("rope", "a[3] * s[3]", "b[3] * s[3]"), ("pointwise", "row < out", "row <= out"),
    ("store_kv", "write8(value_cache", "write8(key_cache"),
    ("take_rows", "rows[row]", "row"), ("quantize", "float32(127) / largest", "float32(128) / largest"),
    ("matvec", BARRIER, "pass"), ("matmul", "lower, 4 * block", "upper, 4 * block"), ("embed", "+ minimum", ""),
    ("dense", "lane == 0", "lane < 2"), ("attention_naive", "cuda.syncwarp()", "pass"), ("attention_naive", "+ row + 1", "+ row + 2"),
    ("attention_online", "sums[i] * keep", "sums[i]"), ("paged_one_warp", "range(context)", "range(context - 1)"),
    ("paged_decode", BARRIER, "pass"),
    ("paged_decode", "min(part_of * split + split, context)", "min(part_of * split + split, context - 1)"),
    ("store_kv_int8", "slots[row]", "row"), ("merge_splits", "* share,", ","), ("flash_prefill", BARRIER, "pass"),
    ("flash_prefill", "before + upper // G,", "before + upper // G + 1,"), ("sample", "float32(LOG2_E) / ", "float32(1) / "),
])
def test_a_planted_wrong_kernel_of_the_engine_is_refused(name, old, new):
    exercise = checks.kernel(name)
    verdict = exercise(planted(exercise.reference, old, new))
    assert not verdict.passed and verdict.message, verdict


@pytest.mark.parametrize("name, slower, words", [
    ("transpose_padded", transpose.transpose_naive, "write sectors: "), ("transpose_padded", transpose.transpose_tiled, "bank conflicts: "),
    ("reduction", reduction.sum_tree, "barriers: 16, at most 2"), ("softmax_online", softmax.softmax_three_passes, "read sectors"),
])
def test_an_earlier_rung_is_right_and_still_refused_for_its_traffic(name, slower, words):
    verdict = checks.kernel(name)(slower)
    assert not verdict.passed and words in verdict.message and "race" not in verdict.message


def test_a_teacher_may_allow_more():
    assert checks.kernel("sum_shuffles", allow={"barriers": 14})(reduction.sum_tree).passed


def test_the_exercise_shows_its_task():
    shown = repr(checks.kernel("reduction"))
    assert shown.startswith("sum_shuffles(x, out)") and "Block: 128." in shown and "x: float32 [300]" in shown


def test_an_unknown_kernel_and_a_plain_function_are_refused():
    with pytest.raises(InvalidRequest, match="no kernel named 'sum_'; there are vector_add"):
        checks.kernel("sum_")
    assert "@cuda.jit" in checks.kernel("vector_add")(lambda a, b, out: None).message


def test_without_the_simulator_it_says_how_to_get_it():
    code = "from tinyserve.lab import checks\nfrom numba import cuda\nchecks.kernel('sum_tree')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "WrongMode" in done.stderr and "tinyserve.kernels.cuda.simulate()" in done.stderr


@pytest.mark.parametrize("name", ["saxpy", "quarter_turn", "row_max"])
def test_chapter_03_asks_for_kernels_of_the_catalog(name):
    verdict = getattr(checks.ch03, name)(checks.kernel(name).reference)
    assert verdict.passed and verdict.name == name
    stub = getattr(checks.ch03, name)(cuda.jit(lambda *arguments: ...))
    assert not stub.passed and stub.use is verdict.use
