"""Attention in pieces: the running softmax, tiles, bytes, and splits over a GPU's multiprocessors."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence

from IPython.display import Image

from .canvas import BLUE, COLOURS, GREEN, GREY, ORANGE, VERMILION, canvas, image


def running_softmax(scores: Sequence[float], seen: int) -> Image:
    """The state (m, l) after `seen` scores: the largest so far, and the sum of weights relative to it."""
    figure, axes = canvas(height=2.8)
    top, total, told = -math.inf, 0.0, "nothing yet"
    tops = []
    for score in scores[:seen]:
        higher = max(top, score)
        keep, weight = math.exp(top - higher), math.exp(score - higher)
        told = f"m = {higher:g}   l = {total:.3f} × {keep:.3f} + {weight:.3f} = {total * keep + weight:.3f}"
        top, total = higher, total * keep + weight
        tops.append(top)
    colours = [ORANGE if i == seen - 1 else BLUE if i < seen else "#d9d9d9" for i in range(len(scores))]
    axes.bar(range(len(scores)), scores, color=colours, width=0.7)
    axes.step(range(len(tops)), tops, where="mid", color=VERMILION, label="m, the largest so far")
    axes.set(xlabel="key", ylabel="score", ylim=(min(scores) - 0.3, max(scores) + 1), xlim=(-0.6, len(scores) - 0.4), title=told,
             xticks=range(len(scores)))
    axes.legend(frameon=False, loc="upper left")
    return image(figure, f"After {seen} of {len(scores)} scores: {told}.")


def tile_walk(step: int, rows: int = 8, keys: int = 8) -> Image:
    """A causal score matrix of rows × keys tiles: what a flash kernel has done before tile `step` and what it never does."""
    from matplotlib.patches import Rectangle

    figure, axes = canvas(width=4.6, height=3.6)
    order = [(r, k) for r in range(rows) for k in range(min(r + 1, keys))]
    step = min(step, len(order) - 1)
    for r in range(rows):
        for k in range(keys):
            at = order.index((r, k)) if (r, k) in order else None
            colour = "white" if at is None else ORANGE if at == step else BLUE if at < step else "#d9d9d9"
            axes.add_patch(Rectangle((k, r), 0.94, 0.94, facecolor=colour, edgecolor=GREY, linewidth=0.6, hatch="//" if k == r else None))
    r, k = order[step]
    axes.set(xlim=(-0.1, keys), ylim=(rows, -0.1), xlabel="tile of keys", ylabel="tile of queries", aspect="equal",
             title=f"queries {r}, keys {k}: {'masked' if k == r else 'whole'}")
    skipped = rows * keys - len(order)
    return image(figure, f"Tile {step + 1} of {len(order)}: queries {r} against keys {k}. Tiles on the diagonal are masked inside; the "
                         f"{skipped} tiles above it are never loaded.")


def attention_bytes(contexts: Sequence[int], kinds: Mapping[str, Sequence[float]]) -> Image:
    """Megabytes that the lanes of each version read and write, against the length of the prompt."""
    figure, axes = canvas()
    for (name, values), colour, mark in zip(kinds.items(), COLOURS, "os^Dv"):
        axes.plot(contexts, [v / 1e6 for v in values], mark + "-", color=colour, label=name)
    axes.set(xscale="log", yscale="log", xlabel="tokens of the prompt", ylabel="MB asked of memory, one head", xticks=list(contexts),
             xticklabels=[str(c) for c in contexts])
    axes.minorticks_off()
    axes.legend(frameon=False)
    return image(figure, f"Megabytes asked of memory for one head at {contexts[-1]} tokens: " +
                 ", ".join(f"{name} {values[-1] / 1e6:.1f}" for name, values in kinds.items()) + ".")


def split_schedule(splits: int, context: int = 4096, groups: int = 6, processors: int = 16) -> Image:
    """Who works when: `groups` (sequence, key head) pairs, each cut into `splits`, on the multiprocessors of a small GPU.

    Time is counted in keys. Assumed: a CTA takes 32 keys' time to start; the merge 128 for its launch and 2 for each split."""
    figure, axes = canvas(height=3.2)
    free = [(0, p) for p in range(processors)]
    part = 32 + -(-context // splits)
    for unit in range(groups * splits):
        start, p = heapq.heappop(free)
        axes.barh(p, part, left=start, height=0.8, color=COLOURS[unit // splits % len(COLOURS)], edgecolor="white", linewidth=0.5)
        heapq.heappush(free, (start + part, p))
    summed = max(end for end, _ in free)
    end = summed + (128 + 2 * splits if splits > 1 else 0)
    if splits > 1:
        axes.axvspan(summed, end, color=GREY, alpha=0.35)
    busy = groups * context / (processors * end)
    axes.axvline(end, color=VERMILION)
    axes.set(xlabel="time, in keys read one after the other", ylabel="multiprocessor", xlim=(0, context * 1.05),
             ylim=(processors - 0.4, -0.6), yticks=range(0, processors, 5),
             title=f"contexts cut into {splits}: done after {end}, {busy:.0%} of the processors' time is used")
    return image(figure, f"{groups} pairs of sequence and key head on {processors} multiprocessors, each context of {context} keys "
                         f"cut into {splits}: done after {end} keys' time, merge included; {busy:.0%} of the time is used.")


def nibble_word(word: int) -> Image:
    """One 32-bit word of eight INT4 codes: which nibble belongs to which column."""
    from matplotlib.patches import Rectangle

    figure, axes = canvas(height=1.7)
    codes = []
    for byte in range(4):
        for half, colour in ((0, BLUE), (1, ORANGE)):
            code, column = word >> (8 * byte + 4 * half) & 15, byte + 4 * half
            x = 7 - (2 * byte + half)
            codes.append((column, code))
            axes.add_patch(Rectangle((x, 0), 0.95, 1, facecolor=colour, alpha=0.85))
            axes.text(x + 0.47, 0.5, f"{code}", ha="center", va="center", color="white", fontsize=12)
            axes.text(x + 0.47, -0.15, f"column {column}", ha="center", va="top", fontsize=8)
    axes.text(0, 1.25, f"0x{word:08X}: blue nibbles are columns 0 to 3, orange ones 4 to 7", color=GREEN)
    axes.set(xlim=(-0.1, 8.1), ylim=(-0.5, 1.6))
    axes.axis("off")
    told = ", ".join(f"{code} for column {column}" for column, code in sorted(codes))
    return image(figure, f"The word 0x{word:08X} holds the codes {told}.")
