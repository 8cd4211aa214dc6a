"""Causal attention over the paged cache: one kernel for prefill, chunks, decode and verification.

A context is cut at absolute positions into splits of 256, and a split into tiles of 64. For one query vector:
  inside a split   scores, their maximum m, p = exp(score - m), l = sum of p, a = sum of p * v over rising positions
  over the splits  the running (m, l, a) is rescaled and the next split added, in order; the result is a / l
No step looks at which other rows are in the batch, where a chunk began, or how large a block is, so neither do the bits.
Few rows: the splits of one row are shared out over the threads and merged after a barrier (flash-decoding). Many rows: a
thread takes a block of rows and one key/value head, and walks the splits itself (flash attention). The bits are the same.

Memory: keys lie [head, block, D, position] so that 16 positions fill a vector, values [head, block, position, D]; `attention_int8`
says what an INT8 cache holds. There scores are scaled before the softmax, and weights by the scales of their values after its sum.
"""

from . import memory, simd
from .attention_direct import scores_of_row, weigh_row
from .attention_int8 import scores_int8, times_scales
from .attention_tiles import SPLIT, TILE, load_keys, load_values, merge, scores_of_one, scores_of_two, softmax, weigh, weigh_two
from .compiler import inline, kernel
from .memory import load_f32, load_f32x16, load_i32, load_i64, store_f32, store_f32x16
from .simd import broadcast
from .team import claim, wait_for_all

FEW_ROWS = 16  # up to this many rows in a step, splits are shared out
VECTORS = 48  # query vectors (rows times query heads of one key/value head) that a thread works on at a time


@inline
def _visible(a, s, row):
    """Positions [low, high) that row `row` of sequence s may see."""
    starts, window = load_i64(a + 96), load_i64(a + 160)
    behind = load_i32(starts + s * 4 + 4) - row - 1
    high = load_i32(load_i64(a + 104) + s * 4) - behind
    low = max(0, high - window) if window else 0
    return low, high


@inline
def _weights_of(a, table, head, first, begin, end, low, high, row):
    """Scores of one query vector for the split at `first` -> weights of the values, in place; returns (maximum, sum).

    Scores of the positions begin..end were computed, those of low..high count."""
    int8, at = load_i64(a + 72) == 1, row + (begin - first) * 4
    if int8:
        times_scales(a, load_i64(a + 40), table, head, begin, end, at)
    m, total = softmax(row, low - first, high - first)
    if int8:
        times_scales(a, load_i64(a + 48), table, head, begin, end, at)
    return m, total


@inline
def _one_split(a, scratch, s, head, row, rows, split, records, record_bytes):
    """The partial (a, m, l) of one split for rows row..row+rows of sequence s and the query heads of one key/value head.

    A record is left alone where its row sees nothing of the split."""
    heads, kv_heads, d = load_i64(a + 120), load_i64(a + 128), load_i64(a + 136)
    q, q_token, q_head = load_i64(a + 16), load_i64(a + 24), load_i64(a + 32)
    group, padded = heads // kv_heads, (d + 15) // 16 * 16
    table = load_i64(a + 80) + s * load_i64(a + 88) * 4
    scale = load_f32(load_i64(a + 152))
    first = split * SPLIT
    low_all, _ = _visible(a, s, row)
    _, high_all = _visible(a, s, row + rows - 1)
    begin, end = max(first, low_all // TILE * TILE), min(first + SPLIT, high_all)
    tile_data, scores, int8 = scratch, scratch + TILE * padded * 4, load_i64(a + 72) == 1
    if rows == 1 and d % 64 == 0 and load_i64(a + 144) % 16 == 0:
        low = max(first, low_all)
        source, to = q + row * q_token + head * group * q_head, scores + (begin - first) * 4
        if int8:
            scores_int8(a, table, head, source, group, begin, end, to, tile_data)
        else:
            scores_of_row(a, table, head, source, group, begin, end, to)
        for g in range(group):
            m, total = _weights_of(a, table, head, first, begin, end, low, end, scores + g * SPLIT * 4)
            store_f32(records + g * record_bytes + padded * 4, m)
            store_f32(records + g * record_bytes + padded * 4 + 4, total)
        weigh_row(a, table, head, group, low, end, scores + (low - first) * 4, records, record_bytes)
        return
    for i in range(rows if int8 else 0):
        low, high = _visible(a, s, row + i)
        start, stop = max(begin, low // TILE * TILE), min(end, high)
        source, to = q + (row + i) * q_token + head * group * q_head, scores + (i * group * SPLIT + start - first) * 4
        scores_int8(a, table, head, source, group, start, stop, to, tile_data)
    for tile in range(begin, begin if int8 else end, TILE):
        load_keys(a, table, head, tile, min(TILE, end - tile), tile_data)
        for i in range(rows):
            low, high = _visible(a, s, row + i)
            if low < tile + TILE and high > tile:
                source, to = q + (row + i) * q_token + head * group * q_head, scores + (i * group * SPLIT + tile - first) * 4
                for g in range(0, group - 1, 2):
                    at = source + g * q_head
                    scores_of_two(at, at + q_head, tile_data, d, scale, to + g * SPLIT * 4)
                if group % 2:
                    at = source + (group - 1) * q_head
                    scores_of_one(at, tile_data, d, scale, to + (group - 1) * SPLIT * 4)
    for i in range(rows):
        low, high = _visible(a, s, row + i)
        low, high = max(low, first), min(high, first + SPLIT)
        if low < high:
            for g in range(group):
                record = records + (i * group + g) * record_bytes
                m, total = _weights_of(a, table, head, first, begin, end, low, high, scores + (i * group + g) * SPLIT * 4)
                store_f32(record + padded * 4, m)
                store_f32(record + padded * 4 + 4, total)
                for j in range(0, padded, 16):
                    store_f32x16(record + j * 4, broadcast(simd.f32(0)))
    for tile in range(begin, end, TILE):
        load_values(a, table, head, tile, min(TILE, end - tile), tile_data, padded)
        for i in range(rows):
            low, high = _visible(a, s, row + i)
            low, high = max(low - tile, 0), min(high - tile, TILE)
            if low < high:
                p, record = scores + (i * group * SPLIT + tile - first) * 4, records + i * group * record_bytes
                for g in range(0, group - 1, 2):
                    y = record + g * record_bytes
                    weigh_two(p + g * SPLIT * 4, tile_data, padded, low, high, y, y + record_bytes)
                if group % 2:
                    last = group - 1
                    y = record + last * record_bytes
                    weigh(p + last * SPLIT * 4, tile_data, padded, low, high, y)


@inline
def _finish(state, padded, d, y):
    """y[D] = a / l."""
    total = broadcast(load_f32(state + padded * 4 + 4))
    for j in range(0, d, 16):
        memory.store_some(y + j * 4, simd.div(load_f32x16(state + j * 4), total), d - j)


@inline
def _splits_of(a, s, row):
    """The splits [first, stop) that a row sees something of."""
    low, high = _visible(a, s, row)
    return low // SPLIT, (high + SPLIT - 1) // SPLIT


@inline
def _shared_out(a, scratch, threads, barrier, record_bytes, padded):
    """Few rows: claim (sequence, head, split), meet, then claim (sequence, head) and merge."""
    sequences, heads, kv_heads, d = load_i64(a + 112), load_i64(a + 120), load_i64(a + 128), load_i64(a + 136)
    starts, y, partials, splits = load_i64(a + 96), load_i64(a + 168), load_i64(a + 192), load_i64(a + 200)
    group, units = heads // kv_heads, sequences * kv_heads
    while True:
        unit = claim(a)
        if unit >= units * splits:
            break
        s, head, split = unit // (kv_heads * splits), unit // splits % kv_heads, unit % splits
        row = load_i32(starts + s * 4)
        rows = load_i32(starts + s * 4 + 4) - row
        at = partials + (split * load_i64(a + 208) + row) * heads * record_bytes + head * group * rows * record_bytes
        if rows and split * SPLIT < _visible(a, s, row + rows - 1)[1] and (split + 1) * SPLIT > _visible(a, s, row)[0]:
            _one_split(a, scratch, s, head, row, rows, split, at, record_bytes)
    wait_for_all(threads, barrier)
    while True:
        unit = claim(a) - units * splits - threads
        if unit >= units:
            break
        s, head = unit // kv_heads, unit % kv_heads
        row = load_i32(starts + s * 4)
        rows = load_i32(starts + s * 4 + 4) - row
        for i in range(rows):
            first, stop = _splits_of(a, s, row + i)
            for g in range(group):
                offset = (row * heads + head * group * rows + i * group + g) * record_bytes
                state = partials + first * load_i64(a + 208) * heads * record_bytes + offset
                for split in range(first + 1, stop):
                    merge(state, partials + split * load_i64(a + 208) * heads * record_bytes + offset, padded)
                _finish(state, padded, d, y + ((row + i) * heads + head * group + g) * d * 4)


@inline
def _walked(a, scratch, record_bytes, padded):
    """Many rows: claim (block of rows, head) and walk its splits."""
    sequences, heads, kv_heads, d = load_i64(a + 112), load_i64(a + 120), load_i64(a + 128), load_i64(a + 136)
    starts, y = load_i64(a + 96), load_i64(a + 168)
    group = heads // kv_heads
    block = max(1, VECTORS // group)
    states = scratch + (TILE * padded + block * group * SPLIT) * 4
    parts = states + block * group * record_bytes
    unit, before = claim(a), 0
    for s in range(sequences):
        begin, end = load_i32(starts + s * 4), load_i32(starts + s * 4 + 4)
        blocks = (end - begin + block - 1) // block
        while unit < before + blocks * kv_heads:
            head, row = (unit - before) % kv_heads, end - ((unit - before) // kv_heads + 1) * block
            rows = block + min(0, row - begin)
            row = max(row, begin)
            _rows_block(a, scratch, s, head, row, rows, states, parts, record_bytes, padded)
            for i in range(rows):
                for g in range(group):
                    to = y + ((row + i) * heads + head * group + g) * d * 4
                    _finish(states + (i * group + g) * record_bytes, padded, d, to)
            unit = claim(a)
        before += blocks * kv_heads


@inline
def _rows_block(a, scratch, s, head, row, rows, states, parts, record_bytes, padded):
    """All splits of a block of rows, merged in order into `states`."""
    group = load_i64(a + 120) // load_i64(a + 128)
    first = _splits_of(a, s, row)[0]
    stop = _splits_of(a, s, row + rows - 1)[1]
    for split in range(first, stop):
        _one_split(a, scratch, s, head, row, rows, split, parts, record_bytes)
        for i in range(rows):
            begin, end = _splits_of(a, s, row + i)
            if begin <= split < end:
                for g in range(group):
                    state, part = states + (i * group + g) * record_bytes, parts + (i * group + g) * record_bytes
                    if split == begin:
                        for j in range(0, record_bytes, 64):
                            store_f32x16(state + j, load_f32x16(part + j))
                    else:
                        merge(state, part, padded)


@kernel
def attention(a, thread, threads, barrier):
    """Arguments: q, q_token, q_head, keys, values, block bytes, head bytes, element bytes, tables, table width, query_start,
    context_lengths, S, Hq, Hk, D, P, scale (address), window, y, scratch, scratch bytes a thread, partials, splits, T."""
    d, tokens = load_i64(a + 136), load_i64(a + 208)
    padded = (d + 15) // 16 * 16
    record_bytes = padded * 4 + 64
    scratch = load_i64(a + 176) + thread * load_i64(a + 184)
    if tokens <= FEW_ROWS:
        _shared_out(a, scratch, threads, barrier, record_bytes, padded)
    else:
        _walked(a, scratch, record_bytes, padded)
