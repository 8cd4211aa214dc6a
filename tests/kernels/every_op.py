"""Run as a program: one line of JSON, {op: digest of its output bytes} of every CPU op on fixed inputs."""

import hashlib
import json

import numpy as np
from kernel_cases import FORMATS, floats, paged, random_weight, sequence

from tinyserve.kernels.cpu.kernel_set import CpuKernels


def outputs(ops: CpuKernels) -> dict[str, np.ndarray]:
    """Every op and format once, at sizes that use whole vectors and their ends."""
    x, gain, ids = floats(21, 160, scale=3), floats(160, seed=1), np.array([0, 39, 7], np.int32)
    angles = np.concatenate([np.cos(floats(21, 20)), np.sin(floats(21, 20))], 1)
    settings = [np.full(21, value, np.float32) for value in (0.8, 0.95, 0.01)]
    found = {
        "rms_norm": ops.rms_norm(x, gain, 1e-5), "layer_norm": ops.layer_norm(x, gain, gain, 1e-5), "add": ops.add(x, x),
        "silu_mul": ops.silu_mul(x[:, :75], x[:, 80:155]), "gelu": ops.gelu(x), "take_rows": ops.take_rows(x, ids % 21),
        "rope": ops.rope(x.reshape(21, 4, 40), x.reshape(21, 4, 40), np.arange(21, dtype=np.int32), angles)[0],
        "log_softmax": ops.log_softmax(x),
        "sample": ops.sample(x, settings[0], np.full(21, 50, np.int32), *settings[1:], np.linspace(0, 0.99, 21, dtype=np.float32)),
    }
    for kind in FORMATS:
        weight = random_weight(kind, 40, 160)
        found[f"embed {kind}"] = ops.embed(ids, weight)
        for rows in (1, 21):
            found[f"linear {kind} {rows}"] = ops.linear(x[:rows], weight, floats(40, seed=2))
    for dtype in ("float32", "float16"):
        for block_size in (4, 16):
            for rows in (2, 40):
                case = paged(ops, [sequence(rows, 300, 3, 1, 40)], block_size, dtype)
                found[f"attention {dtype} {block_size} {rows}"] = ops.attention(*case.arguments(), 0.2)
        caches = ops.new_cache(2, 16, 4, 40, dtype)
        ops.store_kv(x.reshape(21, 4, 40), x.reshape(21, 4, 40), np.arange(21, dtype=np.int32), *caches)
        found[f"store_kv {dtype}"] = np.stack([np.ascontiguousarray(cache) for cache in caches])
    return found


if __name__ == "__main__":
    print(json.dumps({name: hashlib.sha256(y.tobytes()).hexdigest()[:16] for name, y in outputs(CpuKernels(2)).items()}))
