"""A request in time, and a model in bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from IPython.display import Image

from .canvas import BLUE, COLOURS, ORANGE, canvas, image


def request_timeline(token_times: Sequence[float]) -> Image:
    """When each token came, in seconds after the request: the wait for the first is TTFT, the rhythm after it TPOT."""
    figure, axes = canvas(height=2.4)
    ttft, end = token_times[0] * 1e3, token_times[-1] * 1e3
    axes.barh(0, ttft, color=BLUE, height=0.5)
    axes.barh(0, end - ttft, left=ttft, color=ORANGE, height=0.5)
    axes.vlines([time * 1e3 for time in token_times], -0.25, 0.25, color="white", linewidth=1)
    axes.text(ttft / 2, 0.4, "prefill: TTFT", ha="center", color=BLUE)
    tpot = (end - ttft) / max(1, len(token_times) - 1)
    axes.text(ttft + (end - ttft) / 2, 0.4, f"decode: {len(token_times) - 1} tokens", ha="center", color="#8a5f00")
    axes.set(ylim=(-0.5, 0.8), yticks=[], xlabel="milliseconds after the request", xlim=(0, end * 1.02))
    axes.spines["left"].set_visible(False)
    return image(figure, f"A bar of one request: {ttft:.0f} ms until the first token, then {len(token_times) - 1} tokens, one every "
                         f"{tpot:.1f} ms.")


def weight_bytes(parts: Mapping[str, float]) -> Image:
    """Megabytes that one decode step reads, by part of the model."""
    figure, axes = canvas(height=2.6)
    names, sizes = list(parts), [value / 1e6 for value in parts.values()]
    axes.barh(names[::-1], sizes[::-1], color=[COLOURS[i % len(COLOURS)] for i in range(len(names))][::-1])
    for i, size in enumerate(sizes[::-1]):
        axes.text(size, i, f" {size:.1f}", va="center")
    axes.set(xlabel="MB read for every token", xlim=(0, max(sizes) * 1.15))
    return image(figure, "Bars of megabytes read for a token: " + ", ".join(f"{n} {s:.1f}" for n, s in zip(names, sizes)) + ".")


