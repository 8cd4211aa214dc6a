"""Rows of a packed weight as float32: the token embedding, read from the same bytes that the output layer multiplies by."""

from . import simd
from .compiler import inline, kernel, template
from .elementwise import _claimed_rows
from .memory import load_bf16, load_f16, load_f32, load_i32, load_i64, load_u8, store_f32
from .simd import fma1


@inline
def _float32(a, tile, lane, column, columns):
    return load_f32(load_i64(a + 40) + ((tile * columns + column) * 16 + lane) * 4)


@inline
def _bfloat16(a, tile, lane, column, columns):
    return load_bf16(load_i64(a + 40) + ((tile * columns + column) * 16 + lane) * 2)


@inline
def _int8(a, tile, lane, column, columns):
    group = tile * (columns // 32) + column // 32
    code = load_u8(load_i64(a + 40) + group * 512 + (column % 32 // 4) * 64 + lane * 4 + column % 4)
    return simd.f32(code - 128) * load_f16(load_i64(a + 48) + (group * 16 + lane) * 2)


@inline
def _int4(a, tile, lane, column, columns):
    group = tile * (columns // 32) + column // 32
    byte = load_u8(load_i64(a + 40) + group * 256 + (column % 16 // 4) * 64 + lane * 4 + column % 4)
    code = byte >> 4 if column % 32 >= 16 else byte & 15
    at = (group * 16 + lane) * 2
    return fma1(simd.f32(code), load_f16(load_i64(a + 48) + at), load_f16(load_i64(a + 56) + at))


@template
def _every_row(a, element):
    """Arguments: chunk, T, K, codes, scales, minimums, ids, y."""
    tokens, columns, ids, y = load_i64(a + 24), load_i64(a + 32), load_i64(a + 64), load_i64(a + 72)
    start, stop = _claimed_rows(a, tokens)
    while start < tokens:
        for t in range(start, stop):
            row = load_i32(ids + t * 4)
            for column in range(columns):
                store_f32(y + (t * columns + column) * 4, element(a, row // 16, row % 16, column, columns))
        start, stop = _claimed_rows(a, tokens)


@kernel
def embed_float32(a, thread, threads, barrier):
    """Rows of a float32 weight."""
    _every_row(a, _float32)


@kernel
def embed_bfloat16(a, thread, threads, barrier):
    """Rows of a bfloat16 weight."""
    _every_row(a, _bfloat16)


@kernel
def embed_int8(a, thread, threads, barrier):
    """Rows of an INT8 weight."""
    _every_row(a, _int8)


@kernel
def embed_int4(a, thread, threads, barrier):
    """Rows of an INT4 weight."""
    _every_row(a, _int4)
