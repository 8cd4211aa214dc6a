"""How threads meet memory: which thread owns what, the sectors of a request, banks of a tile, tiles of a product, mma fragments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython.display import Image

from .canvas import BLUE, COLOURS, GREEN, GREY, ORANGE, VERMILION, canvas, image

PALE = "#d9d9d9"
SECTOR, BANKS, WORD = 32, 32, 4


def _cell(axes: Any, x: float, y: float, colour: str, text: str = "", size: float = 7, ink: str = "white", width: float = 0.94,
          height: float = 0.94) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor=GREY, linewidth=0.4))
    if text:
        axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=size, color=ink)


def thread_map(n: int, ctas: int = 3, threads: int = 8) -> Image:
    """`ctas` CTAs of `threads` threads over n elements: i = blockIdx * blockDim + threadIdx, and who has nothing to do."""
    figure, axes = canvas(height=2.1)
    for i in range(ctas * threads):
        cta, thread = divmod(i, threads)
        x = i + 0.8 * cta
        _cell(axes, x, 1, COLOURS[cta % len(COLOURS)] if i < n else "white", str(thread), ink="white" if i < n else GREY)
        if i < n:
            _cell(axes, x, -0.6, PALE, str(i), ink="black")
            axes.plot([x + 0.47] * 2, [0.36, 0.98], color=GREY, linewidth=0.8)
    for cta in range(ctas):
        axes.text(cta * (threads + 0.8) + threads / 2, 2.2, f"blockIdx.x = {cta}", ha="center", color=COLOURS[cta % len(COLOURS)])
    axes.text(-0.4, 1.47, "threadIdx.x", ha="right", va="center", fontsize=8)
    axes.text(-0.4, -0.13, "element", ha="right", va="center", fontsize=8)
    axes.set(xlim=(-3.6, ctas * (threads + 0.8)), ylim=(-0.8, 2.9))
    axes.axis("off")
    idle = max(0, ctas * threads - n)
    return image(figure, f"{ctas} CTAs of {threads} threads over {n} elements: thread t of CTA b owns element {threads} b + t; the last "
                         f"{idle} threads have no element and must do nothing.")


def warp_request(stride: int) -> Image:
    """One load of a warp, lane i reading 4-byte element i * stride: the 32-byte sectors that memory must move for it."""
    figure, axes = canvas(height=2.7)
    lines = [lane * stride * WORD // SECTOR for lane in range(32)]
    sectors, across = len(set(lines)), max(4, max(lines) + 1)
    width = 64 / across
    for sector in range(across):
        _cell(axes, sector * width, 0, ORANGE if sector in lines else PALE, width=width * 0.94)
    for lane in range(32):
        _cell(axes, 2 * lane + 0.4, 2.6, BLUE, str(lane), 6)
        axes.plot([2 * lane + 0.87, (lane * stride * WORD / SECTOR + 1 / 16) * width], [2.55, 0.95], color=GREY, linewidth=0.5)
    share = 128 / (SECTOR * sectors)
    axes.set(xlim=(-0.5, 65), ylim=(-1, 4.2))
    axes.text(0, 3.8, "32 lanes ask", color=BLUE)
    axes.text(0, -0.8, f"stride {stride}: {sectors} sectors of 32 bytes move for 128 bytes wanted: {share:.0%} of the traffic is used",
              color=VERMILION if share < 0.5 else GREEN)
    axes.axis("off")
    return image(figure, f"Lane i reads element {stride} i: the warp's 128 bytes lie in {sectors} sectors of 32 bytes, {share:.0%} of what "
                         "moves is used.")


def banks(width: int, rows: int = 32) -> Image:
    """A tile of float32 in shared memory, `width` words a row: the bank of each word, and the passes that reading column 0 takes."""
    import numpy as np

    figure, axes = canvas(width=4.8, height=3.3)
    bank = (np.arange(rows)[:, None] * width + np.arange(width)) % BANKS
    axes.imshow(bank, cmap="cividis", vmin=0, vmax=BANKS - 1)
    for row in range(rows):
        axes.text(0, row, str(bank[row, 0]), ha="center", va="center", fontsize=4.5, color="white" if bank[row, 0] < 20 else "black")
    passes, different = int(np.bincount(bank[:, 0]).max()), len(set(bank[:, 0]))
    told = f"column 0 lies in {different} bank{'s' * (different > 1)}: {passes} pass{'es' * (passes > 1)} to read it"
    axes.add_patch(_outline(-0.5, -0.5, 1, rows))
    axes.set(title=f"{width} words a row: {told}", xlabel="column", ylabel="row (one lane each)")
    figure.colorbar(axes.images[0], ax=axes, label="bank")
    return image(figure, f"A tile of {rows} rows of {width} words, bank by bank: {told}.")


def _outline(x: float, y: float, width: float, height: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, fill=False, edgecolor=VERMILION, linewidth=1.8)


def product_tiles(step: int, tiles: int = 4) -> Image:
    """A tiled product at one step: the tile of the result that a CTA owns, and the two tiles that it holds in shared memory now."""
    figure, axes = canvas(width=5.4, height=3.6)
    row, column = 1, 2
    for i in range(tiles):
        for j in range(tiles):
            here, done = (ORANGE, j == step), (BLUE, j < step)
            _cell(axes, j, tiles - 1 - i, here[0] if i == row and here[1] else done[0] if i == row and done[1] else PALE)
            _cell(axes, tiles + 1.5 + j, 2 * tiles - i + 0.5, here[0] if j == column and i == step else
                  done[0] if j == column and i < step else PALE)
            _cell(axes, tiles + 1.5 + j, tiles - 1 - i, GREEN if (i, j) == (row, column) else "white")
    axes.text(tiles / 2, tiles + 0.3, "a", ha="center", va="center")
    axes.text(tiles + 1.1, 1.5 * tiles + 1, "b, turned", ha="right", va="center")
    axes.text(tiles + 1.5 + tiles / 2, -0.6, "a times b", ha="center", va="center")
    axes.set(xlim=(-0.2, 2 * tiles + 1.8), ylim=(-1, 2 * tiles + 1.7), aspect="equal")
    axes.axis("off")
    return image(figure, f"Step {step + 1} of {tiles}: the CTA of result tile ({row}, {column}) holds tile ({row}, {step}) of a and tile "
                         f"({step}, {column}) of b, turned, in shared memory; each is read from memory once and used by all its threads.")


def fragments(lane: int) -> Image:
    """Who holds what in one 16-bit `mma`: A[16, 16], B[16, 8] and the result [16, 8]. A box is two neighbouring elements, its number the
    lane that holds them; one lane's boxes stand out and name their items."""
    from ...kernels.cuda.warp.fragments import A_SHAPE_16, B_SHAPE_16, C_SHAPE, a_16bit, b_16bit, c_32bit

    figure, axes = canvas(width=5.4, height=3.1)
    parts: list[tuple[str, tuple, Callable, int]] = [
        ("A, 4 registers of two", A_SHAPE_16, a_16bit, 8), ("B, 2 registers of two", B_SHAPE_16, b_16bit, 4),
        ("result, 4 float32", C_SHAPE, c_32bit, 4)]
    left = 0.0
    for name, (rows, columns), layout, items in parts:
        for owner in range(32):
            for item in range(0, items, 2):
                (row, column), (last, right) = layout(owner, item), layout(owner, item + 1)
                mine, first_half = owner == lane, item // 2 % 2 == 0
                _cell(axes, left + column, rows - 1 - last, VERMILION if mine else BLUE if first_half else PALE,
                      f"{item}, {item + 1}" if mine else str(owner), 6, "white" if mine or first_half else "black",
                      right - column + 0.94, last - row + 0.94)
        axes.text(left + columns / 2, rows + 0.5, name, ha="center", fontsize=9)
        left += columns + 1.6
    axes.set(xlim=(-0.2, left - 1.2), ylim=(-0.2, 17.3), aspect="equal", title=f"lane {lane}")
    axes.axis("off")
    held = [f"{name.split(',')[0]} {[layout(lane, item) for item in range(items)]}" for name, _, layout, items in parts]
    return image(figure, f"Fragments of mma m16n8k16: lane {lane} holds, as (row, column), " + "; ".join(held) + ".")
