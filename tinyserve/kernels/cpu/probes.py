"""What this machine can do at most, measured with the same threads that serve: bytes read and dot products a second."""

from __future__ import annotations

import functools
import time

import numpy as np

from . import simd
from .compiler import kernel
from .dot import dot_small
from .memory import load_i64, load_u8x64, store_f32x16
from .program import WORDS, aligned
from .simd import add_i32, as_words, zero_i32x16
from .team import Team, claim

_CHUNK = 1 << 20
_DOTS = 4096


@kernel
def probe_read(a, thread, threads, barrier):
    """Arguments: address, chunks, results[threads, 16]. Reads every byte once."""
    source, chunks, results = load_i64(a + 16), load_i64(a + 24), load_i64(a + 32)
    s0 = s1 = s2 = s3 = zero_i32x16()
    while True:
        chunk = claim(a)
        if chunk >= chunks:
            break
        begin = source + chunk * _CHUNK
        for at in range(begin, begin + _CHUNK, 256):
            s0 = add_i32(s0, as_words(load_u8x64(at)))
            s1 = add_i32(s1, as_words(load_u8x64(at + 64)))
            s2 = add_i32(s2, as_words(load_u8x64(at + 128)))
            s3 = add_i32(s3, as_words(load_u8x64(at + 192)))
    total = add_i32(add_i32(s0, s1), add_i32(s2, s3))
    store_f32x16(results + thread * 64, simd.to_f32(total))


@kernel
def probe_dots(a, thread, threads, barrier):
    """Arguments: address of 64 bytes, claims, results[threads, 16]. Each claim is 4096 times eight independent dots."""
    codes, claims, results = load_u8x64(load_i64(a + 16)), load_i64(a + 24), load_i64(a + 32)
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero_i32x16()
    while claim(a) < claims:
        for i in range(_DOTS):
            quad = np.int32(i)
            s0, s1 = dot_small(s0, codes, quad), dot_small(s1, codes, quad)
            s2, s3 = dot_small(s2, codes, quad), dot_small(s3, codes, quad)
            s4, s5 = dot_small(s4, codes, quad), dot_small(s5, codes, quad)
            s6, s7 = dot_small(s6, codes, quad), dot_small(s7, codes, quad)
    total = add_i32(add_i32(add_i32(s0, s1), add_i32(s2, s3)), add_i32(add_i32(s4, s5), add_i32(s6, s7)))
    store_f32x16(results + thread * 64, simd.to_f32(total))


def _best(team: Team, address: int, source: np.ndarray, count: int, repeats: int) -> float:
    """The fastest of `repeats` runs, in seconds: a limit is what the machine does when nothing disturbs it."""
    results = aligned((team.threads, 16), np.float32)
    program = np.zeros((1, WORDS), np.int64)
    program[0, :5] = [address, 0, source.ctypes.data, count, results.ctypes.data]
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        team.run(program)
        times.append(time.perf_counter() - started)
    return min(times)


@functools.lru_cache(maxsize=4)
def read_bandwidth(team: Team, megabytes: int = 256, repeats: int = 5) -> float:
    """Bytes a second that the team reads from memory (far more than the caches hold)."""
    source = aligned((megabytes * _CHUNK,), np.uint8)
    source[:] = 1
    return megabytes * _CHUNK / _best(team, probe_read.address, source, megabytes, repeats)


@functools.lru_cache(maxsize=4)
def dot_rate(team: Team, repeats: int = 5) -> float:
    """Multiplications and additions a second (two operations for each product) of the INT8 dot instruction."""
    source, claims = aligned((64,), np.uint8), 64 * team.threads
    source[:] = 1
    return claims * _DOTS * 8 * 64 * 2 / _best(team, probe_dots.address, source, claims, repeats)
