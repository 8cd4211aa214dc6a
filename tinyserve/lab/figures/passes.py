"""Tokens, and what a pass over the model costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from IPython.display import Image

from .canvas import BLUE, COLOURS, GREEN, GREY, ORANGE, VERMILION, canvas, image


def token_pieces(pieces: Sequence[str], ids: Sequence[int]) -> Image:
    """A text cut into tokens, each in its own box over its id."""
    figure, axes = canvas(height=1.7)
    at, row, widest = 0.0, 0, 60.0
    for i, (piece, token) in enumerate(zip(pieces, ids)):
        shown = piece.replace("\n", "⏎").replace(" ", "·")
        width = max(len(shown), len(str(token))) + 1.4
        if at + width > widest:
            at, row = 0.0, row + 1
        axes.text(at + width / 2, -row, shown, ha="center", va="bottom", family="monospace", fontsize=11,
                  bbox={"facecolor": COLOURS[i % len(COLOURS)], "alpha": 0.25, "edgecolor": "none", "pad": 2})
        axes.text(at + width / 2, -row - 0.08, str(token), ha="center", va="top", fontsize=7, color=GREY)
        at += width
    axes.set(xlim=(0, widest), ylim=(-row - 0.6, 0.7))
    axes.axis("off")
    return image(figure, f"The text cut into {len(pieces)} tokens: " + " | ".join(pieces))


def pass_cost(tokens: Sequence[int], seconds: Sequence[float]) -> Image:
    """Time of one pass, and time a token, against the number of tokens in the pass."""
    figure, axes = canvas()
    axes.plot(tokens, [s * 1e3 for s in seconds], "o-", color=BLUE, label="one pass")
    axes.plot(tokens, [s / t * 1e3 for s, t in zip(seconds, tokens)], "s--", color=VERMILION, label="per token")
    axes.set(xscale="log", yscale="log", xlabel="tokens in the pass", ylabel="milliseconds", xticks=list(tokens),
             xticklabels=[str(t) for t in tokens])
    axes.minorticks_off()
    axes.legend(frameon=False)
    return image(figure, f"A pass of {tokens[0]} token takes {seconds[0] * 1e3:.1f} ms, one of {tokens[-1]} takes "
                         f"{seconds[-1] * 1e3:.0f} ms; per token the cost falls from {seconds[0] / tokens[0] * 1e3:.1f} to "
                         f"{seconds[-1] / tokens[-1] * 1e3:.2f} ms.")


def roofline(bandwidth: float, peak: float, points: Mapping[str, tuple[float, float]]) -> Image:
    """Attainable operations a second against arithmetic intensity; points are (operations a byte, operations a second)."""
    figure, axes = canvas(height=3.4)
    ridge = peak / bandwidth
    reach = [value for value, _ in points.values()]
    low, high = min([0.5, *reach]) / 2, max([ridge * 8, *reach]) * 2
    axes.plot([low, ridge, high], [low * bandwidth / 1e9, peak / 1e9, peak / 1e9], color=GREY, linewidth=2)
    axes.axvline(ridge, color=GREY, linestyle=":", linewidth=1)
    axes.text(ridge, peak / 1e9 * 1.15, f"ridge: {ridge:.0f} operations a byte", ha="center", fontsize=9, color=GREY)
    for (name, (x, y)), colour in zip(points.items(), (VERMILION, BLUE, GREEN, ORANGE, *COLOURS)):
        axes.plot(x, y / 1e9, "o", color=colour)
        axes.annotate(name, (x, y / 1e9), textcoords="offset points", xytext=(6, -12), color=colour, fontsize=9)
    axes.set(xscale="log", yscale="log", xlabel="arithmetic intensity: operations a byte of weights", ylabel="billion operations a second")
    axes.set_ylim(top=peak / 1e9 * 2.2)
    return image(figure, f"A roofline: memory allows {bandwidth / 1e9:.0f} GB/s, arithmetic {peak / 1e9:.0f} billion operations a second, "
                         f"and they meet at {ridge:.0f} operations a byte. Points: " +
                         ", ".join(f"{n} at {x:.1f} operations a byte reaches {y / 1e9:.0f}" for n, (x, y) in points.items()) + ".")
