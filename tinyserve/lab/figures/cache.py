"""The KV cache: what it saves, what it takes, and how it lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from IPython.display import Image

from .canvas import BLUE, COLOURS, GREEN, GREY, ORANGE, VERMILION, canvas, image


def cost_without_cache(contexts: Sequence[int], without: Sequence[float], cached: Sequence[float]) -> Image:
    """Seconds for the next token at each context length, with everything computed again and with a cache."""
    figure, axes = canvas()
    axes.plot(contexts, [s * 1e3 for s in without], "o-", color=VERMILION, label="computed again")
    axes.plot(contexts, [s * 1e3 for s in cached], "s-", color=BLUE, label="with the cache")
    axes.set(xlabel="tokens in the context", ylabel="milliseconds for the next token", ylim=(0, None))
    axes.legend(frameon=False)
    return image(figure, f"At {contexts[-1]} tokens of context the next token takes {without[-1] * 1e3:.0f} ms when everything is computed "
                         f"again and {cached[-1] * 1e3:.1f} ms with the cache; the first grows with the context, the second hardly.")


def cache_memory(tokens: Sequence[int], kinds: Mapping[str, float], weights: float) -> Image:
    """Megabytes of cache against tokens held; `kinds` maps a name to bytes a token. The weights are a line to compare with."""
    figure, axes = canvas()
    for (name, each), colour in zip(kinds.items(), COLOURS):
        axes.plot(tokens, [each * t / 1e6 for t in tokens], color=colour, label=f"{name}: {each / 1024:.1f} KiB a token")
    axes.axhline(weights / 1e6, color=GREY, linestyle="--")
    axes.text(tokens[-1], weights / 1e6, "the model's weights ", ha="right", va="bottom", color=GREY)
    axes.set(xlabel="tokens held, over all requests", ylabel="MB of keys and values", ylim=(0, None))
    axes.legend(frameon=False)
    return image(figure, "Cache memory grows in proportion to the tokens held: " + ", ".join(f"{n} {e / 1024:.1f} KiB a token"
                 for n, e in kinds.items()) + f"; the weights take {weights / 1e6:.0f} MB.")


def cache_layout(length: int, block_size: int = 4, blocks: int = 8) -> Image:
    """One sequence of `length` tokens in a cache of blocks: which slots it owns, and what its last block leaves empty."""
    figure, axes = canvas(height=2.6)
    order = [(5 * i + 2) % (blocks - 1) + 1 for i in range(blocks - 1)]
    table = order[: -(-length // block_size)]
    for block in range(blocks):
        for offset in range(block_size):
            x, position = block * (block_size + 0.6) + offset, None
            if block in table:
                position = table.index(block) * block_size + offset
            used = position is not None and position < length
            colour = GREY if block == 0 else (ORANGE if position == length - 1 else BLUE) if used else "white"
            axes.add_patch(_box(x, colour, used or block == 0))
            if used:
                axes.text(x + 0.5, 0.5, str(position), ha="center", va="center", fontsize=7, color="white")
        axes.text(block * (block_size + 0.6) + block_size / 2, -0.35, "null" if block == 0 else f"block {block}", ha="center", fontsize=8)
    axes.text(0, 1.5, f"block table {table}: position p lies in block table[p // {block_size}], offset p % {block_size}", color=GREEN)
    axes.set(xlim=(-0.3, blocks * (block_size + 0.6)), ylim=(-0.8, 2))
    axes.axis("off")
    return image(figure, f"{length} tokens in blocks of {block_size}: block table {table}; {len(table) * block_size - length} slots of the "
                         "last block are empty.")


def _box(x: float, colour: str, filled: bool) -> object:
    from matplotlib.patches import Rectangle

    return Rectangle((x, 0), 1, 1, facecolor=colour, edgecolor=GREY, alpha=0.85 if filled else 1.0, linewidth=0.6)
