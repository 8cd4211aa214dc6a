"""Causal attention over the paged cache: one kernel for prefill, chunks, decode and verification.

A context is cut at absolute positions into splits of 256, and a split into tiles of 64. For one query vector:
  inside a split   scores, their maximum m, p = exp(score - m), l = sum of p, a = sum of p * v over rising positions
  over the splits  the running (m, l, a) is rescaled and the next split added, in order; the result is a / l
No step looks at which other rows are in the batch, where a chunk began, or how large a block is, so neither do the bits.
Few rows: the splits of one row are shared out over the threads and merged after a barrier (flash-decoding). Many rows: a
thread takes a block of rows and one key/value head, and walks the splits itself (flash attention). The bits are the same.

Memory: keys lie [head, block, D, position] so that 16 positions fill a vector, values [head, block, position, D].
"""

from . import simd
from .compiler import inline, kernel
from .functions import exp
from .simd import add, broadcast, fma, load_f16, load_f16x16, load_f32, load_f32x16, load_i32, load_i64, mul, store_f32, store_f32x16
from .team import claim, wait_for_all

SPLIT, TILE = 256, 64
FEW_ROWS = 16  # up to this many rows in a step, splits are shared out
VECTORS = 48  # query vectors (rows times query heads of one key/value head) that a thread works on at a time
_INFINITY = float("inf")


@inline
def _load_keys(a, table, head, first, count, to):
    """Keys of positions first..first+count as float32 to[D, 64]; lanes past the context hold whatever the block holds."""
    size, d, p = load_i64(a + 72), load_i64(a + 136), load_i64(a + 144)
    base = load_i64(a + 40) + head * load_i64(a + 64)
    if p < 16:
        for i in range(count):
            position = first + i
            source = base + load_i32(table + position // p * 4) * load_i64(a + 56) + position % p * size
            for j in range(d):
                at = source + j * p * size
                store_f32(to + (j * TILE + i) * 4, load_f32(at) if size == 4 else load_f16(at))
        return
    for i in range(0, count, 16):
        position = first + i
        source = base + load_i32(table + position // p * 4) * load_i64(a + 56) + position % p * size
        if size == 4:
            for j in range(d):
                store_f32x16(to + (j * TILE + i) * 4, load_f32x16(source + j * p * 4))
        else:
            for j in range(d):
                store_f32x16(to + (j * TILE + i) * 4, load_f16x16(source + j * p * 2))


@inline
def _load_values(a, table, head, first, count, to, padded):
    """Values of positions first..first+count as float32 to[64, padded]."""
    size, d, p = load_i64(a + 72), load_i64(a + 136), load_i64(a + 144)
    base = load_i64(a + 48) + head * load_i64(a + 64)
    for i in range(count):
        position = first + i
        source = base + load_i32(table + position // p * 4) * load_i64(a + 56) + position % p * d * size
        target = to + i * padded * 4
        if d != padded:
            for j in range(d):
                store_f32(target + j * 4, load_f32(source + j * 4) if size == 4 else load_f16(source + j * 2))
        elif size == 4:
            for j in range(0, d, 16):
                store_f32x16(target + j * 4, load_f32x16(source + j * 4))
        else:
            for j in range(0, d, 16):
                store_f32x16(target + j * 4, load_f16x16(source + j * 2))


@inline
def _scores(q, keys, d, scale, to):
    """to[64] = scale * (q[D] . keys[D, 64]), each position's sum over d in order."""
    s0 = s1 = s2 = s3 = broadcast(simd.f32(0))
    for j in range(d):
        v, k = broadcast(load_f32(q + j * 4)), keys + j * TILE * 4
        s0 = fma(v, load_f32x16(k), s0)
        s1 = fma(v, load_f32x16(k + 64), s1)
        s2 = fma(v, load_f32x16(k + 128), s2)
        s3 = fma(v, load_f32x16(k + 192), s3)
    _store_four(to, scale, s0, s1, s2, s3)


@inline
def _scores_of_two(q, r, keys, d, scale, to):
    """`_scores` of q into to[0] and of r into to[SPLIT]: every key is loaded once for both."""
    s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = broadcast(simd.f32(0))
    for j in range(d):
        v, w, k = broadcast(load_f32(q + j * 4)), broadcast(load_f32(r + j * 4)), keys + j * TILE * 4
        k0, k1, k2, k3 = load_f32x16(k), load_f32x16(k + 64), load_f32x16(k + 128), load_f32x16(k + 192)
        s0, t0 = fma(v, k0, s0), fma(w, k0, t0)
        s1, t1 = fma(v, k1, s1), fma(w, k1, t1)
        s2, t2 = fma(v, k2, s2), fma(w, k2, t2)
        s3, t3 = fma(v, k3, s3), fma(w, k3, t3)
    _store_four(to, scale, s0, s1, s2, s3)
    _store_four(to + SPLIT * 4, scale, t0, t1, t2, t3)


@inline
def _store_four(to, scale, s0, s1, s2, s3):
    factor = broadcast(scale)
    store_f32x16(to, mul(s0, factor))
    store_f32x16(to + 64, mul(s1, factor))
    store_f32x16(to + 128, mul(s2, factor))
    store_f32x16(to + 192, mul(s3, factor))


@inline
def _softmax(scores, low, high):
    """scores[low:high] -> exp(score - maximum) in place; returns (maximum, sum). Lanes outside the range become 0."""
    start, stop = low // 16 * 16, (high + 15) // 16 * 16
    largest = broadcast(simd.f32(-_INFINITY))
    for i in range(start, stop, 16):
        v = simd.keep_lanes(load_f32x16(scores + i * 4), low - i, high - i, simd.f32(-_INFINITY))
        largest = simd.vmax(v, largest)
    m = simd.max_lanes(largest)
    total = broadcast(simd.f32(0))
    for i in range(start, stop, 16):
        v = exp(simd.sub(load_f32x16(scores + i * 4), broadcast(m)))
        v = simd.keep_lanes(v, low - i, high - i, simd.f32(0))
        store_f32x16(scores + i * 4, v)
        total = add(total, v)
    return m, simd.sum_lanes(total)


@inline
def _weigh(p, values, padded, low, high, y):
    """y[padded] += sum of p[i] * values[i] for low <= i < high, in order."""
    for j in range(0, padded // 64 * 64, 64):
        at = y + j * 4
        y0, y1, y2, y3 = load_f32x16(at), load_f32x16(at + 64), load_f32x16(at + 128), load_f32x16(at + 192)
        for i in range(low, high):
            weight, v = broadcast(load_f32(p + i * 4)), values + (i * padded + j) * 4
            y0 = fma(weight, load_f32x16(v), y0)
            y1 = fma(weight, load_f32x16(v + 64), y1)
            y2 = fma(weight, load_f32x16(v + 128), y2)
            y3 = fma(weight, load_f32x16(v + 192), y3)
        store_f32x16(at, y0)
        store_f32x16(at + 64, y1)
        store_f32x16(at + 128, y2)
        store_f32x16(at + 192, y3)
    for j in range(padded // 64 * 64, padded, 16):
        _weigh_lanes(p, values, padded, low, high, y, j)


@inline
def _weigh_two(p, values, padded, low, high, y, z):
    """`_weigh` with p[0] into y and p[SPLIT] into z."""
    for j in range(0, padded // 64 * 64, 64):
        at, to = y + j * 4, z + j * 4
        y0, y1, y2, y3 = load_f32x16(at), load_f32x16(at + 64), load_f32x16(at + 128), load_f32x16(at + 192)
        z0, z1, z2, z3 = load_f32x16(to), load_f32x16(to + 64), load_f32x16(to + 128), load_f32x16(to + 192)
        for i in range(low, high):
            v = values + (i * padded + j) * 4
            one, two = broadcast(load_f32(p + i * 4)), broadcast(load_f32(p + (i + SPLIT) * 4))
            v0, v1, v2, v3 = load_f32x16(v), load_f32x16(v + 64), load_f32x16(v + 128), load_f32x16(v + 192)
            y0, z0 = fma(one, v0, y0), fma(two, v0, z0)
            y1, z1 = fma(one, v1, y1), fma(two, v1, z1)
            y2, z2 = fma(one, v2, y2), fma(two, v2, z2)
            y3, z3 = fma(one, v3, y3), fma(two, v3, z3)
        store_f32x16(at, y0)
        store_f32x16(at + 64, y1)
        store_f32x16(at + 128, y2)
        store_f32x16(at + 192, y3)
        store_f32x16(to, z0)
        store_f32x16(to + 64, z1)
        store_f32x16(to + 128, z2)
        store_f32x16(to + 192, z3)
    for j in range(padded // 64 * 64, padded, 16):
        _weigh_lanes(p, values, padded, low, high, y, j)
        _weigh_lanes(p + SPLIT * 4, values, padded, low, high, z, j)


@inline
def _weigh_lanes(p, values, padded, low, high, y, j):
    total = load_f32x16(y + j * 4)
    for i in range(low, high):
        total = fma(broadcast(load_f32(p + i * 4)), load_f32x16(values + (i * padded + j) * 4), total)
    store_f32x16(y + j * 4, total)


@inline
def _merge(state, part, padded):
    """Add one split (m, l, a) to the running state: two records of [a (padded floats), m, l]."""
    m0, l0 = load_f32(state + padded * 4), load_f32(state + padded * 4 + 4)
    m1, l1 = load_f32(part + padded * 4), load_f32(part + padded * 4 + 4)
    m = m0 if m0 > m1 else m1
    c0 = exp(broadcast(m0 - m))
    c1 = exp(broadcast(m1 - m))
    for j in range(0, padded, 16):
        kept = mul(load_f32x16(state + j * 4), c0)
        store_f32x16(state + j * 4, fma(load_f32x16(part + j * 4), c1, kept))
    l = fma(broadcast(l1), c1, mul(broadcast(l0), c0))
    store_f32(state + padded * 4, m)
    store_f32(state + padded * 4 + 4, simd.max_lanes(l))


@inline
def _visible(a, s, row):
    """Positions [low, high) that row `row` of sequence s may see."""
    starts, window = load_i64(a + 96), load_i64(a + 160)
    behind = load_i32(starts + s * 4 + 4) - row - 1
    high = load_i32(load_i64(a + 104) + s * 4) - behind
    low = max(0, high - window) if window else 0
    return low, high


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
    tile_data, scores = scratch, scratch + TILE * padded * 4
    for tile in range(begin, end, TILE):
        _load_keys(a, table, head, tile, min(TILE, end - tile), tile_data)
        for i in range(rows):
            low, high = _visible(a, s, row + i)
            if low < tile + TILE and high > tile:
                source, to = q + (row + i) * q_token + head * group * q_head, scores + (i * group * SPLIT + tile - first) * 4
                for g in range(0, group - 1, 2):
                    at = source + g * q_head
                    _scores_of_two(at, at + q_head, tile_data, d, scale, to + g * SPLIT * 4)
                if group % 2:
                    at = source + (group - 1) * q_head
                    _scores(at, tile_data, d, scale, to + (group - 1) * SPLIT * 4)
    for i in range(rows):
        low, high = _visible(a, s, row + i)
        low, high = max(low - first, 0), min(high - first, SPLIT)
        if low < high:
            for g in range(group):
                record = records + (i * group + g) * record_bytes
                m, l = _softmax(scores + (i * group + g) * SPLIT * 4, low, high)
                store_f32(record + padded * 4, m)
                store_f32(record + padded * 4 + 4, l)
                for j in range(0, padded, 16):
                    store_f32x16(record + j * 4, broadcast(simd.f32(0)))
    for tile in range(begin, end, TILE):
        _load_values(a, table, head, tile, min(TILE, end - tile), tile_data, padded)
        for i in range(rows):
            low, high = _visible(a, s, row + i)
            low, high = max(low - tile, 0), min(high - tile, TILE)
            if low < high:
                p, record = scores + (i * group * SPLIT + tile - first) * 4, records + i * group * record_bytes
                for g in range(0, group - 1, 2):
                    y = record + g * record_bytes
                    _weigh_two(p + g * SPLIT * 4, tile_data, padded, low, high, y, y + record_bytes)
                if group % 2:
                    last = group - 1
                    y = record + last * record_bytes
                    _weigh(p + last * SPLIT * 4, tile_data, padded, low, high, y)


@inline
def _finish(state, padded, d, y):
    """y[D] = a / l."""
    total = broadcast(load_f32(state + padded * 4 + 4))
    for j in range(0, d, 16):
        simd.store_some(y + j * 4, simd.div(load_f32x16(state + j * 4), total), d - j)


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
                    _merge(state, partials + split * load_i64(a + 208) * heads * record_bytes + offset, padded)
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
                        _merge(state, part, padded)


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


@kernel
def store_kv(a, thread, threads, barrier):
    """Arguments: k, k_token, k_head, keys, values, block bytes, head bytes, element bytes, slots, v, v_token, v_head, T, Hk, D, P."""
    size, slots, tokens = load_i64(a + 72), load_i64(a + 80), load_i64(a + 112)
    heads, d, p = load_i64(a + 120), load_i64(a + 128), load_i64(a + 136)
    while True:
        t = claim(a)
        if t >= tokens:
            break
        slot = load_i32(slots + t * 4)
        for head in range(heads):
            block = slot // p * load_i64(a + 56) + head * load_i64(a + 64)
            k = load_i64(a + 16) + t * load_i64(a + 24) + head * load_i64(a + 32)
            v = load_i64(a + 88) + t * load_i64(a + 96) + head * load_i64(a + 104)
            key, value = load_i64(a + 40) + block + slot % p * size, load_i64(a + 48) + block + slot % p * d * size
            for j in range(d):
                if size == 4:
                    store_f32(key + j * p * 4, load_f32(k + j * 4))
                    store_f32(value + j * 4, load_f32(v + j * 4))
                else:
                    simd.store_f16(key + j * p * 2, load_f32(k + j * 4))
                    simd.store_f16(value + j * 2, load_f32(v + j * 4))
